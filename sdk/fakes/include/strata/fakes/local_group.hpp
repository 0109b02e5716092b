// N ranks in one process, for unit tests without a launch. Two ways to use them:
// - one thread per rank, so that code may wait anywhere:
//     on_ranks(3, [](CheckedGroup& group) { ... });
// - one thread for all ranks, which starts an operation on every rank and then waits on every rank:
//     auto groups = local_groups(3, std::chrono::seconds(0));
// Members that call different operations, sizes or dtypes get a Bug naming both calls; a real backend would hang or mix
// bytes.
#pragma once
#include <strata/checked_group.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace strata::fakes {

// Time at which data moves. AtStart: when all members have started the operation. AtWait: a member gets its data in its
// own wait(), like the slowest real backend. Until then its output is filled with 0xFF bytes (NaN in every floating
// format) unless it is also the input, and a write to input or output makes wait() throw Bug.
enum class Movement { AtStart, AtWait };

// Returns the groups by rank. A wait throws EnvironmentError after `patience`; use 0 if one thread drives all ranks.
std::vector<std::unique_ptr<CheckedGroup>> local_groups(int size,
                                                        std::chrono::milliseconds patience = std::chrono::seconds(30),
                                                        Movement movement = Movement::AtStart);

// Returns the groups, by rank, of ranks with these numbers in the run.
std::vector<std::unique_ptr<CheckedGroup>> local_groups(const std::vector<int>& members,
                                                        std::chrono::milliseconds patience = std::chrono::seconds(30),
                                                        Movement movement = Movement::AtStart);

// Runs `body` for each rank on its own thread and returns when all have ended. Throws the exception of the rank that
// failed first; the other ranks' waits then end with EnvironmentError.
void on_ranks(int size, const std::function<void(CheckedGroup&)>& body);

// Returns the number of operations that this rank of a local group has started but not waited for.
int under_way(const CheckedGroup& group);
// Ends all current and later waits of all members with EnvironmentError, on behalf of a rank that cannot continue.
void give_up(const CheckedGroup& group);

}  // namespace strata::fakes
