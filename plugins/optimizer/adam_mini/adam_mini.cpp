// Optimizer adam_mini: Adam-mini (Zhang et al., arXiv:2406.16793), version 1.1 of the authors' program. The second
// moment of a block of rows is one number, that of its mean squared gradient: a block is a head of q or of k, and a row
// of everything else with rows (v, the projections, MLPs, embedding and head). Biases and norms have Adam's. With
// g = gradient x gradient_factor and t = updates + 1:
//
//   m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) (mean of g^2 over the block)
//   p = p (1 - lr weight_decay) - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
//
// A piece does not know the model's head size: the option head_size gives it. Without it q and k have a number per row
// too, which is finer than the paper, and right for any model. A weight of three stacked matrices is q, k and v; where
// these lie apart, q and k are found by name.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/adam_formula.hpp>
#include <strata/toolbox/idle_option.hpp>
#include <strata/toolbox/row_blocks.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>

#include "head_blocks.hpp"

namespace {

using namespace strata;
using adam_mini::RowGroups;

#define ADAM_MINI_OPTIONS(OPTION)                                                                                   \
  STRATA_MOMENT_OPTIONS(OPTION)                                                                                     \
  STRATA_DECAY_OPTION(OPTION, 0.0)                                                                                  \
  OPTION(integer, head_size, 0, "min=0", "rows",                                                                    \
         "Rows per attention head. The rows of a head share one second moment in q and k, as in the paper. 0: one " \
         "second moment per row.")                                                                                  \
  OPTION(text, query_key, "*.q_proj.weight *.k_proj.weight", "", "",                                                \
         "Patterns (* and ?), separated by spaces, for the names of weights that hold only q heads or only k heads.")
STRATA_OPTIONS(AdamMiniOptions, ADAM_MINI_OPTIONS)

struct Factors {
  float rest1, decay;

  // `step`: the row's lr / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + epsilon).
  template <typename Number>
  void operator()(Number& p, const Number& g, Number& m, const Number& step) const {
    m = m + rest1 * (g - m);
    p = p * decay - step * m;
  }
};

STRATA_VECTOR_CLONES void update_row(float* __restrict__ p, const float* __restrict__ gradient, float* __restrict__ m,
                                     std::int64_t count, float gradient_factor, const Factors& given, float step) {
  const Factors factors = given;
  for (std::int64_t i = 0; i < count; ++i) factors(p[i], gradient[i] * gradient_factor, m[i], step);
}

STRATA_VECTOR_CLONES void multiply(const float* __restrict__ numbers, std::int64_t count, float factor,
                                   float* __restrict__ products) {
  for (std::int64_t i = 0; i < count; ++i) products[i] = numbers[i] * factor;
}

STRATA_UPDATE_CLONES [[gnu::flatten]] void update_elements_of(const ElementTile& tile, float gradient_factor,
                                                              const AdamFormula<true>& formula) {
  update_elements(tile, gradient_factor, formula);
}

struct Rows {
  std::int64_t columns;
  std::int64_t rows;

  explicit Rows(const std::vector<std::int64_t>& shape) : columns(shape.back()), rows(1) {
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  }

  // Calls visit(row, offset, count) for the part of each row that lies in elements [begin, begin + count) of the
  // piece; the offset is from `begin`. A tensor-parallel rank's padding is left out.
  template <typename Visit>
  void for_each(const PieceInfo& piece, std::int64_t begin, std::int64_t count, const Visit& visit) const {
    for (std::int64_t offset = 0; offset < count;) {
      const std::int64_t in_part = piece.begin + begin + offset, at = piece.places.of(in_part);
      const std::int64_t length = std::min({columns - at % columns, piece.places.neighbours(in_part), count - offset});
      if (at / columns >= rows) return;
      visit(at / columns, offset, length);
      offset += length;
    }
  }

  // At least as many as it visits of a tile of measured_tile elements.
  std::int64_t most_in_tile(const PieceInfo& piece) const {
    const std::int64_t runs = piece.places.length > 0 ? measured_tile / piece.places.length : 0;
    return measured_tile / columns + runs + 3;
  }
};

bool has_rows(const PieceInfo& piece) {
  return piece.shape.size() > 1;
}

class AdamMini final : public Optimizer {
 public:
  AdamMini(PluginContext& context, const AdamMiniOptions& options)
      : head_size_(options.head_size), query_key_(options.query_key) {
    hyperparameters_ = adam_hyperparameters("adam_mini", options);
    if (options.head_size == 0)
      toolbox::check_idle(context.plugin_name(), "query_key", options.query_key, AdamMiniOptions().query_key,
                          "head_size");
  }

  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    if (!has_rows(piece)) return {{"m"}, {"v"}};
    return {{"m"}, {"v", at::kFloat, groups_of(piece).blocks()}};
  }

  bool takes_momentum() const override { return true; }

  std::int64_t sums(const PieceInfo& piece, int /*round*/) const override {
    return has_rows(piece) ? groups_of(piece).blocks() : 0;  // of g^2
  }

  void measure(const Piece& part, int /*round*/, const StepScalars& scalars) override {
    const Rows rows(part.info.shape);
    const at::Tensor squares = at::zeros({rows.rows}, part.sums.options());
    if (takes_element_pass(part))
      measure_tiles(part, rows, scalars.gradient_factor.item<float>(), squares.mutable_data_ptr<double>());
    else
      for (const RowBlock& block : row_blocks(part.info, rows.columns, rows.rows))
        squares.narrow(0, block.row, block.rows)
            .add_((block.of(part.gradient).to(at::kFloat) * scalars.gradient_factor.to(squares.device()))
                      .square()
                      .sum(1, /*keepdim=*/false, at::kDouble));
    part.sums.add_(groups_of(part.info).sum(squares));
  }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    std::vector<Piece*> with_rows, without;
    for (Piece* const piece : pieces)
      if (!piece->master.is_meta())  // in place: a dry run has nothing to count
        (has_rows(piece->info) ? with_rows : without).push_back(piece);
    element_step<AdamFormula<true>>(
        without, scalars, [&](const Piece& piece) { return AdamFormula<true>(piece, scalars, hyperparameters_); },
        update_elements_of);
    step_rows(with_rows, scalars);
  }

 private:
  RowGroups groups_of(const PieceInfo& piece) const { return {piece, Rows(piece.shape).rows, head_size_, query_key_}; }

  // Sums within a tile, of each row in it, and then over tiles in their order.
  static void measure_tiles(const Piece& part, const Rows& rows, float gradient_factor, double* squares) {
    const std::int64_t most = rows.most_in_tile(part.info);
    const std::int64_t tiles = (part.master.numel() + measured_tile - 1) / measured_tile;
    std::vector<double> sums(static_cast<std::size_t>(tiles * most));
    element_measure(part, [&](const ElementTile& tile) {
      float g[measured_tile];
      multiply(tile.gradient, tile.count, gradient_factor, g);
      double* sum = sums.data() + tile.begin / measured_tile * most;
      rows.for_each(part.info, tile.begin, tile.count, [&](std::int64_t, std::int64_t offset, std::int64_t count) {
        *sum++ = sum_of_squares(g + offset, count);
      });
    });
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t begin = tile * measured_tile;
      const double* sum = sums.data() + tile * most;
      rows.for_each(part.info, begin, std::min(measured_tile, part.master.numel() - begin),
                    [&](std::int64_t row, std::int64_t, std::int64_t) { squares[row] += *sum++; });
    }
  }

  void step_rows(std::span<Piece* const> pieces, const StepScalars& scalars) const {
    std::vector<Piece> streams;  // the pieces in host memory, m their only state
    std::vector<Factors> factors;
    std::vector<at::Tensor> steps;  // of rows
    for (Piece* const piece : pieces) {
      const AdamFactors numbers(*piece, scalars, hyperparameters_);
      const Factors of_piece{static_cast<float>(1.0 - numbers.beta1), static_cast<float>(numbers.decay)};
      const at::Tensor v = second_moments(*piece);
      const at::Tensor denominator = v.sqrt() * numbers.second_correction + hyperparameters_.epsilon;
      const at::Tensor step = groups_of(piece->info).expand(denominator.reciprocal() * numbers.step_size);
      write_applied(piece->state[1], v, scalars);
      if (takes_element_pass(*piece)) {
        streams.push_back(*piece);
        streams.back().state.pop_back();
        factors.push_back(of_piece);
        steps.push_back(step.contiguous());
      } else {
        update_blocks(*piece, scalars, of_piece, step);
      }
    }
    if (streams.empty() || scalars.apply.item<float>() == 0.0F) return;
    std::vector<Piece*> streamed;
    for (Piece& piece : streams) streamed.push_back(&piece);
    const float gradient_factor = scalars.gradient_factor.item<float>();
    element_pass(streamed, scalars, [&](std::size_t index, const ElementTile& tile) {
      const PieceInfo& info = streams[index].info;
      const float* const step = steps[index].const_data_ptr<float>();
      Rows(info.shape)
          .for_each(info, tile.begin, tile.count, [&](std::int64_t row, std::int64_t offset, std::int64_t count) {
            update_row(tile.master + offset, tile.gradient + offset, tile.state[0] + offset, count, gradient_factor,
                       factors[index], step[row]);
          });
    });
  }

  // [blocks], after this update.
  at::Tensor second_moments(const Piece& piece) const {
    const Rows rows(piece.info.shape);
    const at::Tensor elements = groups_of(piece.info).sum(at::full({rows.rows}, rows.columns, piece.sums.options()));
    const at::Tensor mean = (piece.sums / elements).to(at::kFloat);
    return piece.state[1] * hyperparameters_.beta2 + mean * (1.0 - hyperparameters_.beta2);
  }

  void update_blocks(const Piece& piece, const StepScalars& scalars, const Factors& factors,
                     const at::Tensor& step) const {
    const Rows rows(piece.info.shape);
    for (const RowBlock& block : row_blocks(piece.info, rows.columns, rows.rows)) {
      const at::Tensor first = block.of(piece.state[0]);
      at::Tensor p = block.of(piece.master).to(at::kFloat), m = first.to(at::kFloat);
      const at::Tensor g = block.of(piece.gradient).to(at::kFloat) * scalars.gradient_factor.to(p.device());
      factors(p, g, m, step.narrow(0, block.row, block.rows).unsqueeze(1));
      write_applied(first, m, scalars);
      write_weights(piece, block.offset, p, scalars);
    }
  }

  std::int64_t head_size_;
  std::string query_key_;
  AdamHyperparameters hyperparameters_;
};

}  // namespace

STRATA_PLUGIN(AdamMini, AdamMiniOptions, ADAM_MINI_OPTIONS)
