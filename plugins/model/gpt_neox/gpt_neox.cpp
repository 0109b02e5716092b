// Model gpt_neox: GPT-NeoX, the architecture of the Pythia family. Parameters carry Hugging Face's names and layouts:
// queries, keys and values of a head are adjacent in one weight.
#include <strata/options.hpp>
#include <strata/toolbox/decoder_model.hpp>
#include <strata/toolbox/decoder_options.hpp>

namespace strata::gpt_neox {

#define GPT_NEOX_OPTIONS(OPTION)                                                                                       \
  OPTION(text, preset, "none",                                                                                         \
         "one_of=none|pythia-14m|pythia-31m|pythia-70m|pythia-160m|pythia-410m|pythia-1b|pythia-1.4b|pythia-2.8b|"     \
         "pythia-6.9b|pythia-12b",                                                                                     \
         "", "Published model sizes; the options below override individual sizes.")                                    \
  STRATA_DECODER_OPTIONS(OPTION)                                                                                       \
  OPTION(number, rotary_fraction, 0.25, "min=0,max=1", "",                                                             \
         "Fraction of each head's dimensions with rotary embeddings.")                                                 \
  OPTION(number, rotary_base, 10000.0, "min=1", "", "Base of the rotary frequencies.")                                 \
  OPTION(integer, maximum_positions, 2048, "min=1", "tokens", "Maximum sequence length.")                              \
  OPTION(number, layer_norm_epsilon, 1e-5, "min=0", "", "Epsilon of the layer norms.")                                 \
  OPTION(boolean, parallel_residual, true, "", "",                                                                     \
         "Parallel residual: attention and MLP both read the block's input. false: the MLP reads the attention's "     \
         "output.")                                                                                                    \
  OPTION(boolean, tie_embeddings, false, "", "", "Tie the head's weight to the embedding.")                            \
  OPTION(number, attention_dropout, 0.0, "min=0,max=0.99", "", "Dropout probability of attention weights.")            \
  OPTION(number, hidden_dropout, 0.0, "min=0,max=0.99", "",                                                            \
         "Dropout probability of the embedding output, and of the attention and MLP outputs before they are added to " \
         "the residual stream.")
STRATA_OPTIONS(GptNeoxOptions, GPT_NEOX_OPTIONS)

constexpr DecoderPreset presets[]{{"none", 0, 0, 0, 0, 0},
                                  {"pythia-14m", 128, 6, 4, 512, 50304},
                                  {"pythia-31m", 256, 6, 8, 1024, 50304},
                                  {"pythia-70m", 512, 6, 8, 2048, 50304},
                                  {"pythia-160m", 768, 12, 12, 3072, 50304},
                                  {"pythia-410m", 1024, 24, 16, 4096, 50304},
                                  {"pythia-1b", 2048, 16, 8, 8192, 50304},
                                  {"pythia-1.4b", 2048, 24, 16, 8192, 50304},
                                  {"pythia-2.8b", 2560, 32, 32, 10240, 50304},
                                  {"pythia-6.9b", 4096, 32, 32, 16384, 50432},
                                  {"pythia-12b", 5120, 36, 40, 20480, 50688}};

DecoderSettings settings_of(const GptNeoxOptions& options) {
  DecoderSettings settings = sizes_of(options, preset_of(options.preset, presets));
  settings.maximum_positions = options.maximum_positions;
  settings.norm_epsilon = options.layer_norm_epsilon;
  settings.block.parallel_residual = options.parallel_residual;
  settings.tie_embeddings = options.tie_embeddings;
  settings.block.rotary.fraction = options.rotary_fraction;
  settings.block.rotary.base = options.rotary_base;
  settings.attention_dropout = options.attention_dropout;
  settings.hidden_dropout = options.hidden_dropout;
  settings.names = {.base = "gpt_neox.",
                    .embedding = "gpt_neox.embed_in",
                    .block = "gpt_neox.layers.",
                    .final_norm = "gpt_neox.final_layer_norm",
                    .head = "embed_out",
                    .attention_norm = "input_layernorm",
                    .mlp_norm = "post_attention_layernorm",
                    .query_key_value = "attention.query_key_value",
                    .attention_output = "attention.dense",
                    .up = "mlp.dense_h_to_4h",
                    .down = "mlp.dense_4h_to_h"};
  return settings;
}

class GptNeox final : public DecoderModel {
  using Kind = DecoderKey::Kind;

 public:
  GptNeox(PluginContext& context, const GptNeoxOptions& options)
      : DecoderModel(
            context, settings_of(options),
            {{"hidden_size", "hidden_size", &DecoderSettings::hidden, Kind::Size},
             {"num_hidden_layers", "layers", &DecoderSettings::layers, Kind::Size},
             {"num_attention_heads", "heads", &DecoderSettings::heads, Kind::Size},
             {"intermediate_size", "intermediate_size", &DecoderSettings::intermediate, Kind::Size},
             {"vocab_size", "vocabulary", &DecoderSettings::vocabulary, Kind::Size},
             {"max_position_embeddings", "maximum_positions", &DecoderSettings::maximum_positions, Kind::Count},
             {"layer_norm_eps", "layer_norm_epsilon", &DecoderSettings::norm_epsilon},
             {"use_parallel_residual", "parallel_residual", &BlockShape::parallel_residual},
             {"tie_word_embeddings", "tie_embeddings", &DecoderSettings::tie_embeddings},
             {"initializer_range", "initializer_range", &DecoderSettings::initializer_range},
             {"attention_dropout", "attention_dropout", &DecoderSettings::attention_dropout, Kind::Chance},
             {"hidden_dropout", "hidden_dropout", &DecoderSettings::hidden_dropout, Kind::Chance}}) {}

  CheckpointNames checkpoint_names() const override {
    CheckpointNames names = DecoderModel::checkpoint_names();
    if (!settings().tie_embeddings) names.names.emplace_back("embed_out.weight", "lm_head.weight");
    for (const char* const ignored : {"*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq"})
      names.ignored.push_back(ignored);
    return names;
  }

 private:
  DecoderSettings complete(DecoderSettings settings) const override {
    if (settings.intermediate == 0) settings.intermediate = 4 * settings.hidden;
    settings.embedding_dropout = settings.hidden_dropout;
    return DecoderModel::complete(std::move(settings));
  }

  // GPTNeoXConfig's defaults.
  void start(const nlohmann::json& file, DecoderSettings& settings) override {
    require_key(file, "model_type", "gpt_neox", "this model is gpt_neox");
    settings.hidden = 6144;
    settings.layers = 44;
    settings.heads = 64;
    settings.intermediate = 24576;
    settings.vocabulary = 50432;
    settings.maximum_positions = 2048;
    settings.norm_epsilon = 1e-5;
    settings.block.parallel_residual = true;
    settings.tie_embeddings = false;
    settings.initializer_range = 0.02;
    settings.attention_dropout = settings.hidden_dropout = 0.0;
  }

  void read(const nlohmann::json& file, DecoderSettings& settings) override {
    settings.block.mlp = read_activation(file, "hidden_act", "gelu", /*gated=*/false);
    require_key(file, "attention_bias", true, "this model has biases in attention");
    if (has_value(file, "head_dim"))
      require_key(file, "head_dim", settings.hidden / settings.heads,
                  "a head of this model has hidden_size / heads elements");
    RotaryShape& rotary = settings.block.rotary;
    rotary = read_rotary(file, {"rotary_emb_base", "rotary_pct", 0.25}, settings.maximum_positions);
    // Names of other families: transformers 4 took the first one, and transformers 5 takes none of them.
    const std::string rule =
        "this model has another rotary embedding by rope_parameters, rotary_emb_base and rotary_pct";
    require_key(file, "rope_theta", rotary.base, rule);
    require_key(file, "partial_rotary_factor", rotary.fraction, rule);
  }

  void report(OptionsInFile& in_file) const override {
    const RotaryShape& rotary = settings().block.rotary;
    in_file.take("rotary_fraction", rotary.fraction, "rotary_pct");
    in_file.take("rotary_base", rotary.base, "rotary_emb_base");
  }

  void write(const DecoderSettings& settings, nlohmann::json& file) const override {
    const RotaryShape& rotary = settings.block.rotary;
    file.update(
        {{"architectures", {"GPTNeoXForCausalLM"}},
         {"attention_bias", true},
         {"hidden_act", "gelu"},
         {"model_type", "gpt_neox"},
         {"rotary_emb_base", rotary.base},
         {"rotary_pct", rotary.fraction},
         {"rope_parameters",
          {{"partial_rotary_factor", rotary.fraction}, {"rope_theta", rotary.base}, {"rope_type", "default"}}}});
  }
};

}  // namespace strata::gpt_neox

STRATA_PLUGIN(strata::gpt_neox::GptNeox, strata::gpt_neox::GptNeoxOptions, GPT_NEOX_OPTIONS)
