// Record that a rank publishes on the board: its activity, its wait, and the operations it has begun.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "group/process_identity.hpp"

namespace strata::group {

// Operation of a group, described identically by all participants.
struct Call {
  std::string group;
  std::string name;         // "all_reduce"
  std::int64_t number = 0;  // see Operation::number
  std::int64_t bytes = 0;   // bytes of the whole buffer
  std::string detail;       // "sum", "root 1"
  int from = -1;            // members of the group between which a message is sent; -1: a collective
  int to = -1;

  // Returns the sequence that numbers the operation: a group's collectives, or one direction between two members.
  std::string channel() const;
  // True if two calls with the same channel and number are the same operation.
  bool agrees_with(const Call& other) const;
  // Returns "all_reduce #12 of 400 bytes (sum) on group data".
  std::string text() const;
};

enum class RankState {
  Computes,  // anything except waiting for another rank
  Waits,
  Left,    // finished its part of the run
  Failed,  // ended by an error
};
// Transitions: Computes <-> Waits; either -> Left or Failed.

struct RankRecord {
  ProcessIdentity process;
  std::uint64_t beat = 0;   // increases with every publication: a sign of life
  std::uint64_t moves = 0;  // increases whenever this rank begins or ends something
  RankState state = RankState::Computes;
  std::string doing;       // "Forward 0.2 layer 3"
  double since_s = 0.0;    // seconds in this state
  Call waits_for;          // call it waits for; without a group, it waits for ranks to arrive at the place `name`
  std::vector<int> needs;  // ranks without which the wait cannot end
  bool on_device = false;  // true: it waits for its own device, which may compute
  std::map<std::string, std::deque<Call>> begun;  // last calls of each channel
  static constexpr std::size_t calls_kept = 16;

  void begin(const Call& call);
  // Returns the number of the last call of a channel, 0 before the first.
  std::int64_t last_number(const std::string& channel) const;
};

std::string to_text(const RankRecord& record);
// Parses a text of to_text(). Throws Bug.
RankRecord parse_record(const std::string& text);

}  // namespace strata::group
