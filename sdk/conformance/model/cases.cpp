#include "model/checks.hpp"

namespace strata::conformance {

using namespace model_checks;

std::vector<Case> model_cases() {
  return {
      {"model.describe_equals_build", "describe() lists the parameters that build() creates, in the same order.",
       describe_equals_build},
      {"model.describe_allocates_nothing", "describe() allocates no tensor.", describe_allocates_nothing},
      {"model.names_are_unique", "Parameter names are unique, except for tied parameters of the same shape.",
       names_are_unique},
      {"model.splits_fit", "A parameter's split names one of its dimensions, which its blocks and units divide.",
       splits_fit},
      {"model.outputs_as_described", "Layers return the shapes and dtypes of describe(), for any batch.",
       outputs_as_described},
      {"model.runs_on_meta", "Layers run on meta tensors, for a dry run.", runs_on_meta},
      {"model.forward_repeats", "A layer that runs again, or is built again, gives the same bits.", forward_repeats},
      {"model.layers_stand_alone",
       "A layer that is built alone, as on a pipeline stage, gives the same bits as in the whole model.",
       layers_stand_alone},
      {"model.evaluation_is_deterministic", "Layers draw no random numbers when training is false.",
       evaluation_is_deterministic},
      {"model.inputs_not_written", "forward() does not write its inputs, the batch or the parameters.",
       inputs_not_written},
      {"model.loss_is_a_sum", "loss_sum is the sum over tokens and samples; targets of -100 are ignored.",
       loss_is_a_sum},
      {"model.auxiliary_loss_is_a_sum",
       "An auxiliary loss is a sum over samples, those without a target left out, and depends on nothing else.",
       auxiliary_loss_is_a_sum},
      {"model.logits_say_the_loss", "The softmax of the logits of asked rows gives the loss of each of their targets.",
       logits_say_the_loss},
      {"model.sees_no_future", "The loss of a token does not depend on later tokens.", sees_no_future},
      {"model.gradients_match_finite_differences", "Every parameter's gradient matches finite differences of the loss.",
       gradients_match_finite_differences, std::chrono::seconds(120)},
      {"model.loss_seed_scales_gradients", "Gradients are those of loss_sum times the seed of backward.",
       loss_seed_scales_gradients},
      {"model.auxiliary_loss_has_gradients",
       "The gradients of loss and auxiliary loss match finite differences of their sum, times the seed of backward.",
       auxiliary_loss_has_gradients, std::chrono::seconds(120)},
      {"model.linear_only", "A parameter that says linear_only gets its gradient from ModelContext::linear alone.",
       linear_only_is_true},
      {"model.checkpoint_names_round_trip",
       "checkpoint_names() maps every parameter to external names, and each of these to one parameter.",
       checkpoint_names_round_trip},
      {"model.hugging_face_config_round_trip", "configure() reads what hugging_face_config() writes.",
       hugging_face_config_round_trip},
      {"model.broken_config_refused",
       "A config.json that is broken or lacks a key is refused with a UserError that says so.", broken_config_refused},
  };
}

}  // namespace strata::conformance
