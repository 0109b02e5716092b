// A decoder-only transformer: an embedding, blocks of attention and MLP, and a head that computes the loss. Families
// differ in the values of DecoderShape, in the list of their blocks and in their files; a model plugin defines them.
#pragma once
#include <strata/model.hpp>
#include <strata/toolbox/attention.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata {

// Names of the parameters, without ".weight" and ".bias". Names in a block are prefixed with DecoderNames::block and
// the block's number.
struct DecoderNames {
  std::string base;  // prefix of all names except the head's; absent in files of the bare model
  std::string embedding, positions, block, final_norm, head;
  std::string attention_norm, mlp_norm;
  std::string query_key_value;    // name if they are one weight
  std::string query, key, value;  // names if they are three weights
  std::string attention_output;
  std::string gate, up, down;
};

// Rotary position embedding of a block's queries and keys.
struct RotaryShape {
  double fraction = 0.0;  // rotated fraction of a head's dimensions; 0: no rotation
  double base = 10000.0;
  RotaryScaling scaling;
  bool operator==(const RotaryShape&) const = default;

  // Returns the number of rotated dimensions of a head, rounded down as in Hugging Face's code.
  std::int64_t dimensions(std::int64_t head_size) const;
};

// Settings that may differ between the blocks of one decoder.
struct BlockShape {
  enum class Norm { Layer, RootMeanSquare };
  enum class Mlp { Gelu, GeluByTanh, SwiGlu };
  // True if a second product of the MLP's input, the gate, multiplies the first.
  static constexpr bool is_gated(Mlp mlp) { return mlp == Mlp::SwiGlu; }

  Norm norm = Norm::Layer;
  Mlp mlp = Mlp::Gelu;
  bool parallel_residual = false;  // true: attention and MLP both read the block's input
  RotaryShape rotary;
  std::int64_t window = 0;  // attention window of the model in the file, in tokens; longer samples are refused; 0: none
};

// A whole decoder: what all its layers share, and its blocks in their order.
struct DecoderShape {
  // Storage of q, k and v: one weight, head by head; one weight, q of all heads, then k, then v; or three weights.
  enum class Projections { ByHead, ByKind, Apart };

  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t key_value_heads = 0;  // each serves heads / key_value_heads consecutive heads
  std::int64_t head_size = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;
  std::int64_t maximum_positions = 0;
  std::vector<BlockShape> blocks;
  BlockShape::Norm final_norm = BlockShape::Norm::Layer;
  double norm_epsilon = 1e-5;
  Projections projections = Projections::ByHead;
  bool projection_bias = true;
  bool attention_output_bias = true;
  bool mlp_bias = true;
  bool tie_embeddings = false;
  bool learned_positions = false;  // true: a table of positions is added to the embedding
  double initializer_range = 0.02;
  double output_initializer_range = 0.0;  // for weights that write to the residual stream; 0: initializer_range
  double embedding_dropout = 0.0;
  double hidden_dropout = 0.0;  // dropout of the outputs of attention and MLP
  double attention_dropout = 0.0;
  LossTerms loss;              // see linear_cross_entropy
  std::int64_t mlp_chunk = 0;  // see by_rows
  DecoderNames names;

  // Throws UserError naming the size that is missing or does not fit.
  void check() const;
};

class Decoder {
 public:
  explicit Decoder(DecoderShape shape);  // throws as DecoderShape::check()
  const DecoderShape& shape() const { return *shape_; }
  int layers() const { return static_cast<int>(shape_->blocks.size()) + 2; }
  // Throws UserError for samples longer than a block's window.
  LayerInfo describe(int layer, const BatchShape& batch) const;
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const;
  // Returns every parameter under its own name, and also without the prefix `names.base`. A tied embedding may be
  // stored under the head's name, too.
  CheckpointNames checkpoint_names() const;

 private:
  std::shared_ptr<const DecoderShape> shape_;
  std::vector<std::shared_ptr<RotaryTable>> rotary_;  // one for each block; blocks of equal rotation share it
  std::int64_t window_ = 0;                           // the shortest of the blocks'; 0: none has one
};

}  // namespace strata
