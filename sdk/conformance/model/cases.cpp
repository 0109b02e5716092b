#include "conformance/model/checks.hpp"

namespace strata::conformance {

using namespace model_checks;

std::vector<Case> model_cases() {
  return {
      {"model.drawn",
       "With any sizes and options, on any batch: describe() says what build() makes and allocates nothing, also on "
       "meta tensors; layers depend on their inputs alone and write none; statistics are sums or maxima over samples; "
       "losses, auxiliary losses and gradients are "
       "sums over tokens and samples that see no later token, match the logits and finite differences, and grow with "
       "the seed of backward.",
       drawn, std::chrono::seconds(300), true},
      {"model.linear_only", "A parameter that says linear_only gets its gradient from ModelContext::linear alone.",
       linear_only_is_true},
      {"model.checkpoint_names_round_trip",
       "checkpoint_names() maps every parameter to external names, and each of these to one parameter.",
       checkpoint_names_round_trip},
      {"model.hugging_face_config_round_trip", "configure() reads what hugging_face_config() writes.",
       hugging_face_config_round_trip},
      {"model.broken_config_refused",
       "A config.json that is broken or lacks a key is refused with a UserError that names it.", broken_config_refused},
  };
}

}  // namespace strata::conformance
