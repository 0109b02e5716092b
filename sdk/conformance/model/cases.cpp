#include "model/checks.hpp"

namespace strata::conformance {

using namespace model_checks;

std::vector<Case> model_cases() {
  return {
      {"model.describe_equals_build",
       "describe() lists the parameters of the layer that build() makes, in their order.", describe_equals_build},
      {"model.describe_allocates_nothing", "describe() makes no tensor in memory.", describe_allocates_nothing},
      {"model.names_are_unique", "Parameters have names of their own, or one tie and one shape.", names_are_unique},
      {"model.outputs_as_described", "Layers give the shapes and number formats of describe(), for any batch.",
       outputs_as_described},
      {"model.runs_on_meta", "Layers run on tensors without memory, for a dry run.", runs_on_meta},
      {"model.forward_repeats", "A layer run again, or built again, gives equal bits.", forward_repeats},
      {"model.layers_stand_alone",
       "A layer built alone, as on a pipeline stage, gives the bits it gives among the others.", layers_stand_alone},
      {"model.evaluation_is_deterministic", "With training false no random number is drawn.",
       evaluation_is_deterministic},
      {"model.inputs_not_written", "Forward writes neither its inputs, the batch nor the parameters.",
       inputs_not_written},
      {"model.loss_is_a_sum", "loss_sum is the sum over tokens and samples; targets of -100 count for nothing.",
       loss_is_a_sum},
      {"model.sees_no_future", "The loss of a token does not depend on the tokens behind it.", sees_no_future},
      {"model.gradients_match_finite_differences", "Every parameter's gradient is the slope of the loss along it.",
       gradients_match_finite_differences, std::chrono::seconds(120)},
      {"model.loss_seed_scales_gradients", "Gradients are those of loss_sum times the seed of backward.",
       loss_seed_scales_gradients},
      {"model.linear_only", "What is linear_only gets its gradient from ModelContext::linear alone.",
       linear_only_is_true},
      {"model.checkpoint_names_round_trip", "checkpoint_names() names every parameter once, and once outside.",
       checkpoint_names_round_trip},
      {"model.hugging_face_config_round_trip", "configure() reads what hugging_face_config() writes.",
       hugging_face_config_round_trip},
      {"model.broken_config_refused", "A config.json that is broken, or lacks a key, is a UserError that says so.",
       broken_config_refused},
  };
}

}  // namespace strata::conformance
