#pragma once
#include <string>
#include <vector>

namespace strata::runtime {

// Something that all ranks of a run have alike, as one of them has it: "data.path", "20000 tokens, content 0123abcd",
// "/data/train.bin". Ranks compare names and values; `where` is printed beside them and may differ.
struct Fact {
  std::string name;
  std::string value;
  std::string where = {};
};

// One text for the run's store, and back.
std::string written(const std::vector<Fact>& facts);
std::vector<Fact> read_facts(const std::string& text);

// "rank 0 has A, rank 1 has B", the lower rank first, so that both say the same.
std::string contrast(int rank, const std::string& value, int other_rank, const std::string& other);

// The first fact in which two ranks differ: "rank 0 has data.path /a/train.bin (20000 tokens, ...), rank 1 has ...".
// Empty if there is none.
std::string difference(int rank, const std::vector<Fact>& facts, int other_rank, const std::vector<Fact>& others);

}  // namespace strata::runtime
