// Drawn models and batches.
#include <strata/error.hpp>

#include <algorithm>
#include <optional>
#include <set>

#include "conformance/drawn/search.hpp"
#include "conformance/model/checks.hpp"

namespace strata::conformance::model_checks {

namespace {

struct Check {
  const char* what;
  void (*run)(const ModelWorld&);
};
constexpr Check checks[] = {{"layers run alike again", forward_repeats},
                            {"the loss of parts", loss_is_a_sum},
                            {"gradients and slopes", gradients_match_finite_differences},
                            {"gradients of each sample", gradients_are_sums},
                            {"later tokens", sees_no_future},
                            {"logits", logits_say_the_loss},
                            {"auxiliary losses of parts", auxiliary_loss_is_a_sum},
                            {"auxiliary losses of parts", auxiliary_loss_is_a_sum},  // few options give any
                            {"statistics of parts", statistics_combine},
                            {"the seed of backward", loss_seed_scales_gradients},
                            {"what describe() says", outputs_as_described},
                            {"parameters", parameters_as_described},
                            {"parameters", parameters_as_described},
                            {"parts of tensor-parallel ranks", tensor_parts_agree},
                            {"layers built alone", layers_stand_alone},
                            {"evaluation", evaluation_is_deterministic},
                            {"what forward() may write", inputs_not_written}};

// The small options with other sizes, and any of those that are no size.
fakes::OptionTexts draw_options(Subject& subject, const fakes::OptionTexts& small, Draws& draws) {
  fakes::OptionTexts options = small;
  std::vector<OptionSpec> others;
  for (OptionSpec option : subject.manifest().options) {
    const bool is_size = option.type == "integer" || option.type == "size";
    if (is_size || option.name == "preset") continue;
    option.minimum = option.maximum = "";  // at its limits a number may divide by 0, as an epsilon of 0 does
    others.push_back(option);
  }
  for (auto& [name, text] : options) {
    if (name == "preset" || !draws.chance(3)) continue;
    const bool is_vocabulary = name.starts_with("vocab");
    text = std::to_string(is_vocabulary     ? 1 + draws.size(300)
                          : draws.chance(2) ? draws.between(1, 4)
                                            : 16 * draws.between(1, 5));
  }
  const fakes::OptionTexts changed = draws.options(others);
  options.insert(options.end(), changed.begin(), changed.end());  // the later of two values counts
  return options;
}

}  // namespace

void drawn(Subject& subject) {
  const fakes::OptionTexts small = small_options(subject);
  search(subject, "model.drawn", 300, [&](Subject& of, Draws& draws, const Tell& tell) {
    const Check& check = checks[draws.between(0, std::ssize(checks) - 1)];
    const fakes::OptionTexts options = draw_options(of, small, draws);
    std::optional<fakes::LoadedPlugin<Model>> model;
    try {
      model.emplace(of.make<Model>(options));
      if (count_parameters(**model) > 300'000) return false;
    } catch (const UserError&) {
      return false;  // it takes other options
    }
    const std::int64_t longest =
        std::min<std::int64_t>((*model)->maximum_sequence_length(), draws.chance(6) ? 520 : 70);
    ModelWorld world{of, options, *model, {draws.between(1, 4), draws.size(longest), at::kFloat}, 1, draws};
    world.seed += static_cast<std::uint64_t>(draws.between(0, 1000));
    tell(std::string(check.what) + " of a model with " + to_string(options) + " and a batch of " +
         std::to_string(world.shape.micro_batch) + " x " + std::to_string(world.shape.sequence_length));
    check.run(world);
    return true;
  });
}

}  // namespace strata::conformance::model_checks
