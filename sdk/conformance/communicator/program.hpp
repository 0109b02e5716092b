// Programs of collectives and messages among ranks, drawn.
#pragma once
#include <strata/group.hpp>

#include <deque>
#include <string>
#include <vector>

#include "conformance/communicator/values.hpp"
#include "conformance/drawn/draws.hpp"

namespace strata::conformance::communicator_checks {

// One operation of a group, with what comes of it on each of its ranks.
struct DrawnOperation {
  Collective collective = Collective::AllReduce;
  std::size_t group = 0;
  std::int64_t elements = 1;  // of a part
  at::ScalarType dtype = at::kFloat;
  ReduceOperation reduction = ReduceOperation::Sum;
  int root = 0;  // or the sender
  int to = 0;    // of a message
  bool is_in_place = false;
  bool is_again = false;  // a ReduceScatter of what the AllReduce before it took
  std::vector<at::Tensor> inputs;
  std::deque<Framed> outputs;       // by rank
  std::vector<at::Tensor> brought;  // by rank, where the input is a tensor of its own
};

struct Program {
  std::vector<std::vector<int>> groups;                                // their members
  std::vector<std::vector<DrawnOperation>> rounds;                     // of operations that are under way at once
  std::vector<std::vector<std::vector<std::size_t>>> started, waited;  // by round and rank: the order of its operations
  std::vector<std::vector<int>> late_ms;                               // by round and rank
};

bool takes_whole(Collective collective);
std::string text_of(const DrawnOperation& operation, const std::vector<int>& members);

// `said` gets it in words.
Program draw_program(Draws& draws, int ranks, std::string& said);
// What each rank brings, and where what it gets will be.
void prepare(Program& program);

}  // namespace strata::conformance::communicator_checks
