// What the model says of a text's next token.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include <algorithm>

#include "data/loader.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// Every rank computes, as for an evaluation of one micro-batch, whose first sample begins with the tokens. What fills
// the rest cannot be seen from them. One rank of the last layer's then tells all others, so that all know the same
// bits.
at::Tensor Session::next_token_logits(std::span<const std::int64_t> tokens) {
  const std::int64_t count = std::ssize(tokens), vocabulary = plugins_.model->vocabulary();
  strata_check(count >= 1 && count <= batch_.sequence_length, "a text has 1 to sequence_length tokens");
  const at::TensorOptions numbers = at::TensorOptions().dtype(at::kLong);
  const at::Device device = stage_.store->device();
  const at::Tensor all = at::zeros({batch_.micro_batch, batch_.sequence_length}, numbers);
  std::ranges::copy(tokens, all.mutable_data_ptr<std::int64_t>());
  MicroBatch batch{all.to(device), at::full(all.sizes(), data::ignored_target, numbers.device(device))};
  batch.training = false;
  batch.asked_rows = at::full({1}, count - 1, numbers.device(device));
  evaluate({batch}, LossSums::zeros(device));

  at::Tensor logits = executor_.take_logits();
  const int last_stage = plan_.placement.stage_of_chunk.back();
  if (place_.pipeline != last_stage) {
    logits = at::empty({1, vocabulary}, at::TensorOptions().dtype(at::kFloat).device(device));
  } else if (!logits.defined()) {
    throw UserError(stage_.model_name + ": " + stage_.model_layers.back().name +
                    ", its last layer, gives no logits, and without them no text; let its forward set "
                    "LayerOutput::logits where the batch has asked_rows (sdk/README.md, Model)");
  } else if (logits.scalar_type() != at::kFloat || logits.sizes() != at::IntArrayRef{1, vocabulary}) {
    throw Bug(stage_.model_name + ": the logits of " + stage_.model_layers.back().name + " are " +
              c10::toString(logits.scalar_type()) + " with " + std::to_string(logits.numel()) +
              " elements for one row; they must be fp32 [1, " + std::to_string(vocabulary) + "]");
  }
  logits = logits.contiguous();
  stage_.world->broadcast(logits, rank_of(mesh_, {last_stage, 0, 0})).wait();
  return logits.view({vocabulary}).cpu();
}

}  // namespace strata::runtime
