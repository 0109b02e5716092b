// Model gpt2: GPT-2. Parameters carry Hugging Face's names; its files hold the matrices of blocks transposed (Conv1D).
#include <strata/options.hpp>
#include <strata/toolbox/decoder_model.hpp>
#include <strata/toolbox/decoder_options.hpp>

#include <cmath>

namespace strata::gpt2 {

#define GPT2_OPTIONS(OPTION)                                                                                \
  OPTION(text, preset, "none", "one_of=none|gpt2|gpt2-medium|gpt2-large|gpt2-xl", "",                       \
         "Published model sizes; the options below override individual sizes.")                             \
  STRATA_DECODER_OPTIONS(OPTION)                                                                            \
  OPTION(integer, maximum_positions, 1024, "min=1", "tokens",                                               \
         "Maximum sequence length, which is the number of rows of the position table.")                     \
  OPTION(number, layer_norm_epsilon, 1e-5, "min=0", "", "Epsilon of the layer norms.")                      \
  OPTION(boolean, tie_embeddings, true, "", "", "Tie the head's weight to the embedding.")                  \
  OPTION(number, embedding_dropout, 0.0, "min=0,max=0.99", "",                                              \
         "Dropout probability of the embedding output; the published models were trained with 0.1.")        \
  OPTION(number, attention_dropout, 0.0, "min=0,max=0.99", "", "Dropout probability of attention weights.") \
  OPTION(number, hidden_dropout, 0.0, "min=0,max=0.99", "",                                                 \
         "Dropout probability of the attention and MLP outputs, before they are added to the residual stream.")
STRATA_OPTIONS(Gpt2Options, GPT2_OPTIONS)

constexpr DecoderPreset presets[]{{"none", 0, 0, 0, 0, 0},
                                  {"gpt2", 768, 12, 12, 3072, 50257},
                                  {"gpt2-medium", 1024, 24, 16, 4096, 50257},
                                  {"gpt2-large", 1280, 36, 20, 5120, 50257},
                                  {"gpt2-xl", 1600, 48, 25, 6400, 50257}};

DecoderSettings settings_of(const Gpt2Options& options) {
  DecoderSettings settings = sizes_of(options, preset_of(options.preset, presets));
  settings.maximum_positions = options.maximum_positions;
  settings.norm_epsilon = options.layer_norm_epsilon;
  settings.block.mlp = BlockShape::Mlp::GeluByTanh;
  settings.projections = DecoderShape::Projections::ByKind;
  settings.tie_embeddings = options.tie_embeddings;
  settings.learned_positions = true;
  settings.embedding_dropout = options.embedding_dropout;
  settings.attention_dropout = options.attention_dropout;
  settings.hidden_dropout = options.hidden_dropout;
  settings.names = {.base = "transformer.",
                    .embedding = "transformer.wte",
                    .positions = "transformer.wpe",
                    .block = "transformer.h.",
                    .final_norm = "transformer.ln_f",
                    .head = "lm_head",
                    .attention_norm = "ln_1",
                    .mlp_norm = "ln_2",
                    .query_key_value = "attn.c_attn",
                    .attention_output = "attn.c_proj",
                    .up = "mlp.c_fc",
                    .down = "mlp.c_proj"};
  return settings;
}

class Gpt2 final : public DecoderModel {
  using Kind = DecoderKey::Kind;

 public:
  Gpt2(PluginContext& context, const Gpt2Options& options)
      : DecoderModel(context, settings_of(options),
                     {{"n_embd", "hidden_size", &DecoderSettings::hidden, Kind::Size, "hidden_size"},
                      {"n_layer", "layers", &DecoderSettings::layers, Kind::Size, "num_hidden_layers"},
                      {"n_head", "heads", &DecoderSettings::heads, Kind::Size, "num_attention_heads"},
                      {"n_inner", "intermediate_size", &DecoderSettings::intermediate, Kind::Derived},
                      {"vocab_size", "vocabulary", &DecoderSettings::vocabulary, Kind::Size},
                      {"n_positions", "maximum_positions", &DecoderSettings::maximum_positions, Kind::Count,
                       "max_position_embeddings"},
                      {"layer_norm_epsilon", "layer_norm_epsilon", &DecoderSettings::norm_epsilon},
                      {"tie_word_embeddings", "tie_embeddings", &DecoderSettings::tie_embeddings},
                      {"initializer_range", "initializer_range", &DecoderSettings::initializer_range},
                      {"embd_pdrop", "embedding_dropout", &DecoderSettings::embedding_dropout, Kind::Chance},
                      {"attn_pdrop", "attention_dropout", &DecoderSettings::attention_dropout, Kind::Chance},
                      {"resid_pdrop", "hidden_dropout", &DecoderSettings::hidden_dropout, Kind::Chance}}) {}

  CheckpointNames checkpoint_names() const override {
    CheckpointNames names = DecoderModel::checkpoint_names();
    for (const char* const ignored : {"*.attn.bias", "*.attn.masked_bias"}) names.ignored.push_back(ignored);
    names.transposed = {"*.attn.c_attn.weight", "*.c_proj.weight", "*.mlp.c_fc.weight"};
    return names;
  }

 private:
  // The weights that write to the residual stream begin smaller, by the number of times that they do (Radford et al.
  // 2019, section 2.3).
  DecoderSettings complete(DecoderSettings settings) const override {
    if (settings.intermediate == 0) settings.intermediate = 4 * settings.hidden;
    if (settings.layers > 0)
      settings.output_initializer_range =
          settings.initializer_range / std::sqrt(2.0 * static_cast<double>(settings.layers));
    return DecoderModel::complete(std::move(settings));
  }

  // GPT2Config's defaults.
  void start(const nlohmann::json& file, DecoderSettings& settings) override {
    require_key(file, "model_type", "gpt2", "this model is gpt2");
    settings.hidden = 768;
    settings.layers = settings.heads = 12;
    settings.intermediate = 0;
    settings.vocabulary = 50257;
    settings.maximum_positions = 1024;
    settings.norm_epsilon = 1e-5;
    settings.tie_embeddings = true;
    settings.initializer_range = 0.02;
    settings.embedding_dropout = settings.attention_dropout = settings.hidden_dropout = 0.1;
  }

  void read(const nlohmann::json& file, DecoderSettings& settings) override {
    settings.block.mlp = read_activation(file, "activation_function", "gelu_new", /*gated=*/false);
    require_key(file, "scale_attn_weights", true, "this model scales attention by the head's size");
    require_key(file, "scale_attn_by_inverse_layer_idx", false, "this model scales attention in all layers alike");
    require_key(file, "add_cross_attention", false, "this model has no cross attention");
  }

  void write(const DecoderSettings& /*settings*/, nlohmann::json& file) const override {
    file.update({{"architectures", {"GPT2LMHeadModel"}},
                 {"activation_function", "gelu_new"},
                 {"model_type", "gpt2"},
                 {"scale_attn_weights", true}});
  }
};

}  // namespace strata::gpt2

STRATA_PLUGIN(strata::gpt2::Gpt2, strata::gpt2::Gpt2Options, GPT2_OPTIONS)
