#pragma once
#include "conformance/drawn/draws.hpp"
#include "conformance/model/built_model.hpp"
#include "conformance/runner/case.hpp"

namespace strata::conformance::model_checks {

inline constexpr std::int64_t ignored = -100;  // target that does not count

// A model of drawn options, and the shape of its batch.
struct ModelWorld {
  Subject& subject;
  fakes::OptionTexts options;
  const fakes::LoadedPlugin<Model>& model;
  BatchShape shape;
  std::uint64_t seed;  // seed of the tokens
  Draws& draws;

  MicroBatch batch() const { return draw_batch(*model, shape.micro_batch, shape.sequence_length, seed); }
};

// drawn.cpp
void drawn(Subject& subject);
// description.cpp: facts before anything is allocated.
void parameters_as_described(const ModelWorld& world);
void outputs_as_described(const ModelWorld& world);
// repetition.cpp: a layer is a function of its inputs.
void forward_repeats(const ModelWorld& world);
void layers_stand_alone(const ModelWorld& world);
void evaluation_is_deterministic(const ModelWorld& world);
void inputs_not_written(const ModelWorld& world);
// loss.cpp
void loss_is_a_sum(const ModelWorld& world);
void auxiliary_loss_is_a_sum(const ModelWorld& world);
void logits_say_the_loss(const ModelWorld& world);
void sees_no_future(const ModelWorld& world);
// statistics.cpp
void statistics_combine(const ModelWorld& world);
// gradients.cpp
void gradients_match_finite_differences(const ModelWorld& world);
void loss_seed_scales_gradients(const ModelWorld& world);
void gradients_are_sums(const ModelWorld& world);
void linear_only_is_true(Subject& subject);
// tensor_parts.cpp
void tensor_parts_agree(const ModelWorld& world);
// files.cpp: names and sizes in Hugging Face files.
void checkpoint_names_round_trip(Subject& subject);
void hugging_face_config_round_trip(Subject& subject);
void broken_config_refused(Subject& subject);

}  // namespace strata::conformance::model_checks
