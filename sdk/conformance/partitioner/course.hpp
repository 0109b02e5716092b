// A random run of a partitioner: its contents, and the calls of its steps in an order that <strata/partitioner.hpp>
// allows.
#pragma once
#include <strata/fakes/partition_ranks.hpp>

#include <string>
#include <vector>

#include "conformance/drawn/draws.hpp"

namespace strata::conformance {

enum class Act { Prefetch, Gather, Release, Lend, Reduce, Finish, Write, Publish, EndStep };

// A call, the same on every rank.
struct PartitionCall {
  Act act = Act::EndStep;
  int flat = 0;
  Phase phase = Phase::Forward;
  Accumulation accumulation = {};
  int number = 0;  // Lend: number of the gradient; Write: number of the values; EndStep: the step
};

struct PartitionWorld {
  fakes::OptionTexts options;
  fakes::DataRanks ranks = 1;
  std::vector<FlatParameterInfo> infos;
  fakes::Movement movement = fakes::Movement::AtStart;
  bool is_finite = true;    // true: no gradient has an infinity or NaN
  bool steps_alike = true;  // true: all steps make the same calls
  bool strays = false;      // true: also makes repeated calls, and calls out of order, which must throw Bug
  std::vector<PartitionCall> calls;
  std::size_t end = 0;        // index of the call before which the run ends
  int gradients_at_once = 1;  // maximum number of gradients of one flat parameter in one sum
  std::string course;         // description of its steps
};

// Draws the parts that exist before the plugin is called.
PartitionWorld draw_partition(Draws& draws, const std::vector<OptionSpec>& options);
// Draws the calls; `lookahead` is the plugin's.
void draw_course(Draws& draws, const Lookahead& lookahead, PartitionWorld& world);

std::string to_string(const PartitionWorld& world);
// Returns "gather() of layer 2 in backward, in step 1".
std::string to_string(const PartitionWorld& world, const PartitionCall& call);

}  // namespace strata::conformance
