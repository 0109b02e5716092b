// One forward, one backward, written for reading, with the mistakes that schedules are written with.
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION)                                \
  OPTION(integer, extra_warm_up, 0, "min=0,max=1", "forwards", \
         "Forwards that each stage computes ahead beside those it must.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

class PlantedScheduler final : public Scheduler {
 public:
  PlantedScheduler(PluginContext& context, const PlantedOptions& options) : rank_(context.rank()), options_(options) {}

  int chunks_per_stage(int stages, int layers) const override {
    return has("asks_for_no_chunk") ? 0 : has("asks_for_more_chunks_than_layers") ? layers / stages + 1 : 1;
  }

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    require_one_chunk(shape);
    const int count = static_cast<int>(layers.size());
    if (count < shape.stages && !has("too_few_layers_taken"))
      throw UserError(std::to_string(count) + " layers do not suffice for " + std::to_string(shape.stages) + " stages");
    Placement placement;
    int begin = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
      int end = begin + (count - begin) / (shape.stages - stage);
      if (!shape.layers_per_chunk.empty()) end = begin + shape.layers_per_chunk[static_cast<std::size_t>(stage)];
      if (has("given_layers_ignored")) end = begin + (count - begin) / (shape.stages - stage);
      if (has("last_layers_not_placed")) end = begin + count / shape.stages;
      if (has("heavy_layer_alone") && stage == 0 && layers.front().parameters > 0) end = begin + 2;
      placement.stage_of_chunk.push_back(stage);
      placement.layers_of_chunk.emplace_back(begin, end);
      begin = end;
    }
    return placement;
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    require_one_chunk(shape);
    if (has("searches_all_orders")) search(shape);
    std::vector<ComputeAction> order;
    const int warm_up = std::min(warm_up_of(shape, stage), shape.micro_batches);
    int forward = 0, backward = 0;
    while (forward < warm_up) order.push_back({ComputeKind::Forward, stage, forward++});
    while (forward < shape.micro_batches) {
      order.push_back({ComputeKind::Forward, stage, forward++});
      add_backward(order, stage, backward++);
    }
    while (backward < shape.micro_batches) add_backward(order, stage, backward++);
    if (updates()) add_updates(order, shape, stage);
    spoil(order, shape, stage);
    last_shape_ = shape;
    last_stage_ = stage;
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int stage) const override {
    const int warm_up = shape.stages - 1 - stage + static_cast<int>(options_.extra_warm_up);
    return std::min(warm_up + (has("holds_more_than_declared") ? 0 : 1), shape.micro_batches);
  }

 private:
  static void require_one_chunk(const PipelineShape& shape) {
    if (shape.chunks_per_stage != 1) throw UserError("this schedule runs one chunk per stage");
  }

  int warm_up_of(const PipelineShape& shape, int stage) const {
    int warm_up = shape.stages - 1 - stage + static_cast<int>(options_.extra_warm_up);
    if (has("remembers_the_last_shape") && last_shape_.stages > shape.stages) ++warm_up;
    if (has("depends_on_the_rank")) warm_up += rank_;
    if (has("depends_on_the_fifth_rank") && rank_ == 4 && stage == 0 && shape.stages > 2) --warm_up;
    if (has("depends_on_the_process") && stage == 0 && shape.stages == 4) warm_up -= static_cast<int>(::getpid() % 2);
    if (has("remembers_the_last_stage") && last_shape_.micro_batches == shape.micro_batches && last_stage_ > stage)
      ++warm_up;
    if (has("forwards_that_fit_a_backward") && !shape.chunk_costs.empty()) {
      const volatile std::int64_t fit =
          shape.cost_of(ComputeKind::Backward, stage) / shape.cost_of(ComputeKind::Forward, stage);
      if (fit < 0) ++warm_up;
    }
    if (has("ahead_where_it_costs_more") && stage == 0 && shape.stages > 1 && !shape.chunk_costs.empty() &&
        shape.chunk_costs[0].forward_time > shape.chunk_costs[1].forward_time)
      warm_up += 2;
    return warm_up;
  }

  static void add_backward(std::vector<ComputeAction>& order, int stage, int micro_batch) {
    if (has("splits_without_saying")) {
      order.push_back({ComputeKind::BackwardInput, stage, micro_batch});
      order.push_back({ComputeKind::BackwardWeight, stage, micro_batch});
    } else {
      order.push_back({ComputeKind::Backward, stage, micro_batch, has("newer_weights_backward") ? 1 : 0});
    }
  }

  static bool updates() {
    return has("newest_weights_in_every_backward") || has("forward_of_the_update_to_come") ||
           has("update_misses_a_micro_batch") || has("update_before_the_backward") || has("last_stage_never_updates");
  }

  // An update after every backward; each pass with the newest weights of its forward.
  static void add_updates(std::vector<ComputeAction>& order, const PipelineShape& shape, int stage) {
    const std::vector<ComputeAction> plain = std::exchange(order, {});
    if (has("last_stage_never_updates") && stage == shape.stages - 1) return void(order = plain);
    std::vector<int> version;  // by micro-batch
    int updates = 0;
    for (ComputeAction action : plain) {
      if (action.kind == ComputeKind::Forward) {
        version.push_back(updates + (has("forward_of_the_update_to_come") && shape.stages > 1 && stage == 0 ? 1 : 0));
        action.weight_version = version.back();
        order.push_back(action);
        continue;
      }
      const ComputeAction update{ComputeKind::Update, stage, action.micro_batch};
      if (has("newest_weights_in_every_backward"))
        action.weight_version = updates;
      else
        action.weight_version = version[static_cast<std::size_t>(action.micro_batch)];
      if (has("update_before_the_backward") && action.micro_batch == 2) {
        order.push_back(update);
        order.push_back(action);
      } else {
        order.push_back(action);
        if (has("update_misses_a_micro_batch") && action.micro_batch + 1 == shape.micro_batches) continue;
        order.push_back(update);
      }
      ++updates;
    }
  }

  // The last stage computes the forwards of 2 micro-batches before the first's backward, and the first stage waits for
  // that.
  void spoil(std::vector<ComputeAction>& order, const PipelineShape& shape, int stage) const {
    if (order.size() < 4) return;
    const auto first_backward = std::find_if(order.begin(), order.end(),
                                             [](const ComputeAction& a) { return a.kind == ComputeKind::Backward; });
    if (has("deadlock_at_three_stages") && shape.stages == 3 && stage == 0 && shape.micro_batches > 3)
      std::rotate(order.begin() + 1, first_backward, first_backward + 1);
    if (has("backward_before_the_forward_arrives") && stage == 1 && shape.stages > 1)
      std::swap(order.front(), *first_backward);
    if (has("last_backward_forgotten") && stage == shape.stages - 1) order.pop_back();
    if (has("wrong_at_eleven_stages") && shape.stages == 11 && stage == 0 && shape.micro_batches > 11)
      std::rotate(order.begin() + 1, first_backward, first_backward + 1);
    if (has("loses_the_33rd_micro_batch") && shape.micro_batches == 33) order.pop_back();
    if (has("first_forward_twice") && stage == 0) order.insert(order.begin() + 1, order.front());
    if (has("chunk_of_the_next_stage") && stage + 1 < shape.stages) order.back().chunk = stage + 1;
    if (has("one_micro_batch_too_many")) order.push_back({ComputeKind::Forward, stage, shape.micro_batches});
    if (has("depth_of_one_reverses") && options_.extra_warm_up == 1) std::reverse(order.begin(), order.end());
  }

  // As long as a search for what it could have worked out.
  static void search(const PipelineShape& shape) {
    const std::clock_t end = std::clock() + CLOCKS_PER_SEC / 20;
    while (shape.stages >= 16 && std::clock() < end) continue;
  }

  int rank_;
  PlantedOptions options_;
  mutable PipelineShape last_shape_;
  mutable int last_stage_ = 0;
};

}  // namespace

STRATA_PLUGIN(PlantedScheduler, PlantedOptions, PLANTED_OPTIONS)
