#include "program/validate_program.hpp"

#include <strata/error.hpp>

#include <deque>
#include <map>
#include <set>
#include <tuple>

namespace strata::program {
namespace {

// Identifies a transfer at both ends: gradient or activation, sending chunk, micro-batch.
using Key = std::tuple<bool, int, int>;

struct Entry {
  Key key;
  bool send = false;
  int peer = 0;
};

// The state of one stage in the simulation.
struct StageRun {
  std::size_t next = 0;     // the next instruction
  std::deque<Entry> queue;  // posted but not done
  std::set<Key> made;       // computed here
  std::set<Key> posted;     // sends and receives posted so far
  std::set<Key> arrived;
  std::set<Key> used;
  std::map<std::tuple<Op, int, int>, int> layers_done;  // by operation, chunk, micro-batch
};

class Rendezvous {
 public:
  Rendezvous(const std::vector<Program>& stages, const Placement& placement)
      : programs_(stages), placement_(placement), runs_(stages.size()) {}

  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t stage = 0; stage < programs_.size(); ++stage) {
        while (step(stage)) progress = true;
        if (meet(stage)) progress = true;
      }
    }
    for (std::size_t stage = 0; stage < programs_.size(); ++stage) {
      if (runs_[stage].next < programs_[stage].size() || !runs_[stage].queue.empty()) fail_deadlock();
      for (const auto& [pass, layers] : runs_[stage].layers_done) {
        const auto [begin, end] = placement_.layers_of_chunk.at(static_cast<std::size_t>(std::get<1>(pass)));
        if (layers != end - begin)
          fail(stage, programs_[stage].size(), to_string(std::get<0>(pass)) + " leaves out layers");
      }
      for (const Key& key : runs_[stage].arrived) {
        if (!runs_[stage].used.contains(key)) fail(stage, programs_[stage].size(), "a receive is never used");
      }
    }
  }

 private:
  // Runs one instruction unless it must wait.
  bool step(std::size_t stage) {
    StageRun& run = runs_[stage];
    if (run.next == programs_[stage].size()) return false;
    const Instruction& instruction = programs_[stage][run.next];
    if (is_send(instruction.op) || is_receive(instruction.op)) post(stage, instruction);
    if (is_compute(instruction.op) && !compute(stage, instruction)) return false;
    ++run.next;
    return true;
  }

  void post(std::size_t stage, const Instruction& instruction) {
    StageRun& run = runs_[stage];
    const bool gradient = instruction.op == Op::SendGradient || instruction.op == Op::ReceiveGradient;
    const bool send = is_send(instruction.op);
    const int other = instruction.chunk + (gradient == send ? -1 : 1);
    const Key key{gradient, send ? instruction.chunk : other, instruction.micro_batch};
    if (other < 0 || other >= chunks()) fail(stage, run.next, "there is no chunk at the other end");
    if (stage_of(instruction.chunk) != static_cast<int>(stage)) fail(stage, run.next, "the chunk is not on this stage");
    if (instruction.peer_stage != stage_of(other) || instruction.peer_stage == static_cast<int>(stage)) {
      fail(stage, run.next, "the stage at the other end is " + std::to_string(stage_of(other)));
    }
    if (send && !run.made.contains(key)) fail(stage, run.next, "sent before it is computed");
    if (!run.posted.insert(key).second) fail(stage, run.next, "sent or received a second time");
    run.queue.push_back({key, send, instruction.peer_stage});
  }

  // Returns false if a receive that it needs is still pending.
  bool compute(std::size_t stage, const Instruction& instruction) {
    StageRun& run = runs_[stage];
    const bool gradient = instruction.op != Op::Forward;
    const auto [begin, end] = placement_.layers_of_chunk.at(static_cast<std::size_t>(instruction.chunk));
    int& done = run.layers_done[{instruction.op, instruction.chunk, instruction.micro_batch}];
    const int layer = gradient ? end - 1 - done : begin + done;
    if (instruction.layer != layer) fail(stage, run.next, "the next layer is " + std::to_string(layer));
    if (instruction.op == Op::BackwardWeight) {
      ++done;
      return true;
    }
    const bool enters = instruction.layer == (gradient ? end - 1 : begin);
    const int source = instruction.chunk + (gradient ? 1 : -1);
    if (enters && source >= 0 && source < chunks() && stage_of(source) != static_cast<int>(stage)) {
      const Key key{gradient, source, instruction.micro_batch};
      if (!run.posted.contains(key)) fail(stage, run.next, "computed without receiving what it needs");
      if (!run.arrived.contains(key)) return false;
      run.used.insert(key);
    }
    ++done;
    const bool leaves = instruction.layer == (gradient ? begin : end - 1);
    if (leaves) run.made.insert({gradient, instruction.chunk, instruction.micro_batch});
    return true;
  }

  // Ends the transfer at the front of the stage's queue if it is at the front of the peer's as well.
  bool meet(std::size_t stage) {
    std::deque<Entry>& queue = runs_[stage].queue;
    if (queue.empty()) return false;
    std::deque<Entry>& peer = runs_[static_cast<std::size_t>(queue.front().peer)].queue;
    if (peer.empty() || peer.front().peer != static_cast<int>(stage)) return false;
    const Entry here = queue.front();
    const Entry there = peer.front();
    if (here.send == there.send) return false;
    if (here.key != there.key)
      fail(stage, runs_[stage].next, "the message sent does not match what the other end receives next");
    const auto receiver = here.send ? static_cast<std::size_t>(here.peer) : stage;
    runs_[receiver].arrived.insert(here.key);
    queue.pop_front();
    peer.pop_front();
    return true;
  }

  static std::string describe(const Entry& entry) {
    const auto [gradient, chunk, micro_batch] = entry.key;
    return format("{} stage {} of the {} made by chunk {}, micro-batch {}", entry.send ? "a send to" : "a receive from",
                  entry.peer, gradient ? "gradient" : "activation", chunk, micro_batch);
  }

  [[noreturn]] void fail_deadlock() const {
    std::string text = "the stages wait for each other for ever with rendezvous sends and one queue per device";
    for (std::size_t stage = 0; stage < programs_.size(); ++stage) {
      const StageRun& run = runs_[stage];
      text += format("\nstage {}: ", stage);
      const bool ended = run.next == programs_[stage].size();
      text += ended ? "the end" : std::to_string(run.next) + ": " + to_string(programs_[stage][run.next]);
      text += run.queue.empty() ? "; its queue is empty" : "; the front of its queue is " + describe(run.queue.front());
      if (!ended || !run.queue.empty()) text += "   <-- here";
    }
    throw Bug(text);
  }

  [[noreturn]] void fail(std::size_t stage, std::size_t index, const std::string& text) const {
    const Program& program = programs_[stage];
    throw Bug("stage {}, instruction {}, {}: {}   <-- here", stage, index,
              index < program.size() ? to_string(program[index]) : "the end", text);
  }

  int chunks() const { return static_cast<int>(placement_.stage_of_chunk.size()); }
  int stage_of(int chunk) const { return placement_.stage_of_chunk[static_cast<std::size_t>(chunk)]; }

  const std::vector<Program>& programs_;
  const Placement& placement_;
  std::vector<StageRun> runs_;
};

}  // namespace

void validate_communication(const std::vector<Program>& stages, const Placement& placement) {
  Rendezvous(stages, placement).run();
}

}  // namespace strata::program
