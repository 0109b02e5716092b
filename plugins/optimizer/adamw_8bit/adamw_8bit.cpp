// Optimizer adamw_8bit: AdamW whose moments take 2.03 bytes a parameter instead of 8. Tensors of fewer than 4096
// elements keep theirs in fp32, as in bitsandbytes.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/element_pass.hpp>

#include "adamw_8bit_step.hpp"
#include "dynamic_map.hpp"

namespace {

using namespace strata;
using adamw_8bit::block_elements;

#define ADAMW_8BIT_OPTIONS(OPTION)                                                             \
  OPTION(numbers, betas, "[0.9, 0.999]", "min=0,max=1", "",                                    \
         "Decay rates of the first and second moment; both below 1.")                          \
  OPTION(number, epsilon, 1e-8, "min=0", "", "Added to the square root of the second moment.") \
  OPTION(number, weight_decay, 0.01, "min=0", "",                                              \
         "Decoupled weight decay: each step multiplies parameters by 1 - learning rate x this.")
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
    check_betas("adamw_8bit", options.betas);
    hyperparameters_ = {options.betas[0], options.betas[1], options.epsilon, options.weight_decay};
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
        adamw_8bit::blocks_reference_step(*piece, scalars, hyperparameters_);
    }
    if (!blocks.empty()) adamw_8bit::blocks_step(blocks, scalars, hyperparameters_);
    adamw::step(elements, scalars, hyperparameters_);
  }

 private:
  adamw::AdamwHyperparameters hyperparameters_;
};

}  // namespace

STRATA_PLUGIN(Adamw8bit, Adamw8bitOptions, ADAMW_8BIT_OPTIONS)
