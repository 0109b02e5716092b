#include "program/passes.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

namespace strata::program {
namespace {

class Overlap {
 public:
  Overlap(const Program& program, const ParameterUse& use, std::int64_t bytes)
      : program_(program), use_(use), limit_(bytes) {
    std::map<int, std::size_t> used_at_home;  // by flat parameter: behind the last such use
    std::map<Moved, std::size_t> made_anew;   // behind the last Fetch without contents
    int computed = 0;
    for (std::size_t place = 0; place < program.size(); ++place) {
      const Instruction& instruction = program[place];
      if (is_compute(instruction.op)) ++computed;
      if (uses_home(instruction)) used_at_home[instruction.flat_parameter] = place + 1;
      if (instruction.op != Op::Fetch) continue;
      if (instruction.contents)
        fetches_.push_back(
            {place, std::max(used_at_home[instruction.flat_parameter], made_anew[moved_by(instruction)]), computed});
      else
        made_anew[moved_by(instruction)] = place + 1;
    }
    quarter_ = std::max(1, computed / 4);
  }

  Program run() {
    for (std::size_t place = 0; place < program_.size(); ++place) {
      while (!going_.empty() && computed_ - going_.front().computed >= quarter_) settle_oldest();
      while (!fetches_.empty() && may_start_ahead(place) && make_room()) start_next(place);
      const Instruction& instruction = program_[place];
      if (is_compute(instruction.op)) ++computed_;
      switch (instruction.op) {
        case Op::Fetch:
          if (!instruction.contents)
            start(instruction);
          else if (!fetches_.empty() && fetches_.front().place == place)
            start_next(place);
          break;
        case Op::Await:
          if (const auto found = ahead_.find(moved_by(instruction)); found != ahead_.end()) {
            ahead_bytes_ -= bytes(instruction);
            ahead_.erase(found);
          }
          in_use_bytes_ += bytes(instruction);
          result_.push_back(instruction);
          break;
        case Op::Store:
          if (!instruction.changed) {
            in_use_bytes_ -= bytes(instruction);
            away_from_home_.erase(moved_by(instruction));
          }
          result_.push_back(instruction);
          break;
        case Op::Settle:
          in_use_bytes_ -= bytes(instruction);
          away_from_home_.erase(moved_by(instruction));
          put_off(instruction);
          while (!going_.empty() && ahead_bytes_ + going_bytes_ > 2 * limit_) settle_oldest();
          break;
        default:
          while (uses_home(instruction) && is_going_of(instruction.flat_parameter)) settle_oldest();
          result_.push_back(instruction);
      }
    }
    while (!going_.empty()) settle_oldest();
    return std::move(result_);
  }

 private:
  struct Start {
    std::size_t place;     // of the Fetch
    std::size_t earliest;  // before it, something changes its buffer where it rests
    int computed;          // computations before it
  };
  struct Going {
    Instruction settle;
    int computed;  // computations before it was put off
  };

  std::int64_t bytes(const Instruction& instruction) const { return use_.moved_bytes(instruction); }
  // Whether it reads or writes buffers of its flat parameter where they rest.
  bool uses_home(const Instruction& instruction) const {
    return (instruction.op == Op::Measure || instruction.op == Op::Update || instruction.op == Op::Keep) &&
           use_.flat_parameter(instruction.flat_parameter).updates_at_home;
  }
  bool is_going_of(int flat) const { return going_of_.contains(flat); }
  bool is_going(const Moved& buffer) const { return buffers_going_.contains(buffer); }

  bool may_start_ahead(std::size_t place) const {
    const Start& next = fetches_.front();
    const Instruction& fetch = program_[next.place];
    return next.place > place && place >= next.earliest && !away_from_home_.contains(moved_by(fetch)) &&
           !is_going(moved_by(fetch));
  }

  // Whether there is room for the next fetch. A near one may make it, as long as reads have no more than half.
  bool make_room() {
    const Start& next = fetches_.front();
    const std::int64_t ahead = ahead_bytes_ + bytes(program_[next.place]);
    if (ahead + in_use_bytes_ + going_bytes_ <= 2 * limit_) return true;
    if (ahead > limit_ || next.computed - computed_ > quarter_) return false;
    while (ahead + going_bytes_ > 2 * limit_) settle_oldest();
    return true;
  }

  void start_next(std::size_t place) {
    const Instruction& fetch = program_[fetches_.front().place];
    if (fetches_.front().place > place) {
      ahead_.insert(moved_by(fetch));
      ahead_bytes_ += bytes(fetch);
    }
    start(fetch);
    fetches_.pop_front();
  }

  void start(const Instruction& fetch) {
    while (is_going(moved_by(fetch))) settle_oldest();
    away_from_home_.insert(moved_by(fetch));
    result_.push_back(fetch);
  }

  void put_off(const Instruction& settle) {
    going_.push_back({settle, computed_});
    going_bytes_ += bytes(settle);
    going_of_.insert(settle.flat_parameter);
    buffers_going_.insert(moved_by(settle));
  }

  void settle_oldest() {
    const Instruction& settle = going_.front().settle;
    going_bytes_ -= bytes(settle);
    going_of_.erase(going_of_.find(settle.flat_parameter));
    buffers_going_.erase(buffers_going_.find(moved_by(settle)));
    result_.push_back(settle);
    going_.pop_front();
  }

  const Program& program_;
  const ParameterUse& use_;
  const std::int64_t limit_;
  int quarter_ = 1;   // of the step's computations: long enough for a write to end or a read to come
  int computed_ = 0;  // computations so far
  Program result_;
  std::deque<Start> fetches_;       // with contents, that have not started
  std::set<Moved> away_from_home_;  // from its Fetch until it is at home or in going_
  std::set<Moved> ahead_;           // started before its place, and not awaited
  std::int64_t ahead_bytes_ = 0;
  std::deque<Going> going_;             // Settles that are put off
  std::multiset<int> going_of_;         // their flat parameters
  std::multiset<Moved> buffers_going_;  // their buffers
  std::int64_t going_bytes_ = 0;
  std::int64_t in_use_bytes_ = 0;  // awaited, and not on their way home: they will need room there
};

}  // namespace

Program overlap_movement(const Program& program, const ParameterUse& use, std::int64_t bytes) {
  return Overlap(program, use, bytes).run();
}

}  // namespace strata::program
