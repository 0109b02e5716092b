#include "decoder_parameters.hpp"

#include <strata/format.hpp>

#include <utility>

namespace strata {
namespace {

// Tensor-parallel ranks share heads, the MLP's inner activations and the vocabulary.
constexpr Split cut_rows{.dimension = 0}, cut_columns{.dimension = 1}, cut_vocabulary{.dimension = 0, .padded = true};

class List {
 public:
  explicit List(const DecoderShape& shape) : shape_(shape) {}

  ParameterInfo& add(const std::string& name, std::vector<std::int64_t> extents, Initializer initializer) {
    ParameterInfo& info = infos.emplace_back();
    info.name = name;
    info.shape = std::move(extents);
    info.initializer = initializer;
    return info;
  }

  void add_norm(const std::string& name, BlockShape::Norm norm) {
    add(name + ".weight", {shape_.hidden}, Initializer::ones()).tensor_gradient = TensorGradient::OfStream;
    if (norm == BlockShape::Norm::Layer)
      add(name + ".bias", {shape_.hidden}, Initializer::zeros()).tensor_gradient = TensorGradient::OfStream;
  }

  // A weight of rows that go to all ranks' parts, or of columns, whose product is of the stream.
  // Returns the weight; valid until another parameter is added.
  ParameterInfo& add_linear(const std::string& name, std::int64_t out, std::int64_t in, Split split, bool bias) {
    const bool to_stream = split.dimension == 1;
    const bool scaled = to_stream && shape_.output_initializer_range > 0.0;
    ParameterInfo& weight =
        add(name + ".weight", {out, in},
            Initializer::normal(0.0, scaled ? shape_.output_initializer_range : shape_.initializer_range));
    weight.split = split;
    weight.linear_only = true;
    if (!bias) return weight;
    const std::size_t number = infos.size() - 1;
    ParameterInfo& one = add(name + ".bias", {out}, Initializer::zeros());
    if (!to_stream) one.split = split;
    one.linear_only = true;
    return infos[number];
  }

  void add_vocabulary(const std::string& name) {
    add(name + ".weight", {shape_.vocabulary, shape_.hidden}, Initializer::normal(0.0, shape_.initializer_range))
        .split = cut_vocabulary;
  }

  std::vector<ParameterInfo> infos;

 private:
  const DecoderShape& shape_;
};

void tie(const DecoderShape& shape, ParameterInfo& info) {
  if (shape.tie_embeddings) info.tie = shape.names.embedding + ".weight";
}

}  // namespace

std::vector<ParameterInfo> embedding_parameters(const DecoderShape& shape) {
  List list(shape);
  list.add_vocabulary(shape.names.embedding);
  tie(shape, list.infos.back());
  if (shape.learned_positions)
    list.add(shape.names.positions + ".weight", {shape.maximum_positions, shape.hidden},
             Initializer::normal(0.0, shape.initializer_range))
        .tensor_gradient = TensorGradient::OfStream;
  return std::move(list.infos);
}

std::vector<ParameterInfo> block_parameters(const DecoderShape& shape, int number) {
  const BlockShape& block = shape.blocks.at(static_cast<std::size_t>(number));
  const DecoderNames& names = shape.names;
  const std::string prefix = format("{}{}.", names.block, number);
  const std::int64_t inner = shape.heads * shape.head_size, shared = shape.key_value_heads * shape.head_size;
  const Split by_heads{.dimension = 0, .unit = shape.head_size};
  List list(shape);
  list.add_norm(prefix + names.attention_norm, block.norm);
  list.add_norm(prefix + names.mlp_norm, block.norm);
  const auto project = [&](const std::string& name, std::int64_t out, Split split, StackedMatrices stacked = {}) {
    list.add_linear(prefix + name, out, shape.hidden, split, shape.projection_bias).stacked = stacked;
  };
  switch (shape.projections) {
    case DecoderShape::Projections::ByHead:
      project(names.query_key_value, 3 * inner, {.dimension = 0, .unit = 3 * shape.head_size}, {3, shape.head_size});
      break;
    case DecoderShape::Projections::ByKind:
      project(names.query_key_value, 3 * inner, {.dimension = 0, .blocks = 3, .unit = shape.head_size}, {3, inner});
      break;
    case DecoderShape::Projections::Apart:
      project(names.query, inner, by_heads);
      project(names.key, shared, by_heads);
      project(names.value, shared, by_heads);
      break;
  }
  list.add_linear(prefix + names.attention_output, shape.hidden, inner, {.dimension = 1, .unit = shape.head_size},
                  shape.attention_output_bias);
  if (BlockShape::is_gated(block.mlp))
    list.add_linear(prefix + names.gate, shape.intermediate, shape.hidden, cut_rows, shape.mlp_bias);
  list.add_linear(prefix + names.up, shape.intermediate, shape.hidden, cut_rows, shape.mlp_bias);
  list.add_linear(prefix + names.down, shape.hidden, shape.intermediate, cut_columns, shape.mlp_bias);
  return std::move(list.infos);
}

std::vector<ParameterInfo> head_parameters(const DecoderShape& shape) {
  List list(shape);
  list.add_norm(shape.names.final_norm, shape.final_norm);
  list.add_vocabulary(shape.tie_embeddings ? shape.names.embedding : shape.names.head);
  tie(shape, list.infos.back());
  return std::move(list.infos);
}

}  // namespace strata
