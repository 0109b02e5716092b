// Scheduler pipedream, one chunk per stage: 1F1B in which a stage updates its weights after every `n` backwards,
// without waiting for the other stages (PipeDream, Narayanan et al. 2019, arXiv:1806.03377, and PipeDream-2BW,
// arXiv:2006.09503). A backward uses the weights of its forward. Which they are, for micro-batch k of p stages:
//
// - stash: the newest that the stage has. Stage r keeps those of the p - r micro-batches that are under way.
// - vertical: on every stage those that were the newest at stage 0 when k entered.
// - 2bw: on every stage those that lack only the update before k's own, so that a stage keeps two versions:
//   W(t + 1) = W(t) - rate x gradient at W(t - 1).
//
// Weights are therefore old by as much as the pipeline is deep: training is another one than 1f1b's with the same
// updates. At the end of a step nothing is under way and every update is made. Inside it no stage waits; a step idles
// as long as 1f1b's, for all its updates once. The copies that a stage keeps count as gathered memory.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>
#include <string>

namespace {

using namespace strata;

#define PIPEDREAM_OPTIONS(OPTION)                                                                                     \
  OPTION(text, version, "stash", "one_of=stash|vertical|2bw", "",                                                     \
         "Weight version of a micro-batch. stash: the newest of each stage; vertical: on every stage, the version "   \
         "that was the newest on the first stage when the micro-batch entered; 2bw: on every stage, the version one " \
         "update old. Old weights raise the loss: in arXiv:2606.30634 a delay of one update harms AdamW, but hardly " \
         "Muon. Compare with 1f1b.")                                                                                  \
  OPTION(integer, micro_batches_per_update, 0, "min=0,max=1e9", "micro-batches",                                      \
         "Micro-batches per update, which uses their mean gradient; must divide train.accumulation. 0: the minimum, " \
         "which is the number of stages with 2bw, otherwise one.")
STRATA_OPTIONS(PipedreamOptions, PIPEDREAM_OPTIONS)

class Pipedream final : public Scheduler {
 public:
  Pipedream(PluginContext&, const PipedreamOptions& options) : options_(options) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    toolbox::require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    toolbox::require_one_chunk(shape);
    const int per_update = micro_batches_per_update(shape);
    std::vector<ComputeAction> order;
    std::vector<int> version;  // by micro-batch
    const auto forward = [&](int updates) {
      const auto micro_batch = static_cast<int>(version.size());
      if (options_.version == "vertical") updates = std::max(0, micro_batch - shape.stages + 1) / per_update;
      if (options_.version == "2bw") updates = std::max(0, micro_batch / per_update - 1);
      order.push_back({ComputeKind::Forward, stage, micro_batch, updates});
      version.push_back(updates);
    };
    const int warm_up = std::min(shape.stages - 1 - stage, shape.micro_batches);
    while (static_cast<int>(version.size()) < warm_up) forward(0);
    for (int backward = 0; backward < shape.micro_batches; ++backward) {
      if (static_cast<int>(version.size()) < shape.micro_batches) forward(backward / per_update);
      order.push_back({ComputeKind::Backward, stage, backward, version[static_cast<std::size_t>(backward)]});
      if ((backward + 1) % per_update == 0) order.push_back({ComputeKind::Update, stage, backward});
    }
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int stage) const override {
    return std::min(shape.stages - stage, shape.micro_batches);
  }

 private:
  int micro_batches_per_update(const PipelineShape& shape) const {
    const bool two_buffers = options_.version == "2bw";
    const auto given = static_cast<int>(options_.micro_batches_per_update);
    const int number = given > 0 ? given : two_buffers ? shape.stages : 1;
    const std::string found = format("micro_batches_per_update is {}", number);
    if (two_buffers && number < shape.stages)
      throw UserError(
          "{} and version is 2bw, which needs at least {}, the number of stages; raise micro_batches_per_update or "
          "leave it out",
          found, shape.stages);
    if (shape.micro_batches % number != 0)
      throw UserError(
          "{}{} and does not divide the {} micro-batches of a step; change micro_batches_per_update or "
          "train.accumulation",
          found, given > 0 ? "" : ", the number of stages,", shape.micro_batches);
    return number;
  }

  PipedreamOptions options_;
};

}  // namespace

STRATA_PLUGIN(Pipedream, PipedreamOptions, PIPEDREAM_OPTIONS)
