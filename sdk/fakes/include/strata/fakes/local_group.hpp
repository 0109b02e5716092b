// N ranks in one process, for unit tests without a launch. Two ways to use them:
//   on_ranks(3, [](CheckedGroup& group) { ... });          three threads, one rank each: code may wait wherever it
//   likes auto groups = local_groups(3, std::chrono::seconds(0)); one thread drives all: start on every rank, then wait
// Members that call different operations, sizes or dtypes get a Bug naming both calls, where a real backend would hang
// or mix bytes.
#pragma once
#include <strata/checked_group.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace strata::fakes {

// When bytes move. AtStart: when all members have started the operation. AtWait: a member gets its bytes in its own
// wait(), as the slowest real backend may bring them. Until then its output holds bytes of ones (NaN in every floating
// format, but where it is the operation's input too), and whoever writes to input or output in between gets a Bug from
// wait().
enum class Movement { AtStart, AtWait };

// By rank. A wait ends with an EnvironmentError after `patience`; with 0 at once, which is what one thread wants.
std::vector<std::unique_ptr<CheckedGroup>> local_groups(int size,
                                                        std::chrono::milliseconds patience = std::chrono::seconds(30),
                                                        Movement movement = Movement::AtStart);

// Runs `body` for each rank on a thread of its own and returns when all have ended. Throws the exception of the rank
// that failed first; the others' waits then end with an EnvironmentError.
void on_ranks(int size, const std::function<void(CheckedGroup&)>& body);

// Of a group that local_groups() made: how many operations this rank has started and not waited for.
int under_way(const CheckedGroup& group);
// Ends the waits of all its members, present and later, with an EnvironmentError: for a rank that cannot go on.
void give_up(const CheckedGroup& group);

}  // namespace strata::fakes
