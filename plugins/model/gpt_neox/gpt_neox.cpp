// Model gpt_neox: GPT-NeoX, the architecture of the Pythia family. Parameters carry Hugging Face's names and layouts:
// queries, keys and values of a head lie beside each other in one weight.
#include <strata/options.hpp>
#include <strata/toolbox/decoder_model.hpp>
#include <strata/toolbox/decoder_options.hpp>

namespace strata::gpt_neox {

#define GPT_NEOX_OPTIONS(OPTION)                                                                                   \
  OPTION(text, preset, "none",                                                                                     \
         "one_of=none|pythia-14m|pythia-31m|pythia-70m|pythia-160m|pythia-410m|pythia-1b|pythia-1.4b|pythia-2.8b|" \
         "pythia-6.9b|pythia-12b",                                                                                 \
         "", "Published sizes of a Pythia model; the options below override single sizes.")                        \
  STRATA_DECODER_OPTIONS(OPTION)                                                                                   \
  OPTION(number, rotary_fraction, 0.25, "min=0,max=1", "",                                                         \
         "Fraction of each head's dimensions with rotary embeddings.")                                             \
  OPTION(number, rotary_base, 10000.0, "min=1", "", "Base of the rotary frequencies.")                             \
  OPTION(integer, maximum_positions, 2048, "min=1", "tokens", "Maximum sequence length.")                          \
  OPTION(number, layer_norm_epsilon, 1e-5, "min=0", "", "Epsilon of the layer norms.")                             \
  OPTION(boolean, parallel_residual, true, "", "",                                                                 \
         "Attention and MLP both read the block's input; false: the MLP reads the attention's output.")            \
  OPTION(boolean, tie_embeddings, false, "", "", "Tie the head's weight to the embedding.")                        \
  OPTION(number, attention_dropout, 0.0, "min=0,max=0.99", "", "Probability that an attention weight is dropped.") \
  OPTION(number, hidden_dropout, 0.0, "min=0,max=0.99", "",                                                        \
         "Probability that an element of what attention and MLP add, or of the embedding, is dropped.")
STRATA_OPTIONS(GptNeoxOptions, GPT_NEOX_OPTIONS)

constexpr DecoderPreset presets[]{
    {"pythia-14m", 128, 6, 4, 512, 50304},       {"pythia-31m", 256, 6, 8, 1024, 50304},
    {"pythia-70m", 512, 6, 8, 2048, 50304},      {"pythia-160m", 768, 12, 12, 3072, 50304},
    {"pythia-410m", 1024, 24, 16, 4096, 50304},  {"pythia-1b", 2048, 16, 8, 8192, 50304},
    {"pythia-1.4b", 2048, 24, 16, 8192, 50304},  {"pythia-2.8b", 2560, 32, 32, 10240, 50304},
    {"pythia-6.9b", 4096, 32, 32, 16384, 50432}, {"pythia-12b", 5120, 36, 40, 20480, 50688}};

DecoderShape shape_of(const GptNeoxOptions& options) {
  DecoderShape shape = sizes_of(options, presets);
  shape.maximum_positions = options.maximum_positions;
  shape.norm_epsilon = options.layer_norm_epsilon;
  shape.parallel_residual = options.parallel_residual;
  shape.tie_embeddings = options.tie_embeddings;
  shape.rotary_fraction = options.rotary_fraction;
  shape.rotary_base = options.rotary_base;
  shape.attention_dropout = options.attention_dropout;
  shape.hidden_dropout = options.hidden_dropout;
  shape.names = {.embedding = "gpt_neox.embed_in",
                 .block = "gpt_neox.layers.",
                 .final_norm = "gpt_neox.final_layer_norm",
                 .head = "embed_out",
                 .attention_norm = "input_layernorm",
                 .mlp_norm = "post_attention_layernorm",
                 .query_key_value = "attention.query_key_value",
                 .attention_output = "attention.dense",
                 .up = "mlp.dense_h_to_4h",
                 .down = "mlp.dense_4h_to_h"};
  return shape;
}

class GptNeox final : public DecoderModel {
 public:
  GptNeox(PluginContext& context, const GptNeoxOptions& options)
      : DecoderModel(context, shape_of(options),
                     {{"hidden_size", "hidden_size", &DecoderShape::hidden, true},
                      {"num_hidden_layers", "layers", &DecoderShape::layers, true},
                      {"num_attention_heads", "heads", &DecoderShape::heads, true},
                      {"intermediate_size", "intermediate_size", &DecoderShape::intermediate, true},
                      {"vocab_size", "vocabulary", &DecoderShape::vocabulary, true},
                      {"rotary_pct", "rotary_fraction", &DecoderShape::rotary_fraction},
                      {"rotary_emb_base", "rotary_base", &DecoderShape::rotary_base},
                      {"max_position_embeddings", "maximum_positions", &DecoderShape::maximum_positions},
                      {"layer_norm_eps", "layer_norm_epsilon", &DecoderShape::norm_epsilon},
                      {"use_parallel_residual", "parallel_residual", &DecoderShape::parallel_residual},
                      {"tie_word_embeddings", "tie_embeddings", &DecoderShape::tie_embeddings},
                      {"initializer_range", "initializer_range", &DecoderShape::initializer_range},
                      {"attention_dropout", "attention_dropout", &DecoderShape::attention_dropout},
                      {"hidden_dropout", "hidden_dropout", &DecoderShape::hidden_dropout}}) {}

  CheckpointNames checkpoint_names() const override {
    CheckpointNames names = DecoderModel::checkpoint_names();
    for (const char* const ignored : {"*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq"})
      names.ignored.push_back(ignored);
    return names;
  }

 private:
  DecoderShape complete(DecoderShape shape) const override {
    if (shape.intermediate == 0) shape.intermediate = 4 * shape.hidden;
    shape.embedding_dropout = shape.hidden_dropout;
    return DecoderModel::complete(std::move(shape));
  }

  void read(const nlohmann::json& file, DecoderShape& shape) override {
    require_key(file, "model_type", "gpt_neox", "this model is gpt_neox");
    require_key(file, "hidden_act", "gelu", "this model's activation is gelu, the exact one");
    require_key(file, "attention_bias", true, "this model has biases in attention");
    require_key(file, "rope_scaling", nullptr, "this model scales no rotary frequencies");
    if (!file.contains("rotary_emb_base")) shape.rotary_base = read_key(file, "rope_theta", shape.rotary_base);
    const auto found = file.find("rope_parameters");  // of newer releases
    if (found == file.end() || found->is_null()) return;
    if (!found->is_object()) refuse_key("rope_parameters", *found, "it must be an object");
    require_key(*found, "rope_type", "default", "this model knows rope_type \"default\" only");
    shape.rotary_fraction = read_key(*found, "partial_rotary_factor", shape.rotary_fraction);
    shape.rotary_base = read_key(*found, "rope_theta", shape.rotary_base);
  }

  void write(const DecoderShape& shape, nlohmann::json& file) const override {
    file.update({{"architectures", {"GPTNeoXForCausalLM"}},
                 {"attention_bias", true},
                 {"bos_token_id", 0},
                 {"eos_token_id", 0},
                 {"hidden_act", "gelu"},
                 {"model_type", "gpt_neox"},
                 {"rope_parameters",
                  {{"partial_rotary_factor", shape.rotary_fraction},
                   {"rope_theta", shape.rotary_base},
                   {"rope_type", "default"}}}});
  }
};

}  // namespace strata::gpt_neox

STRATA_PLUGIN(strata::gpt_neox::GptNeox, strata::gpt_neox::GptNeoxOptions, GPT_NEOX_OPTIONS)
