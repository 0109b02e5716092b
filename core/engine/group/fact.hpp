#pragma once
#include <string>
#include <vector>

namespace strata::group {

// A fact that must be equal on all ranks: "data.path", "20000 tokens, content 0123abcd", "/data/train.bin". Ranks
// compare names and values; `where` is printed beside them and may differ.
struct Fact {
  std::string name;
  std::string value;
  std::string where = {};
};

// Converts facts to one text for the run's store, and back.
std::string written(const std::vector<Fact>& facts);
std::vector<Fact> read_facts(const std::string& text);

// Returns "rank 0 has A, rank 1 has B", the lower rank first, so that both ranks print the same.
std::string contrast(int rank, const std::string& value, int other_rank, const std::string& other);

// Returns the first fact in which two ranks differ: "rank 0 has data.path /a/train.bin (20000 tokens, ...), rank 1 has
// ...". Empty if there is none.
std::string difference(int rank, const std::vector<Fact>& facts, int other_rank, const std::vector<Fact>& others);

}  // namespace strata::group
