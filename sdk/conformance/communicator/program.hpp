// Random programs of collectives and messages among ranks.
#pragma once
#include <strata/group.hpp>

#include <deque>
#include <string>
#include <vector>

#include "conformance/communicator/values.hpp"
#include "conformance/drawn/draws.hpp"

namespace strata::conformance::communicator_checks {

// One operation of a group, with its result on each rank.
struct DrawnOperation {
  Collective collective = Collective::AllReduce;
  std::size_t group = 0;
  std::int64_t elements = 1;  // elements of a part
  at::ScalarType dtype = at::kFloat;
  ReduceOperation reduction = ReduceOperation::Sum;
  int root = 0;  // root, or the sender
  int to = 0;    // receiver of a message
  bool is_in_place = false;
  bool is_again = false;  // true: a ReduceScatter of the input of the preceding AllReduce
  std::vector<at::Tensor> inputs;
  std::deque<Framed> outputs;       // by rank
  std::vector<at::Tensor> brought;  // inputs by rank, if separate tensors
};

struct Program {
  std::vector<std::vector<int>> groups;             // members of each group
  std::vector<std::vector<DrawnOperation>> rounds;  // operations of each round, which are in flight at once
  std::vector<std::vector<std::vector<std::size_t>>> started, waited;  // by round and rank: order of its operations
  std::vector<std::vector<int>> late_ms;                               // delays in ms, by round and rank
};

bool takes_whole(Collective collective);
std::string text_of(const DrawnOperation& operation, const std::vector<int>& members);

// Draws a program; `said` gets its description.
Program draw_program(Draws& draws, int ranks, std::string& said);
// Allocates inputs and outputs of each rank.
void prepare(Program& program);

}  // namespace strata::conformance::communicator_checks
