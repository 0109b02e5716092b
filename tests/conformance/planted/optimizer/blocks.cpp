// Signed descent by blocks of 64 elements: each moves along its gradient divided by the block's largest, averaged over
// steps. A state of one number a block, and the mistakes that such are written with.
#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

constexpr std::int64_t block = 64;

#define PLANTED_OPTIONS(OPTION) OPTION(number, decay, 0.9, "min=0,max=1", "", "Decay of the blocks' largest gradients.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

class PlantedBlocks final : public Optimizer {
 public:
  PlantedBlocks(PluginContext& /*context*/, const PlantedOptions& options) : decay_(options.decay) {}

  std::int64_t unit(const PieceInfo&) const override {
    return has("unit_no_multiple_of_the_block") ? block / 2 : block;
  }

  std::vector<StateTensor> state(const PieceInfo&) const override { return {{.name = "largest", .block = block}}; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    for (Piece* const piece : pieces) {
      if (scalars.apply.item<float>() == 0.0F) return;
      const std::int64_t elements = piece->master.numel();
      std::int64_t length = block;
      if (has("blocks_of_the_piece")) length = std::max<std::int64_t>(elements / piece->state[0].numel(), 1);
      for (std::int64_t number = 0; number < piece->state[0].numel(); ++number) {
        const std::int64_t begin = std::min(number * length, elements);
        const std::int64_t count = has("last_block_forgotten") ? length : std::min(length, elements - begin);
        if (count > 0) update(*piece, number, begin, count, scalars);
      }
    }
  }

 private:
  // By pointers: nothing else says when a block ends behind the piece.
  void update(Piece& piece, std::int64_t number, std::int64_t begin, std::int64_t count, const StepScalars& scalars) {
    const at::Tensor gradient = piece.gradient.to(at::kFloat) * scalars.gradient_factor;
    const auto* const g = gradient.const_data_ptr<float>() + begin;
    const std::int64_t known = std::min(count, piece.master.numel() - begin);
    float most = 0.0F;
    for (std::int64_t i = 0; i < known; ++i) most = std::max(most, std::abs(g[i]));
    float& largest = piece.state[0].mutable_data_ptr<float>()[number];
    largest = static_cast<float>(decay_) * largest + static_cast<float>(1.0 - decay_) * most;
    const auto rate = static_cast<float>(scalars.learning_rate * piece.learning_rate_factor);
    const at::Tensor master = piece.master.narrow(0, begin, known);
    const at::Tensor updated = master.to(at::kFloat) - gradient.narrow(0, begin, known) * (rate / (largest + 1e-12F));
    master.copy_(updated);
    if (piece.parameter.defined()) piece.parameter.narrow(0, begin, known).copy_(updated);
    if (known < count)
      *(static_cast<char*>(piece.master.mutable_data_ptr()) + piece.master.nbytes()) = 0;  // the block's rest
  }

  double decay_;
};

}  // namespace

STRATA_PLUGIN(PlantedBlocks, PlantedOptions, PLANTED_OPTIONS)
