#pragma once
#include "runner/case.hpp"

namespace strata::conformance::model_checks {

// description.cpp: what is said before anything is allocated.
void describe_equals_build(Subject& subject);
void describe_allocates_nothing(Subject& subject);
void names_are_unique(Subject& subject);
void splits_fit(Subject& subject);
void outputs_as_described(Subject& subject);
void runs_on_meta(Subject& subject);
// repetition.cpp: a layer is a function of its inputs.
void forward_repeats(Subject& subject);
void layers_stand_alone(Subject& subject);
void evaluation_is_deterministic(Subject& subject);
void inputs_not_written(Subject& subject);
// loss.cpp
void loss_is_a_sum(Subject& subject);
void auxiliary_loss_is_a_sum(Subject& subject);
void logits_say_the_loss(Subject& subject);
void sees_no_future(Subject& subject);
// gradients.cpp
void gradients_match_finite_differences(Subject& subject);
void loss_seed_scales_gradients(Subject& subject);
void auxiliary_loss_has_gradients(Subject& subject);
void linear_only_is_true(Subject& subject);
// files.cpp: names and sizes in Hugging Face files.
void checkpoint_names_round_trip(Subject& subject);
void hugging_face_config_round_trip(Subject& subject);
void broken_config_refused(Subject& subject);

}  // namespace strata::conformance::model_checks
