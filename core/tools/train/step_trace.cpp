#include "tools/train/step_trace.hpp"

#include <strata/format.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "group/numbers.hpp"
#include "group/process_identity.hpp"

namespace strata::cli {

namespace {

using program::Op;

constexpr std::string_view file_begin = R"({"displayTimeUnit":"ms","strata":)";

// The trace's colours follow the category.
const char* category_of(Op op) {
  switch (op) {
    case Op::Forward:
      return "forward";
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight:
      return "backward";
    case Op::SendActivation:
    case Op::ReceiveActivation:
    case Op::SendGradient:
    case Op::ReceiveGradient:
      return "transfer";
    case Op::Prefetch:
    case Op::Gather:
    case Op::Release:
      return "gather";
    case Op::BorrowGradient:
    case Op::Reduce:
      return "reduce";
    case Op::Fetch:
    case Op::Store:
      return "offload";
    default:
      return "end of step";
  }
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

nlohmann::ordered_json event_json(const std::string& name, const char* category, std::size_t rank, std::int64_t begin,
                                  std::int64_t end) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", rank},
          {"tid", 0},
          {"ts", microseconds(begin)},
          {"dur", microseconds(end - begin)}};
}

// The input of `strata trace` in addition to the events.
nlohmann::ordered_json description(const run::Run& run) {
  const program::StepPlan& plan = run.session().plan();
  return {{"scheduler", run.config().scheduler.name},
          {"device", run.config().device.name},
          {"stages", plan.shape.stages},
          {"chunks_per_stage", plan.shape.chunks_per_stage},
          {"micro_batches", plan.shape.micro_batches},
          {"stage_of_chunk", plan.placement.stage_of_chunk},
          {"layers_of_chunk", plan.placement.layers_of_chunk}};
}

}  // namespace

StepTrace::StepTrace(const std::string& file, int rank)
    : file_("--trace", rank == 0 ? file : ""), traces_(!file.empty()) {
  if (file_.size() > 0 && file_.beginning(file_begin.size()) != file_begin) file_.refuse_content("a trace of a run");
}

void StepTrace::begin(run::Run& run, std::int64_t skipped, std::int64_t steps) {
  const std::int64_t done = run.steps_done();
  first_ = done + (run.config().train.steps - done > skipped ? skipped : 0);
  end_ = first_ + steps;
}

void StepTrace::before_step(run::Run& run) {  // Work ahead of a step is done in the step before.

  if (!traces_ || run.steps_done() < first_ - 1 || run.steps_done() >= end_) return;
  run.session().executor().show_instructions(
      [this](const program::Instruction& instruction, const step::InstructionTimes& times) {
        if (times.step >= first_ && times.step < end_) events_.push_back({times.step + 1, instruction, times});
      });
}

void StepTrace::after_step(run::Run& run, const report::StepRecord& /*record*/) {
  if (traces_ && run.steps_done() == end_) write(run);
}

void StepTrace::finish(run::Run& run) {
  if (traces_) write(run);
}

// A pass that was made ahead and then made again counts as it was made last.
void StepTrace::leave_out_forgotten() {
  std::set<std::tuple<std::int64_t, Op, int, int>> seen;
  std::vector<Event> kept;
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    const program::Instruction& instruction = event->instruction;
    if (!program::is_compute(instruction.op) ||
        seen.emplace(event->step, instruction.op, instruction.layer, instruction.micro_batch).second)
      kept.push_back(*event);
  }
  events_.assign(kept.rbegin(), kept.rend());
}

// Ranks have programs of different lengths, and the gathered message is as long on all.
std::vector<StepTrace::RankEvents> StepTrace::of_ranks(run::Run& run) const {
  static_assert(std::is_trivially_copyable_v<Event> && sizeof(Event) % sizeof(std::int64_t) == 0);
  constexpr std::size_t length = sizeof(Event) / sizeof(std::int64_t);
  Group& world = run.session().stage().groups.world();
  const at::Device device = run.session().store().device();
  struct Head {
    std::size_t events;
    std::int64_t stage;
    std::size_t host;
    std::int64_t knows_host;
  };
  const std::string host = group::own_identity().host;
  const std::vector<Head> heads = group::gather_values(
      world, device,
      Head{events_.size(), run.session().stage().place.stage(), std::hash<std::string>()(host), host.empty() ? 0 : 1});
  const std::size_t most = std::ranges::max(heads, {}, &Head::events).events;
  if (most == 0) return {};
  std::vector<std::int64_t> numbers(most * length);
  std::memcpy(numbers.data(), static_cast<const void*>(events_.data()), events_.size() * sizeof(Event));
  const std::vector<std::int64_t> all = group::gather_numbers(world, device, numbers);
  std::vector<RankEvents> ranks(heads.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Head& head = heads[rank];
    ranks[rank].stage = head.stage;
    ranks[rank].same_clock = rank == 0 || (head.host == heads[0].host && head.knows_host == 1);
    ranks[rank].events.resize(head.events);
    std::memcpy(static_cast<void*>(ranks[rank].events.data()), &all[rank * most * length],
                ranks[rank].events.size() * sizeof(Event));
  }
  return ranks;
}

void StepTrace::write(run::Run& run) {
  run.session().executor().show_instructions({});
  traces_ = false;
  leave_out_forgotten();
  std::vector<RankEvents> ranks = of_ranks(run);
  events_ = {};
  if (!file_.is_open()) return;
  const auto meeting = [](const RankEvents& rank) {
    for (const Event& event : rank.events)
      if (event.instruction.op == Op::Norm) return event.times.end;
    return std::int64_t{0};
  };
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (RankEvents& rank : ranks) {
    const std::int64_t move = rank.same_clock ? 0 : meeting(ranks.front()) - meeting(rank);
    for (Event& event : rank.events) {
      event.times.begin += move;
      event.times.end += move;
    }
    if (!rank.events.empty()) origin = std::min(origin, rank.events.front().times.begin);
  }
  nlohmann::ordered_json about = description(run);
  about["stage_of_rank"] = nlohmann::ordered_json::array();
  for (const RankEvents& rank : ranks) about["stage_of_rank"].push_back(rank.stage);
  file_.clear();
  std::string text = std::string(file_begin) + about.dump() + ",\"traceEvents\":[";
  const char* separator = "\n";
  const auto put = [&](const nlohmann::ordered_json& event) {
    constexpr std::size_t part = std::size_t{1} << 20;
    text += separator + event.dump();
    separator = ",\n";
    if (text.size() < part) return;
    file_.write(text);
    text.clear();
  };
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string name = format("rank {}, stage {}", rank, ranks[rank].stage);
    put({{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", name}}}});
    put({{"name", "process_sort_index"}, {"ph", "M"}, {"pid", rank}, {"args", {{"sort_index", rank}}}});
    for (const auto& [step, instruction, times] : ranks[rank].events) {
      const std::int64_t begin = times.begin - origin, starts = begin + times.waited;
      nlohmann::ordered_json arguments{{"step", step}, {"op", program::to_string(instruction.op)}};
      if (times.waited > 0) put(event_json("wait for other ranks", "wait", rank, begin, starts));
      if (program::is_compute(instruction.op)) {
        arguments["chunk"] = instruction.chunk;
        arguments["micro_batch"] = instruction.micro_batch;
        arguments["layer"] = instruction.layer;
        if (times.waited_for_tensor > 0) arguments["waited_for_tensor_us"] = microseconds(times.waited_for_tensor);
      }
      nlohmann::ordered_json event =
          event_json(program::to_string(instruction), category_of(instruction.op), rank, starts, times.end - origin);
      event["args"] = arguments;
      put(event);
    }
  }
  file_.write(text + "\n]}\n");
}

}  // namespace strata::cli
