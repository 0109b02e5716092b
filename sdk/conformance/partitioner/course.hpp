// A run of a partitioner, drawn: what it holds, and the calls of its steps in an order that <strata/partitioner.hpp>
// allows.
#pragma once
#include <strata/fakes/partition_ranks.hpp>

#include <string>
#include <vector>

#include "conformance/drawn/draws.hpp"

namespace strata::conformance {

enum class Act { Prefetch, Gather, Release, Lend, Reduce, Finish, Write, Publish, EndStep };

// The same on every rank.
struct PartitionCall {
  Act act = Act::EndStep;
  int flat = 0;
  Phase phase = Phase::Forward;
  Accumulation accumulation = {};
  int number = 0;  // of a Lend: which gradient; of a Write: which values; of an EndStep: the step
};

struct PartitionWorld {
  fakes::OptionTexts options;
  fakes::DataRanks ranks = 1;
  std::vector<FlatParameterInfo> infos;
  fakes::Movement movement = fakes::Movement::AtStart;
  bool is_finite = true;    // no gradient has an infinity or what is not a number
  bool steps_alike = true;  // all of them make the same calls
  bool strays = false;      // calls out of order, which must throw Bug, and repeated ones are tried in between
  std::vector<PartitionCall> calls;
  std::size_t end = 0;        // the run ends in front of this call
  int gradients_at_once = 1;  // of one flat parameter in one sum, over ranks and micro-batches: at most so many
  std::string course;         // its steps in words
};

// What there is before the plugin is asked for anything.
PartitionWorld draw_partition(Draws& draws, const std::vector<OptionSpec>& options);
// Its calls; `lookahead` is the plugin's.
void draw_course(Draws& draws, const Lookahead& lookahead, PartitionWorld& world);

std::string to_string(const PartitionWorld& world);
// "gather() of layer 2 in backward, in step 1".
std::string to_string(const PartitionWorld& world, const PartitionCall& call);

}  // namespace strata::conformance
