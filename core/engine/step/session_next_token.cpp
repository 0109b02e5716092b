// What the model says of a text's next token.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include <algorithm>

#include "data/loader.hpp"
#include "step/session.hpp"

namespace strata::step {

// Every rank computes, as for an evaluation of one micro-batch, whose first sample begins with the tokens. What fills
// the rest cannot be seen from them. One rank of the last layer's then tells all others what it has, so that all know
// the same bits, or throw alike.
at::Tensor Session::next_token_logits(std::span<const std::int64_t> tokens) {
  const std::int64_t count = std::ssize(tokens), vocabulary = stage_.plugins.model->vocabulary();
  strata_check(count >= 1 && count <= stage_.place.batch.sequence_length, "a text has 1 to sequence_length tokens");
  const at::TensorOptions numbers = at::TensorOptions().dtype(at::kLong);
  const at::Device device = stage_.memory.tensors();
  const at::Tensor all = at::zeros({stage_.place.batch.micro_batch, stage_.place.batch.sequence_length}, numbers);
  std::ranges::copy(tokens, all.mutable_data_ptr<std::int64_t>());
  MicroBatch batch{all.to(device), at::full(all.sizes(), data::ignored_target, numbers.device(device))};
  batch.training = false;
  batch.asked_rows = at::full({1}, count - 1, numbers.device(device));
  evaluate({batch}, zero_sums());

  enum Found : int { None, Wrong, Logits };
  const at::Tensor logits = executor_.take_logits();
  const int last_stage = plan().placement.stage_of_chunk.back();
  const at::Tensor told = at::zeros({1 + vocabulary}, at::TensorOptions().dtype(at::kFloat).device(device));
  if (stage_.place.stage() == last_stage && logits.defined()) {
    const bool right = logits.scalar_type() == at::kFloat && logits.sizes() == at::IntArrayRef{1, vocabulary};
    told.select(0, 0).fill_(right ? Logits : Wrong);
    if (right) told.narrow(0, 1, vocabulary).copy_(logits.view({vocabulary}));
  }
  stage_.groups.world().broadcast(told, rank_of(mesh(), {{Axis::Pipeline, last_stage}})).wait();
  const at::Tensor known = told.cpu();
  const auto found = static_cast<Found>(known.const_data_ptr<float>()[0]);
  if (found == None)
    throw UserError(
        "{}: {}, its last layer, gives no logits, and without them no text; let its forward set LayerOutput::logits "
        "where the batch has asked_rows (sdk/README.md, Model)",
        stage_.plugins.model.name, stage_.layers.model().back().name);
  if (found == Wrong)
    throw Bug("{}: the logits of {} for one row have another dtype or shape; they must be fp32 [1, {}]",
              stage_.plugins.model.name, stage_.layers.model().back().name, vocabulary);
  return known.narrow(0, 1, vocabulary).clone();
}

}  // namespace strata::step
