// Optimizer adamw_8bit: AdamW whose moments take 2.03 bytes a parameter instead of 8. Tensors of fewer than 4096
// elements keep theirs in fp32, as in bitsandbytes.
#include <ATen/ops/empty.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/run_context.hpp>
#include <strata/toolbox/element_pass.hpp>

#include <optional>

#include "adamw_8bit_step.hpp"
#include "dynamic_map.hpp"

namespace {

using namespace strata;
using adamw_8bit::block_elements;
using adamw_8bit::DeviceMaps;

#define ADAMW_8BIT_OPTIONS(OPTION) \
  STRATA_MOMENT_OPTIONS(OPTION)    \
  STRATA_DECAY_OPTION(OPTION, 0.01)
STRATA_OPTIONS(Adamw8bitOptions, ADAMW_8BIT_OPTIONS)

constexpr std::int64_t fewest_elements = 4096;  // of a parameter with 8-bit moments

bool has_blocks(const PieceInfo& piece) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : piece.shape) elements *= extent;
  return elements >= fewest_elements;
}

class Adamw8bit final : public Optimizer {
 public:
  Adamw8bit(PluginContext& /*context*/, const Adamw8bitOptions& options) {
    hyperparameters_ = adam_hyperparameters("adamw_8bit", options);
  }

  void run_begins(RunContext& run) override {
    maps_.emplace(run.store().allocate(Category::Staging, Tier::Device, "adamw_8bit: numbers of the moments",
                                       DeviceMaps::elements, at::kFloat));
  }

  std::int64_t unit(const PieceInfo& piece) const override { return has_blocks(piece) ? block_elements : 1; }

  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    if (!has_blocks(piece)) return {{"exp_avg"}, {"exp_avg_sq"}};
    return {{"exp_avg", at::kByte},
            {.name = "exp_avg_scale", .block = block_elements},
            {"exp_avg_sq", at::kByte},
            {.name = "exp_avg_sq_scale", .block = block_elements}};
  }

  bool takes_momentum() const override { return true; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    std::vector<Piece*> blocks, elements;
    for (Piece* const piece : pieces) {
      if (piece->master.is_meta()) continue;  // a dry run counts no working memory
      if (!has_blocks(piece->info))
        elements.push_back(piece);
      else if (takes_element_pass(*piece))
        blocks.push_back(piece);
      else
        adamw_8bit::blocks_reference_step(*piece, scalars, hyperparameters_, maps_on(piece->master.device()));
    }
    if (!blocks.empty()) adamw_8bit::blocks_step(blocks, scalars, hyperparameters_);
    adamw::step(elements, scalars, hyperparameters_);
  }

 private:
  DeviceMaps maps_on(at::Device device) const {
    if (maps_ && maps_->device() == device) return *maps_;
    return DeviceMaps(at::empty({DeviceMaps::elements}, at::TensorOptions().dtype(at::kFloat).device(device)));
  }

  adamw::AdamwHyperparameters hyperparameters_;
  std::optional<DeviceMaps> maps_;  // on the run's device
};

}  // namespace

STRATA_PLUGIN(Adamw8bit, Adamw8bitOptions, ADAMW_8BIT_OPTIONS)
