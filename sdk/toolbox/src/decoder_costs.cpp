#include "decoder_costs.hpp"

#include <strata/format.hpp>
#include <strata/toolbox/tensor_parallel.hpp>

#include <cstddef>
#include <string>

#include "decoder_parameters.hpp"

namespace strata {
namespace {

// The statistics of a norm, one number or two a row.
std::int64_t norm_bytes(BlockShape::Norm norm, const BatchShape& batch) {
  return batch.stream_rows() * (norm == BlockShape::Norm::Layer ? 2 : 1) * 4;
}

TensorShape stream(const DecoderShape& shape, const BatchShape& batch) {
  return {{batch.stream_rows(), shape.hidden}, batch.activation};
}

}  // namespace

LayerInfo describe_embedding(const DecoderShape& shape, const BatchShape& batch) {
  LayerInfo info;
  info.name = "embedding";
  info.parameters = embedding_parameters(shape);
  info.outputs = {stream(shape, batch)};
  info.backward_reads_weights = false;
  return info;
}

// FLOPs: the weights, and scores and weighted sums over the whole square of positions, by the usual convention (half of
// them lie behind the mask). Bytes: statistics and results of both norms, and what the second one reads, are of the
// stream; q, k and v, attention's result and its fp32 log-sums, and the MLP's inner activations, if they are not made
// again, are shared by the ranks.
LayerInfo describe_block(const DecoderShape& shape, int number, const BatchShape& batch) {
  const BlockShape& block = shape.blocks.at(static_cast<std::size_t>(number));
  const std::int64_t inner = shape.heads * shape.head_size, shared = shape.key_value_heads * shape.head_size;
  const std::int64_t products = BlockShape::is_gated(block.mlp) ? 3 : 2;  // of the MLP: weights, and kept
  const double weights = static_cast<double>(shape.hidden * (2 * inner + 2 * shared + products * shape.intermediate));
  const double scores = 2.0 * static_cast<double>(batch.sequence_length * inner);
  const auto width = static_cast<std::int64_t>(c10::elementSize(batch.activation));
  LayerInfo info;
  info.name = format("block {}", number);
  info.parameters = block_parameters(shape, number);
  info.outputs = {stream(shape, batch)};
  info.forward_flops = 2.0 * static_cast<double>(batch.rows()) * (weights + scores) / batch.tensor_ranks;
  const std::int64_t of_stream = block.parallel_residual ? 2 : 3;
  const std::int64_t results = shape.heads == shape.key_value_heads ? 1 : 2;  // of groups of heads, and put together
  const bool keeps_mlp = shape.mlp_chunk == 0 || shape.mlp_chunk >= batch.rows();
  const std::int64_t kept = (1 + results) * inner + 2 * shared + (keeps_mlp ? products * shape.intermediate : 0);
  info.activation_bytes = 2 * norm_bytes(block.norm, batch) + batch.stream_rows() * width * of_stream * shape.hidden +
                          batch.rows() * (width * kept + shape.heads * 4) / batch.tensor_ranks;
  return info;
}

LayerInfo describe_head(const DecoderShape& shape, const BatchShape& batch) {
  LayerInfo info;
  info.name = "head";
  info.parameters = head_parameters(shape);
  if (shape.loss.largest_logit) info.statistics.push_back(largest_logit_info);
  info.forward_flops = 2.0 * static_cast<double>(batch.rows()) * static_cast<double>(shape.hidden * shape.vocabulary) /
                       batch.tensor_ranks;
  info.activation_bytes =
      norm_bytes(shape.final_norm, batch) + vocabulary_cross_entropy_bytes(batch, shape.hidden, shape.vocabulary);
  return info;
}

}  // namespace strata
