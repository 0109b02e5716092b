#include "optimizer/checks.hpp"
#include "optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

// What write_trained() makes of the parameter's master and state, in pieces cut at the borders.
ParameterTensors written_anew(const Optimizer& optimizer, const ParameterTensors& parameter,
                              const std::vector<std::int64_t>& borders) {
  ParameterTensors anew = parameter.clone();
  anew.copy.fill_(77.0);
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    Piece piece = anew.piece(borders[i], borders[i + 1]);
    piece.gradient = at::Tensor();
    optimizer.write_trained(piece);
  }
  return anew;
}

}  // namespace

void trained_weights(Subject& subject) {
  if (!subject.make<Optimizer>()->trains_elsewhere()) throw Skip("trains_elsewhere() is false");
  std::mt19937_64 random = subject.random("optimizer.trained_weights");
  for (const fakes::OptionTexts& options : settings_of(subject))
    for (const Formats& formats :
         {Formats{}, {.copy = at::kBFloat16}, {.copy = at::kHalf}, {at::kBFloat16, at::kFloat, at::kBFloat16}})
      with_optimizer(subject, options, [&](Optimizer& optimizer) {
        const ParameterTensors parameter = make_parameter(optimizer, "layer.weight", {29, 53}, formats, random);
        const std::int64_t elements = parameter.elements(), unit = optimizer.unit(parameter.whole().info);
        const std::vector<std::int64_t> cut =
            unit < elements ? std::vector<std::int64_t>{0, unit, elements} : std::vector<std::int64_t>{0, elements};
        ParameterTensors rounded = parameter.clone();
        rounded.copy = parameter.master.to(parameter.copy.scalar_type());
        std::string found = difference(parameter, rounded);
        require(found.empty(), "write_trained() with a state of zeros, and the rounded master: " + found +
                                   with_options(options) +
                                   "; before the first update layers train at the initial weights");
        for (int t = 0; t < 4; ++t) {
          parameter.gradient.copy_(draw_gradient(elements, random));
          Piece piece = parameter.whole();
          fakes::update(optimizer, piece, scalars_of(0.01, t));
          for (const std::vector<std::int64_t>& borders : {std::vector<std::int64_t>{0, elements}, cut}) {
            found = difference(parameter, written_anew(optimizer, parameter, borders));
            require(found.empty(), "after step " + std::to_string(t + 1) + ", and after write_trained(): " + found +
                                       with_options(options) +
                                       "; an evaluation and a resume must leave the weights that the step wrote");
          }
        }
      });
}

}  // namespace strata::conformance::optimizer_checks
