// AdamW written for reading, with the mistakes that optimizers are written with.
#include <ATen/Context.h>
#include <strata/error.hpp>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION)                                                       \
  OPTION(numbers, betas, "[0.9, 0.999]", "min=0,max=1", "", "Decay of both moments.") \
  OPTION(number, epsilon, 1e-8, "min=0", "", "Added to the root.")                    \
  OPTION(number, weight_decay, 0.01, "min=0", "", "Decoupled.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

// What one step multiplies by.
struct Factors {
  double beta1 = 0.0;
  double decay = 1.0;
  double step_size = 0.0;
  double second_correction = 1.0;
};

class PlantedOptimizer final : public Optimizer {
 public:
  PlantedOptimizer(PluginContext& /*context*/, const PlantedOptions& options) : options_(options) {
    if (options.betas.size() != 2 || options.betas[0] >= 1.0 || options.betas[1] >= 1.0)
      throw UserError("optimizer planted: betas are two numbers below 1");
  }

  std::int64_t unit(const PieceInfo& piece) const override {
    return has("unit_of_the_piece") ? piece.end - piece.begin : 1;
  }

  bool takes_momentum() const override { return true; }

  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    if (has("state_named_by_piece")) return {{"exp_avg_" + std::to_string(piece.begin)}, {"exp_avg_sq"}};
    return {{"exp_avg"}, {"exp_avg_sq"}};
  }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    if (has("flushes_subnormals")) at::globalContext().setFlushDenormal(true);
    for (Piece* const piece : pieces) {
      const double own = piece->learning_rate_factor;
      if (has("rate_of_the_first_in_a_call")) piece->learning_rate_factor = pieces.front()->learning_rate_factor;
      step(*piece, scalars);
      piece->learning_rate_factor = own;
    }
  }

 private:
  void step(Piece& piece, const StepScalars& scalars) {
    const bool apply = scalars.apply.item<float>() != 0.0F;
    if (!apply && !has("updates_where_apply_is_0") && !has("moments_before_apply")) return;
    ++own_steps_;
    const at::Tensor master = piece.master.to(at::kFloat, false, true), gradient = unscaled(piece, scalars);
    if (has("leaves_out_pieces_with_infinity") && !gradient.isfinite().all().item<bool>()) return;
    const at::Tensor old = master.clone();
    update(piece, factors(piece, scalars), master, gradient, apply || has("updates_where_apply_is_0"));
    if (!apply && !has("updates_where_apply_is_0")) return;
    if (has("master_replaced"))
      piece.master = master;
    else
      piece.master.copy_(master);
    const bool twice = has("copy_by_the_gradients_format") && piece.gradient.element_size() == 2;
    if (piece.parameter.defined())
      write_copy(piece.parameter, has("copy_of_the_old_master") ? old
                                  : twice                       ? master.to(piece.gradient.scalar_type())
                                                                : master);
    if (has("padded_to_eight")) *(piece.master.mutable_data_ptr<float>() + (piece.master.numel() + 7) / 8 * 8) = 0.0F;
  }

  at::Tensor unscaled(const Piece& piece, const StepScalars& scalars) const {
    const at::Tensor gradient = piece.gradient.to(at::kFloat, false, true);
    gradient.mul_(scalars.gradient_factor);
    if (has("gradient_factor_twice")) gradient.mul_(scalars.gradient_factor);
    if (has("gradient_unscaled_in_place")) piece.gradient.mul_(scalars.gradient_factor);
    if (has("norm_of_the_piece")) gradient.div_(gradient.norm().add(1.0));
    if (has("uphill")) gradient.neg_();
    return gradient;
  }

  Factors factors(const Piece& piece, const StepScalars& scalars) {
    if (has("factors_of_the_first_piece") && known_for_ == scalars.updates) return known_;
    const double learning_rate =
        scalars.learning_rate * (has("learning_rate_factor_ignored") ? 1.0 : piece.learning_rate_factor);
    auto t = static_cast<double>(scalars.updates + 1);
    if (has("update_number_off_by_one")) t += 1.0;
    if (has("corrected_for_nine_updates") && t > 9.0) t = 1e9;
    if (has("counts_its_own_steps")) t = static_cast<double>(own_steps_);
    double weight_decay = piece.weight_decay.value_or(options_.weight_decay);
    if (has("decay_of_the_piece_ignored") || (has("own_decay_or_momentum") && scalars.momentum))
      weight_decay = options_.weight_decay;
    if (has("decay_of_0_taken_for_none") && weight_decay == 0.0) weight_decay = options_.weight_decay;
    Factors made;
    const double of_decay = has("decay_by_the_rate_of_all") ? scalars.learning_rate : learning_rate;
    made.decay = 1.0 - (has("decay_without_learning_rate") ? 0.001 : of_decay) * weight_decay;
    made.beta1 = has("scheduled_momentum_ignored") ? options_.betas[0] : scalars.momentum.value_or(options_.betas[0]);
    const double corrected = has("scheduled_momentum_not_corrected_for") ? options_.betas[0] : made.beta1;
    made.step_size = learning_rate / (1.0 - std::pow(corrected, t));
    if (!has("second_moment_uncorrected"))
      made.second_correction = 1.0 / std::sqrt(1.0 - std::pow(options_.betas[1], t));
    known_ = made;
    known_for_ = scalars.updates;
    return made;
  }

  void update(const Piece& piece, const Factors& factors, const at::Tensor& master, const at::Tensor& gradient,
              bool apply) {
    std::int64_t count = master.numel();
    if (has("tail_of_the_vector_loop_forgotten")) count = count / 8 * 8;
    if (has("updates_65536_elements")) count = std::min<std::int64_t>(count, 65536);
    if (has("last_of_whole_blocks") && count % 512 == 0) --count;
    at::Tensor& kept = members_[piece.info.parameter + std::to_string(piece.info.begin)];
    if (has("momentum_in_a_member") && !kept.defined()) kept = piece.state[0].clone();
    auto* const p = master.mutable_data_ptr<float>();
    const auto* const g_of = gradient.const_data_ptr<float>();
    auto* const m = (has("momentum_in_a_member") ? kept : piece.state[0]).mutable_data_ptr<float>();
    auto* const v = piece.state[1].mutable_data_ptr<float>();
    const bool narrow = has("squares_in_sixteen_bits") && piece.gradient.scalar_type() != at::kFloat;
    const auto rest1 = static_cast<float>(1.0 - factors.beta1), rest2 = static_cast<float>(1.0 - options_.betas[1]);
    const auto beta2 = static_cast<float>(options_.betas[1]), epsilon = static_cast<float>(options_.epsilon);
    const auto decay = static_cast<float>(factors.decay), step_size = static_cast<float>(factors.step_size);
    const auto correction = static_cast<float>(factors.second_correction);
    for (std::int64_t i = 0; i < count; ++i) {
      const float g = g_of[i];
      const float square = narrow ? static_cast<float>(c10::BFloat16(g * g)) : g * g;
      m[i] += rest1 * (g - m[i]);
      v[i] = beta2 * v[i] + rest2 * square;
      if (apply) p[i] = p[i] * decay - step_size * (m[i] / (std::sqrt(v[i]) * correction + epsilon));
    }
  }

  static void write_copy(const at::Tensor& parameter, const at::Tensor& master) {
    if (!has("copy_truncated") || parameter.scalar_type() != at::kBFloat16) {
      parameter.copy_(master);
      return;
    }
    const auto* const from = master.const_data_ptr<float>();
    auto* const to = parameter.mutable_data_ptr<at::BFloat16>();
    for (std::int64_t i = 0; i < master.numel(); ++i)
      to[i] = at::BFloat16(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(from[i]) >> 16),
                           at::BFloat16::from_bits());
  }

  PlantedOptions options_;
  std::int64_t own_steps_ = 0;
  std::int64_t known_for_ = -1;
  Factors known_;
  std::map<std::string, at::Tensor> members_;
};

}  // namespace

STRATA_PLUGIN(PlantedOptimizer, PlantedOptions, PLANTED_OPTIONS)
