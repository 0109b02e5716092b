// defines: local_groups, on_ranks
// N ranks in one process, for unit tests without a launch. Two ways to use them:
//   on_ranks(3, [](CheckedGroup& group) { ... });          three threads, one rank each: code may wait wherever it
//   likes auto groups = local_groups(3, std::chrono::seconds(0)); one thread drives all: start on every rank, then wait
// An operation moves when all members have started it. Members that call different operations, sizes or dtypes get a
// Bug naming both calls, where a real backend would hang or mix bytes.
#pragma once
#include <strata/checked_group.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace strata::fakes {

// By rank. A wait ends with an EnvironmentError after `patience`; with 0 at once, which is what one thread wants.
std::vector<std::unique_ptr<CheckedGroup>> local_groups(int size,
                                                        std::chrono::milliseconds patience = std::chrono::seconds(30));

// Runs `body` for each rank on a thread of its own and returns when all have ended. Throws the exception of the rank
// that failed first; the others' waits then end with an EnvironmentError.
void on_ranks(int size, const std::function<void(CheckedGroup&)>& body);

}  // namespace strata::fakes
