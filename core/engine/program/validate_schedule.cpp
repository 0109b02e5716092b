#include "program/validate_schedule.hpp"

#include "program/grid.hpp"

#include <fmt/format.h>
#include <strata/error.hpp>

#include <map>
#include <set>
#include <utility>

namespace strata::program {
namespace {

std::string count(std::size_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

class OrderCheck {
 public:
  OrderCheck(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
             const PipelineShape& shape)
      : scheduler_(scheduler), orders_(orders), placement_(placement), shape_(shape) {}

  void run() const {
    const auto stages = static_cast<std::size_t>(shape_.stages);
    if (orders_.size() != stages) {
      throw WrongOrders(scheduler_ + " gives an order for " + count(orders_.size(), "stage") + "; the pipeline has " +
                        std::to_string(stages));
    }
    for (int stage = 0; stage < shape_.stages; ++stage) check_stage(stage);
    check_updates();
    check_progress();
  }

 private:
  using Indices = std::map<ComputeKind, std::size_t>;     // index in the order, by kind
  using Passes = std::map<std::pair<int, int>, Indices>;  // by chunk and micro-batch
  using ChunkPasses = std::set<std::pair<int, int>>;      // chunks and micro-batches

  [[noreturn]] void fail(const std::string& text, const std::vector<Mark>& marks) const {
    const std::string stage = marks.size() == 1 ? ", stage " + std::to_string(marks.front().stage) : "";
    std::string grid = draw_grid(orders_, placement_, marks);
    grid.pop_back();  // the last newline
    throw WrongOrders(scheduler_ + stage + ": " + text + "\n" + grid);
  }

  void check_stage(int stage) const {
    const auto& order = orders_[static_cast<std::size_t>(stage)];
    Passes passes;
    ChunkPasses begun;
    std::map<int, std::vector<int>> updates;  // by chunk, the last micro-batch of each so far
    for (std::size_t index = 0; index < order.size(); ++index) {
      check_action(order[index], {stage, index});
      check_version(order[index], updates[order[index].chunk].size(), {stage, index});
      if (order[index].kind == ComputeKind::Update) {
        std::vector<int>& of_chunk = updates[order[index].chunk];
        check_update(order[index], passes, begun, of_chunk.empty() ? 0 : of_chunk.back() + 1, {stage, index});
        of_chunk.push_back(order[index].micro_batch);
        continue;
      }
      Indices& pass = passes[{order[index].chunk, order[index].micro_batch}];
      check_sequence(order, order[index], pass, {stage, index});
      pass.emplace(order[index].kind, index);
      if (order[index].kind == ComputeKind::Backward || order[index].kind == ComputeKind::BackwardInput)
        begun.emplace(order[index].chunk, order[index].micro_batch);
    }
    for (int chunk = 0; chunk < shape_.chunks(); ++chunk) {
      if (placement_.stage_of_chunk[static_cast<std::size_t>(chunk)] != stage) continue;
      for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
        check_all_there(passes[{chunk, micro_batch}], chunk, micro_batch, {stage, order.size()});
      }
    }
  }

  void check_action(const ComputeAction& action, const Mark& mark) const {
    const std::string name = to_string(action);
    if (action.chunk < 0 || action.chunk >= shape_.chunks()) {
      fail(fmt::format("{} names chunk {}; the pipeline has chunks 0 to {}", name, action.chunk, shape_.chunks() - 1),
           {mark});
    }
    const int home = placement_.stage_of_chunk[static_cast<std::size_t>(action.chunk)];
    if (home != mark.stage) {
      fail(fmt::format("{} computes chunk {}, but place() put it on stage {}", name, action.chunk, home), {mark});
    }
    if (action.micro_batch < 0 || action.micro_batch >= shape_.micro_batches) {
      fail(name + " names micro-batch " + std::to_string(action.micro_batch) + "; the step has micro-batches 0 to " +
               std::to_string(shape_.micro_batches - 1),
           {mark});
    }
  }

  void check_version(const ComputeAction& action, std::size_t updates, const Mark& mark) const {
    const std::string name = to_string(action);
    if (action.kind == ComputeKind::Update && action.weight_version != 0)
      fail(name + " names a weight version; an update always adds to the newest weights", {mark});
    if (action.weight_version < 0 || action.weight_version > static_cast<int>(updates))
      fail(fmt::format("{} uses the weights of {} updates; by then the chunk has made {} in this step", name,
                       action.weight_version, updates),
           {mark});
  }

  // `first`: the micro-batch after that of the chunk's last Update. `begun`: the backwards before it.
  void check_update(const ComputeAction& action, const Passes& passes, const ChunkPasses& begun, int first,
                    const Mark& mark) const {
    const std::string name = to_string(action);
    if (action.micro_batch < first)
      fail(
          fmt::format("{} has no gradient to take: the update before took those up to micro-batch {}", name, first - 1),
          {mark});
    for (int micro_batch = first; micro_batch <= action.micro_batch; ++micro_batch) {
      const auto pass = passes.find({action.chunk, micro_batch});
      const bool ended = pass != passes.end() && (pass->second.contains(ComputeKind::Backward) ||
                                                  pass->second.contains(ComputeKind::BackwardWeight));
      if (!ended)
        fail(fmt::format("{} comes before the backward of micro-batch {}, whose gradient it takes", name, micro_batch),
             {mark});
    }
    if (const auto later = begun.upper_bound({action.chunk, action.micro_batch});
        later != begun.end() && later->first == action.chunk)
      fail(fmt::format("{} comes after the backward of micro-batch {}, whose gradient it would take too", name,
                       later->second),
           {mark});
  }

  // All chunks or none update within the step, each after as many micro-batches and after the last.
  void check_updates() const {
    const ComputeAction* one = nullptr;  // any Update
    for (const auto& order : orders_)
      for (const ComputeAction& action : order)
        if (action.kind == ComputeKind::Update && one == nullptr) one = &action;
    if (one == nullptr) return;
    int micro_batches = 0;  // of every Update
    for (int chunk = 0; chunk < shape_.chunks(); ++chunk) {
      const int stage = placement_.stage_of_chunk[static_cast<std::size_t>(chunk)];
      const auto& order = orders_[static_cast<std::size_t>(stage)];
      int next = 0;
      for (std::size_t index = 0; index < order.size(); ++index) {
        if (order[index].kind != ComputeKind::Update || order[index].chunk != chunk) continue;
        const int taken = order[index].micro_batch + 1 - next;
        next = order[index].micro_batch + 1;
        if (micro_batches == 0) micro_batches = taken;
        if (taken != micro_batches)
          fail(fmt::format("{} takes the gradients of {} of the micro-batches, and another update those of {}; all "
                           "take equally many",
                           to_string(order[index]), taken, micro_batches),
               {{stage, index}});
      }
      if (next < shape_.micro_batches)
        fail(fmt::format("no update takes the gradient of B{}.{}, and there are updates, as {}", chunk, next,
                         to_string(*one)),
             {{stage, order.size()}});
    }
  }

  // `pass`: the earlier actions of the stage for the same chunk and micro-batch.
  void check_sequence(const std::vector<ComputeAction>& order, const ComputeAction& action, const Indices& pass,
                      const Mark& mark) const {
    const std::string name = to_string(action);
    const auto other = [&](ComputeKind kind) {
      ComputeAction same = action;
      same.kind = kind;
      return to_string(same);
    };
    if (pass.contains(action.kind)) fail(name + " is computed twice; compute it once", {mark});
    if (action.kind == ComputeKind::Forward) {
      if (!pass.empty())
        fail(to_string(order[pass.begin()->second]) + " comes before its forward " + name,
             {{mark.stage, pass.begin()->second}});
      return;
    }
    if (action.kind == ComputeKind::BackwardWeight) {
      if (pass.contains(ComputeKind::Backward))
        fail(name + " follows " + other(ComputeKind::Backward) + ", which already computes the weight gradients",
             {mark});
      if (!pass.contains(ComputeKind::BackwardInput))
        fail(name + " comes before " + other(ComputeKind::BackwardInput) + ", which it completes", {mark});
    } else {
      if (!pass.contains(ComputeKind::Forward))
        fail(name + " comes before its forward " + other(ComputeKind::Forward), {mark});
      const ComputeKind twin =
          action.kind == ComputeKind::Backward ? ComputeKind::BackwardInput : ComputeKind::Backward;
      if (pass.contains(twin))
        fail(name + " follows " + other(twin) + "; use one backward, either whole or split", {mark});
    }
    const ComputeAction& forward = order[pass.at(ComputeKind::Forward)];
    if (forward.weight_version != action.weight_version) {
      fail(name + " uses other weights than its forward " + to_string(forward) + "; the gradient would be wrong",
           {mark});
    }
  }

  void check_all_there(const Indices& pass, int chunk, int micro_batch, const Mark& end) const {
    const std::string which = format("{}.{}", chunk, micro_batch);
    if (!pass.contains(ComputeKind::Forward)) fail("F" + which + " is never computed", {end});
    if (pass.contains(ComputeKind::BackwardInput) && !pass.contains(ComputeKind::BackwardWeight)) {
      fail("W" + which + " is never computed, and I" + which + " computes only the input gradient", {end});
    }
    if (!pass.contains(ComputeKind::Backward) && !pass.contains(ComputeKind::BackwardInput)) {
      fail("B" + which + " is never computed", {end});
    }
  }

  void check_progress() const {
    const Timeline timeline = simulate(orders_, placement_, uniform_costs(shape_.chunks(), {}));
    if (timeline.complete()) return;
    std::vector<Mark> marks;
    std::string text = "the stages wait for each other for ever";
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const auto& blocked = timeline.blocked[static_cast<std::size_t>(stage)];
      if (!blocked) continue;
      text += fmt::format("{}stage {} with {} for {} of stage {}", marks.empty() ? ": " : ", ", stage,
                          to_string(blocked->waiting), to_string(blocked->needed), blocked->needed_stage);
      marks.push_back({stage, timeline.stages[static_cast<std::size_t>(stage)].size()});
    }
    fail(text, marks);
  }

  const std::string& scheduler_;
  const ComputeOrders& orders_;
  const Placement& placement_;
  const PipelineShape& shape_;
};

void check_stages_of_chunks(const std::string& prefix, const Placement& placement, const PipelineShape& shape) {
  std::vector<int> held(static_cast<std::size_t>(shape.stages), 0);
  for (std::size_t chunk = 0; chunk < placement.stage_of_chunk.size(); ++chunk) {
    const int stage = placement.stage_of_chunk[chunk];
    if (stage < 0 || stage >= shape.stages) {
      throw UserError("{}puts chunk {} on stage {}; the pipeline has stages 0 to {}", prefix, chunk, stage,
                      shape.stages - 1);
    }
    ++held[static_cast<std::size_t>(stage)];
  }
  for (std::size_t stage = 0; stage < held.size(); ++stage) {
    if (held[stage] != shape.chunks_per_stage) {
      throw UserError("{}puts {} on stage {}; every stage holds {}", prefix,
                      count(static_cast<std::size_t>(held[stage]), "chunk"), stage, shape.chunks_per_stage);
    }
  }
}

}  // namespace

void validate_placement(const std::string& scheduler, const Placement& placement, const PipelineShape& shape,
                        int layers) {
  const std::string prefix = scheduler + " ";
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  if (placement.stage_of_chunk.size() != chunks || placement.layers_of_chunk.size() != chunks) {
    throw UserError("{}gives stages for {} and layers for {}; the pipeline has {}", prefix,
                    count(placement.stage_of_chunk.size(), "chunk"), placement.layers_of_chunk.size(), chunks);
  }
  check_stages_of_chunks(prefix, placement, shape);
  int next = 0;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const auto [begin, end] = placement.layers_of_chunk[chunk];
    const std::string which = fmt::format("{}gives chunk {} the layers [{}, {})", prefix, chunk, begin, end);
    if (begin != next) throw UserError("{}; the next layer to place is {}", which, next);
    if (end <= begin) throw UserError("{}, which is empty; every chunk needs a layer", which);
    next = end;
  }
  if (next != layers) {
    throw UserError("{}places {}; the model has {}", prefix, count(static_cast<std::size_t>(next), "layer"), layers);
  }
}

void validate_orders(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
                     const PipelineShape& shape) {
  OrderCheck(scheduler, orders, placement, shape).run();
}

void validate_peak_live(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
                        const std::vector<std::optional<int>>& declared) {
  const auto chunks = static_cast<int>(placement.stage_of_chunk.size());
  const Timeline timeline = simulate(orders, placement, uniform_costs(chunks, {}));
  for (std::size_t stage = 0; stage < declared.size(); ++stage)
    if (declared[stage] && timeline.peak_live[stage] > *declared[stage])
      throw WrongOrders(scheduler + ", stage " + std::to_string(stage) + ": the order holds the activations of " +
                        std::to_string(timeline.peak_live[stage]) + " passes at once, and peak_live() declares " +
                        std::to_string(*declared[stage]));
}

}  // namespace strata::program
