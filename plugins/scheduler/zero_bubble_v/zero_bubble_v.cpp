// Scheduler zero_bubble_v, after Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv:2405.15362).
// Two chunks a stage in a V: of p stages, stage r holds chunks r and 2p - 1 - r, so that the last chunk ends where the
// first began. A backward is split: F forward, I the gradient of the input, W that of the weights. Two orders are
// tried, and the one that ends first by the chunks' costs is taken. The paper's idles for (p - 1) I of a chunk where
// all cost the same, I is at least F and at most 2 W, and there are at least 2p - 1 micro-batches. The other, a greedy
// one, is for other costs and fewer micro-batches. A stage holds the activations of at most 2p passes.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>
#include <strata/toolbox/step_by_clock.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace {

using namespace strata;
using enum ComputeKind;
using Order = std::vector<ComputeAction>;

STRATA_NO_OPTIONS(NoOptions)

// Stage r's in the paper: n micro-batches, without those beyond the step's.
Order order_of_paper(const PipelineShape& shape, int r) {
  const int p = shape.stages, n = std::max(2 * p - 1, shape.micro_batches), down = r, up = 2 * p - 1 - r;
  Order order;
  std::map<std::pair<ComputeKind, int>, int> count;
  const auto add = [&](int times, std::initializer_list<std::pair<ComputeKind, int>> passes) {
    for (int i = 0; i < times; ++i)
      for (const auto& [kind, chunk] : passes)
        if (const int number = count[{kind, chunk}]++; number < shape.micro_batches)
          order.push_back({kind, chunk, number});
  };
  add(2 * (p - r) - 1, {{Forward, down}});
  add(r, {{Forward, up}, {Forward, down}});
  add(p - r, {{Forward, up}, {BackwardInput, up}, {BackwardWeight, up}});
  while (count[{Forward, up}] < n) {
    add(count[{Forward, down}] < n ? 1 : 0, {{Forward, down}});
    add(1, {{BackwardInput, down}, {BackwardWeight, down}, {Forward, up}, {BackwardInput, up}, {BackwardWeight, up}});
  }
  add(r, {{BackwardInput, down}, {BackwardInput, up}});
  add(p - r, {{BackwardInput, down}, {BackwardWeight, down}});
  add(n - count[{BackwardWeight, up}], {{BackwardWeight, up}});
  add(n - count[{BackwardWeight, down}], {{BackwardWeight, down}});
  return order;
}

class ZeroBubbleV final : public Scheduler {
 public:
  ZeroBubbleV(PluginContext&, const NoOptions&) {}

  int chunks_per_stage(int /*stages*/, int /*layers*/) const override { return 2; }

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_a_v(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    toolbox::require_two_chunks(shape);
    const std::vector<int> stages = toolbox::stages_of_a_v(shape.stages);
    std::vector<Order> known;
    for (int r = 0; r < shape.stages; ++r) known.push_back(order_of_paper(shape, r));
    toolbox::StepByClock paper(shape, stages), greedy(shape, stages);
    paper.run([&](int r, const auto& take) {
      const Order& all = known[static_cast<std::size_t>(r)];
      if (paper.order(r).size() < all.size()) take(all[paper.order(r).size()]);
    });
    greedy.run([&](int r, const auto& take) {
      const int up = shape.chunks() - 1 - r;
      for (const ComputeKind kind : {BackwardInput, Forward, BackwardWeight})  // what others wait for comes first
        for (const int chunk : {up, r})
          if (const int next = greedy.done(kind, chunk); next < shape.micro_batches)
            if (kind != Forward || next - greedy.done(BackwardWeight, chunk) < shape.chunks() - chunk - (chunk == r))
              take({kind, chunk, next});
    });
    return paper.end() <= greedy.end() ? known[static_cast<std::size_t>(stage)] : greedy.order(stage);
  }

  std::optional<int> peak_live(const PipelineShape& shape, int /*stage*/) const override {
    return 2 * std::min(shape.stages, shape.micro_batches);
  }
};

}  // namespace

STRATA_PLUGIN(ZeroBubbleV, NoOptions)
