// Options and presets of the llama plugin, and the settings that they make.
#pragma once
#include <strata/options.hpp>
#include <strata/toolbox/decoder_options.hpp>

#include <cstdint>
#include <string>

namespace strata::llama {

#define LLAMA_VARIANTS "llama|mistral|qwen2"
#define LLAMA_ROTARY_SCALINGS "none|linear|llama3"

#define LLAMA_OPTIONS(OPTION)                                                                                          \
  OPTION(text, preset, "none",                                                                                         \
         "one_of=none|llama-160m|tinyllama-1.1b|llama-2-7b|llama-2-13b|llama-3.2-1b|llama-3.2-3b|llama-3.1-8b|"        \
         "mistral-7b|qwen2-0.5b|qwen2-1.5b|qwen2-7b",                                                                  \
         "", "Published model sizes; the options below override individual sizes.")                                    \
  STRATA_DECODER_OPTIONS(OPTION)                                                                                       \
  OPTION(integer, key_value_heads, 0, "min=0", "heads",                                                                \
         "Number of key-value heads (grouped-query attention); 0: from the preset, or the value of heads.")            \
  OPTION(integer, head_size, 0, "min=0", "elements", "Dimensions per head; 0: hidden_size / heads.")                   \
  OPTION(text, variant, "auto", "one_of=auto|" LLAMA_VARIANTS, "",                                                     \
         "Model family, as named in config.json. qwen2 has biases in queries, keys and values. auto: from the preset " \
         "or the file.")                                                                                               \
  OPTION(number, rotary_base, 0.0, "min=0", "", "Base of the rotary frequencies; 0: from the preset, or 10000.")       \
  OPTION(text, rotary_scaling, "auto", "one_of=auto|" LLAMA_ROTARY_SCALINGS, "",                                       \
         "Method that scales down the rotary frequencies; auto: from the preset or the file.")                         \
  OPTION(number, rotary_factor, 8.0, "min=1", "", "Factor of rotary_scaling.")                                         \
  OPTION(integer, rotary_original_positions, 8192, "min=1", "tokens",                                                  \
         "Sequence length before the scaling, for rotary_scaling: llama3.")                                            \
  OPTION(integer, maximum_positions, 0, "min=0", "tokens", "Maximum sequence length; 0: from the preset, or 4096.")    \
  OPTION(number, rms_norm_epsilon, 0.0, "min=0", "", "Epsilon of the norms; 0: from the preset, or 1e-5.")             \
  OPTION(text, tie_embeddings, "auto", "one_of=auto|true|false", "",                                                   \
         "Tie the head's weight to the embedding; auto: from the preset or the file, else false.")                     \
  OPTION(number, attention_dropout, 0.0, "min=0,max=0.99", "", "Dropout probability of attention weights.")
STRATA_OPTIONS(LlamaOptions, LLAMA_OPTIONS)

enum class Variant { Llama, Mistral, Qwen2 };  // in the order of LLAMA_VARIANTS
constexpr const char* variant_names[]{"llama", "mistral", "qwen2"};
constexpr double default_factor = 8.0;  // of the options, which take it and the length for not given
constexpr std::int64_t default_original_positions = 8192;

// Row of the table of presets; options override each value.
struct Preset : DecoderPreset {
  std::int64_t key_value_heads, head_size;
  Variant variant;
  double rotary_base, rotary_factor;  // 1: no scaling, else llama3's
  std::int64_t maximum_positions;
  bool tie_embeddings;
};
constexpr Preset presets[]{
    {{"none", 0, 0, 0, 0, 0}, 0, 0, Variant::Llama, 1e4, 1, 4096, false},
    {{"llama-160m", 768, 12, 12, 3072, 32000}, 12, 64, Variant::Llama, 1e4, 1, 2048, false},
    {{"tinyllama-1.1b", 2048, 22, 32, 5632, 32000}, 4, 64, Variant::Llama, 1e4, 1, 2048, false},
    {{"llama-2-7b", 4096, 32, 32, 11008, 32000}, 32, 128, Variant::Llama, 1e4, 1, 4096, false},
    {{"llama-2-13b", 5120, 40, 40, 13824, 32000}, 40, 128, Variant::Llama, 1e4, 1, 4096, false},
    {{"llama-3.2-1b", 2048, 16, 32, 8192, 128256}, 8, 64, Variant::Llama, 5e5, 32, 131072, true},
    {{"llama-3.2-3b", 3072, 28, 24, 8192, 128256}, 8, 128, Variant::Llama, 5e5, 32, 131072, true},
    {{"llama-3.1-8b", 4096, 32, 32, 14336, 128256}, 8, 128, Variant::Llama, 5e5, 8, 131072, false},
    {{"mistral-7b", 4096, 32, 32, 14336, 32000}, 8, 128, Variant::Mistral, 1e4, 1, 4096, false},
    {{"qwen2-0.5b", 896, 24, 14, 4864, 151936}, 2, 64, Variant::Qwen2, 1e6, 1, 32768, true},
    {{"qwen2-1.5b", 1536, 28, 12, 8960, 151936}, 2, 128, Variant::Qwen2, 1e6, 1, 32768, true},
    {{"qwen2-7b", 3584, 28, 28, 18944, 152064}, 4, 128, Variant::Qwen2, 1e6, 1, 32768, false}};

// Returns the preset's row, with the values that options override in addition to those of sizes_of().
inline Preset given_preset(const LlamaOptions& options) {
  Preset preset = preset_of(options.preset, presets);
  if (options.heads != 0) preset.key_value_heads = 0;  // sizes of another model
  if (options.heads != 0 || options.hidden_size != 0) preset.head_size = 0;
  if (options.key_value_heads != 0) preset.key_value_heads = options.key_value_heads;
  if (options.head_size != 0) preset.head_size = options.head_size;
  if (options.variant != "auto") preset.variant = choice<Variant>(LLAMA_VARIANTS, options.variant);
  if (options.rotary_base != 0.0) preset.rotary_base = options.rotary_base;
  if (options.maximum_positions != 0) preset.maximum_positions = options.maximum_positions;
  if (options.tie_embeddings != "auto") preset.tie_embeddings = options.tie_embeddings == "true";
  return preset;
}

inline RotaryScaling scaling_of(const LlamaOptions& options, const Preset& preset) {
  using Kind = RotaryScaling::Kind;
  RotaryScaling scaling{.factor = options.rotary_factor, .original_positions = options.rotary_original_positions};
  if (options.rotary_scaling == "auto") {
    scaling.kind = preset.rotary_factor > 1 ? Kind::Llama3 : Kind::None;
    if (preset.rotary_factor > 1 && options.rotary_factor == default_factor) scaling.factor = preset.rotary_factor;
  } else {
    scaling.kind = choice<Kind>(LLAMA_ROTARY_SCALINGS, options.rotary_scaling);
  }
  return scaling;
}

inline DecoderSettings settings_of(const LlamaOptions& options) {
  const Preset preset = given_preset(options);
  DecoderSettings settings = sizes_of(options, preset);
  settings.key_value_heads = preset.key_value_heads;
  settings.head_size = preset.head_size;
  settings.maximum_positions = preset.maximum_positions;
  settings.final_norm = settings.block.norm = BlockShape::Norm::RootMeanSquare;
  settings.norm_epsilon = options.rms_norm_epsilon != 0.0    ? options.rms_norm_epsilon
                          : preset.variant == Variant::Qwen2 ? 1e-6
                                                             : 1e-5;
  settings.block.mlp = BlockShape::Mlp::SwiGlu;
  settings.projections = DecoderShape::Projections::Apart;
  settings.projection_bias = preset.variant == Variant::Qwen2;
  settings.attention_output_bias = false;
  settings.mlp_bias = false;
  settings.tie_embeddings = preset.tie_embeddings;
  settings.block.rotary = {.fraction = 1.0, .base = preset.rotary_base, .scaling = scaling_of(options, preset)};
  settings.attention_dropout = options.attention_dropout;
  settings.names = {.base = "model.",
                    .embedding = "model.embed_tokens",
                    .block = "model.layers.",
                    .final_norm = "model.norm",
                    .head = "lm_head",
                    .attention_norm = "input_layernorm",
                    .mlp_norm = "post_attention_layernorm",
                    .query = "self_attn.q_proj",
                    .key = "self_attn.k_proj",
                    .value = "self_attn.v_proj",
                    .attention_output = "self_attn.o_proj",
                    .gate = "mlp.gate_proj",
                    .up = "mlp.up_proj",
                    .down = "mlp.down_proj"};
  return settings;
}

}  // namespace strata::llama
