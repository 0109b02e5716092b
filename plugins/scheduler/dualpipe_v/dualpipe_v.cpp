// Scheduler dualpipe_v: the V-shaped half of DualPipe (DeepSeek-AI 2024, arXiv:2412.19437), which needs one copy of the
// parameters. Two chunks a stage in a V: of p stages, stage r holds chunks r and 2p - 1 - r. In the middle of a step a
// forward of one chunk is followed by a backward of the other, so that the transfers of one hide behind the other's
// compute. F forward, I the gradient of the input, W that of the weights: where all chunks cost the same and I is F,
// each stage idles for (p - 1)(2F - W) of a chunk. It holds at most 2p + 1 passes. A step needs at least 2p
// micro-batches.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <deque>
#include <map>
#include <string>

namespace {

using namespace strata;
using enum ComputeKind;

STRATA_NO_OPTIONS(NoOptions)

class DualPipeV final : public Scheduler {
 public:
  DualPipeV(PluginContext&, const NoOptions&) {}

  int chunks_per_stage(int /*stages*/, int /*layers*/) const override { return 2; }

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_a_v(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    toolbox::require_two_chunks(shape);
    const int p = shape.stages, before = p - 1 - stage, after = stage + 1, down = stage, up = 2 * p - 1 - stage;
    if (shape.micro_batches < 2 * p)
      throw UserError(
          "this schedule needs two micro-batches per stage, {} for {} stages, and train.accumulation is {}; raise it, "
          "or use scheduler zero_bubble_v",
          2 * p, p, shape.micro_batches);
    std::vector<ComputeAction> order;
    std::map<int, int> forwards, backwards;
    std::deque<ComputeAction> weights;  // put off
    const auto forward = [&](int chunk) { order.push_back({Forward, chunk, forwards[chunk]++}); };
    const auto backward = [&](int chunk, bool split = false) {
      const int number = backwards[chunk]++;
      order.push_back({split ? BackwardInput : Backward, chunk, number});
      if (split) weights.push_back({BackwardWeight, chunk, number});
    };
    const auto weight = [&] {
      if (weights.empty()) return;
      order.push_back(weights.front());
      weights.pop_front();
    };
    for (int i = 0; i < 2 * before; ++i) forward(down);
    for (int i = 0; i < after; ++i) forward(down), forward(up);
    for (int i = 0; i < before; ++i) backward(up, true), weight(), forward(up);
    for (int i = 0; i < shape.micro_batches - 2 * p + after; ++i)
      forward(down), backward(up), forward(up), backward(down);
    for (int i = 0; i < before; ++i) backward(up), forward(up), backward(down);
    for (int i = 0; i < after; ++i) {  // from halfway on the weights wait
      backward(up, i > after / 2 || (i == after / 2 && stage % 2 == 1));
      backward(down, i >= after / 2);
    }
    for (int i = 0; i < before; ++i) weight(), backward(down, true);
    while (!weights.empty()) weight();
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int /*stage*/) const override {
    return 2 * shape.stages + 1;
  }
};

}  // namespace

STRATA_PLUGIN(DualPipeV, NoOptions)
