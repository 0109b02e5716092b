// Model llama: Llama 2 and 3, and what differs from them by options only, Mistral and Qwen2. Parameters carry Hugging
// Face's names and layouts.
#include <strata/options.hpp>
#include <strata/toolbox/decoder_model.hpp>
#include <strata/toolbox/decoder_options.hpp>

namespace strata::llama {

#define LLAMA_OPTIONS(OPTION)                                                                                       \
  OPTION(text, preset, "none",                                                                                      \
         "one_of=none|llama-160m|tinyllama-1.1b|llama-2-7b|llama-2-13b|llama-3.2-1b|llama-3.2-3b|llama-3.1-8b|"     \
         "mistral-7b|qwen2-0.5b|qwen2-1.5b|qwen2-7b",                                                               \
         "", "Published sizes of a model; the options below override single sizes.")                                \
  STRATA_DECODER_OPTIONS(OPTION)                                                                                    \
  OPTION(integer, key_value_heads, 0, "min=0", "heads",                                                             \
         "Heads of keys and values, each for several heads of queries; 0: from the preset, or as many as heads.")   \
  OPTION(integer, head_size, 0, "min=0", "elements", "Dimensions of a head; 0: hidden_size / heads.")               \
  OPTION(text, variant, "auto", "one_of=auto|llama|mistral|qwen2", "",                                              \
         "How files name the model. qwen2: queries, keys and values have biases. auto: as the preset or the file.") \
  OPTION(number, rotary_base, 0.0, "min=0", "", "Base of the rotary frequencies; 0: from the preset, or 10000.")    \
  OPTION(text, rotary_scaling, "auto", "one_of=auto|none|linear|llama3", "",                                        \
         "How rotary frequencies are slowed down; auto: as the preset or the file.")                                \
  OPTION(number, rotary_factor, 8.0, "min=1", "", "By how much rotary_scaling slows them down.")                    \
  OPTION(integer, rotary_original_positions, 8192, "min=1", "tokens",                                               \
         "Sequence length before rotary_scaling, of llama3.")                                                       \
  OPTION(integer, maximum_positions, 0, "min=0", "tokens", "Maximum sequence length; 0: from the preset, or 4096.") \
  OPTION(number, rms_norm_epsilon, 0.0, "min=0", "", "Epsilon of the norms; 0: from the preset, or 1e-5.")          \
  OPTION(text, tie_embeddings, "auto", "one_of=auto|true|false", "",                                                \
         "Tie the head's weight to the embedding; auto: as the preset or the file, or false.")                      \
  OPTION(number, attention_dropout, 0.0, "min=0,max=0.99", "", "Probability that an attention weight is dropped.")
STRATA_OPTIONS(LlamaOptions, LLAMA_OPTIONS)

enum class Variant { Llama, Mistral, Qwen2 };

constexpr DecoderPreset presets[]{
    {"llama-160m", 768, 12, 12, 3072, 32000},      {"tinyllama-1.1b", 2048, 22, 32, 5632, 32000},
    {"llama-2-7b", 4096, 32, 32, 11008, 32000},    {"llama-2-13b", 5120, 40, 40, 13824, 32000},
    {"llama-3.2-1b", 2048, 16, 32, 8192, 128256},  {"llama-3.2-3b", 3072, 28, 24, 8192, 128256},
    {"llama-3.1-8b", 4096, 32, 32, 14336, 128256}, {"mistral-7b", 4096, 32, 32, 14336, 32000},
    {"qwen2-0.5b", 896, 24, 14, 4864, 151936},     {"qwen2-1.5b", 1536, 28, 12, 8960, 151936},
    {"qwen2-7b", 3584, 28, 28, 18944, 152064}};

// What the presets say beside the sizes that all families have.
struct Rest {
  const char* name;
  std::int64_t key_value_heads, head_size;
  Variant variant;
  double rotary_base, rotary_factor;  // 1: no scaling, else llama3's
  std::int64_t maximum_positions;
  bool tie_embeddings;
};
constexpr Rest rests[]{{"llama-160m", 12, 64, Variant::Llama, 1e4, 1, 2048, false},
                       {"tinyllama-1.1b", 4, 64, Variant::Llama, 1e4, 1, 2048, false},
                       {"llama-2-7b", 32, 128, Variant::Llama, 1e4, 1, 4096, false},
                       {"llama-2-13b", 40, 128, Variant::Llama, 1e4, 1, 4096, false},
                       {"llama-3.2-1b", 8, 64, Variant::Llama, 5e5, 32, 131072, true},
                       {"llama-3.2-3b", 8, 128, Variant::Llama, 5e5, 32, 131072, true},
                       {"llama-3.1-8b", 8, 128, Variant::Llama, 5e5, 8, 131072, false},
                       {"mistral-7b", 8, 128, Variant::Mistral, 1e4, 1, 4096, false},
                       {"qwen2-0.5b", 2, 64, Variant::Qwen2, 1e6, 1, 32768, true},
                       {"qwen2-1.5b", 2, 128, Variant::Qwen2, 1e6, 1, 32768, true},
                       {"qwen2-7b", 4, 128, Variant::Qwen2, 1e6, 1, 32768, false}};

Rest rest_of(const LlamaOptions& options) {
  Rest rest{"", 0, 0, Variant::Llama, 1e4, 1, 4096, false};
  for (const Rest& one : rests)
    if (one.name == options.preset) rest = one;
  if (options.heads != 0) rest.key_value_heads = 0;  // sizes of another model
  if (options.heads != 0 || options.hidden_size != 0) rest.head_size = 0;
  if (options.key_value_heads != 0) rest.key_value_heads = options.key_value_heads;
  if (options.head_size != 0) rest.head_size = options.head_size;
  if (options.variant != "auto")
    rest.variant = options.variant == "llama"     ? Variant::Llama
                   : options.variant == "mistral" ? Variant::Mistral
                                                  : Variant::Qwen2;
  if (options.rotary_base != 0.0) rest.rotary_base = options.rotary_base;
  if (options.maximum_positions != 0) rest.maximum_positions = options.maximum_positions;
  if (options.tie_embeddings != "auto") rest.tie_embeddings = options.tie_embeddings == "true";
  return rest;
}

RotaryScaling scaling_of(const LlamaOptions& options, const Rest& rest) {
  using Kind = RotaryScaling::Kind;
  RotaryScaling scaling{.factor = options.rotary_factor, .original_positions = options.rotary_original_positions};
  if (options.rotary_scaling == "auto") {
    scaling.kind = rest.rotary_factor > 1 ? Kind::Llama3 : Kind::None;
    if (rest.rotary_factor > 1) scaling.factor = rest.rotary_factor;
  } else {
    scaling.kind = options.rotary_scaling == "none"     ? Kind::None
                   : options.rotary_scaling == "linear" ? Kind::Linear
                                                        : Kind::Llama3;
  }
  return scaling;
}

DecoderShape shape_of(const LlamaOptions& options) {
  const Rest rest = rest_of(options);
  DecoderShape shape = sizes_of(options, presets);
  shape.key_value_heads = rest.key_value_heads;
  shape.head_size = rest.head_size;
  shape.maximum_positions = rest.maximum_positions;
  shape.norm = DecoderShape::Norm::RootMeanSquare;
  shape.norm_epsilon = options.rms_norm_epsilon != 0.0  ? options.rms_norm_epsilon
                       : rest.variant == Variant::Qwen2 ? 1e-6
                                                        : 1e-5;
  shape.mlp = DecoderShape::Mlp::SwiGlu;
  shape.projections = DecoderShape::Projections::Apart;
  shape.projection_bias = rest.variant == Variant::Qwen2;
  shape.attention_output_bias = false;
  shape.mlp_bias = false;
  shape.tie_embeddings = rest.tie_embeddings;
  shape.rotary_base = rest.rotary_base;
  shape.rotary_scaling = scaling_of(options, rest);
  shape.attention_dropout = options.attention_dropout;
  shape.names = {.embedding = "model.embed_tokens",
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
  return shape;
}

class Llama final : public DecoderModel {
 public:
  Llama(PluginContext& context, const LlamaOptions& options)
      : DecoderModel(context, shape_of(options),
                     {{"hidden_size", "hidden_size", &DecoderShape::hidden, true},
                      {"num_hidden_layers", "layers", &DecoderShape::layers, true},
                      {"num_attention_heads", "heads", &DecoderShape::heads, true},
                      {"num_key_value_heads", "key_value_heads", &DecoderShape::key_value_heads},
                      {"head_dim", "head_size", &DecoderShape::head_size},
                      {"intermediate_size", "intermediate_size", &DecoderShape::intermediate, true},
                      {"vocab_size", "vocabulary", &DecoderShape::vocabulary, true},
                      {"max_position_embeddings", "maximum_positions", &DecoderShape::maximum_positions},
                      {"rms_norm_eps", "rms_norm_epsilon", &DecoderShape::norm_epsilon},
                      {"rope_theta", "rotary_base", &DecoderShape::rotary_base},
                      {"initializer_range", "initializer_range", &DecoderShape::initializer_range},
                      {"attention_dropout", "attention_dropout", &DecoderShape::attention_dropout}}),
        variant_(rest_of(options).variant) {}

  CheckpointNames checkpoint_names() const override {
    CheckpointNames names = DecoderModel::checkpoint_names();
    names.ignored.push_back("*.rotary_emb.inv_freq");
    return names;
  }

 private:
  DecoderShape complete(DecoderShape shape) const override {
    if (shape.intermediate == 0) shape.intermediate = (8 * shape.hidden / 3 + 255) / 256 * 256;
    return DecoderModel::complete(std::move(shape));
  }

  void read(const nlohmann::json& file, DecoderShape& shape) override {
    const auto type = read_key<std::string>(file, "model_type", "llama");
    if (type != "llama" && type != "mistral" && type != "qwen2")
      refuse_key("model_type", type, "this model is llama, and reads mistral and qwen2 too");
    variant_ = type == "llama" ? Variant::Llama : type == "mistral" ? Variant::Mistral : Variant::Qwen2;
    if (!file.contains("num_key_value_heads")) shape.key_value_heads = shape.heads;
    if (!file.contains("head_dim") || file.at("head_dim").is_null()) shape.head_size = 0;
    shape.tie_embeddings = read_key(file, "tie_word_embeddings", false);
    shape.projection_bias = variant_ == Variant::Qwen2;
    require_key(file, "hidden_act", "silu", "this model's activation is silu");
    require_key(file, "mlp_bias", false, "this model has no biases in the MLP");
    require_key(file, "attention_bias", false, "this model has no biases in attention but those of qwen2");
    if (read_key(file, "use_sliding_window", variant_ == Variant::Mistral)) {
      const auto window = file.find("sliding_window");
      if (window != file.end() && !window->is_null())
        shape.maximum_positions = std::min(shape.maximum_positions, read_key(file, "sliding_window", std::int64_t{0}));
    }
    shape.rotary_scaling = {};
    for (const char* const key : {"rope_scaling", "rope_parameters"}) {  // of older and of newer releases
      const auto found = file.find(key);
      if (found == file.end() || found->is_null()) continue;
      if (!found->is_object()) refuse_key(key, *found, "it must be an object");
      read_rotary(*found, shape);
    }
  }

  static void read_rotary(const nlohmann::json& rope, DecoderShape& shape) {
    shape.rotary_base = read_key(rope, "rope_theta", shape.rotary_base);
    const auto type = read_key(rope, "rope_type", read_key<std::string>(rope, "type", "default"));
    if (type == "default") return;
    RotaryScaling& scaling = shape.rotary_scaling;
    if (type != "linear" && type != "llama3")
      refuse_key("rope_type", type, "this model knows \"default\", \"linear\" and \"llama3\"");
    scaling.kind = type == "linear" ? RotaryScaling::Kind::Linear : RotaryScaling::Kind::Llama3;
    scaling.factor = read_key(rope, "factor", 1.0);
    scaling.low_frequency_factor = read_key(rope, "low_freq_factor", scaling.low_frequency_factor);
    scaling.high_frequency_factor = read_key(rope, "high_freq_factor", scaling.high_frequency_factor);
    scaling.original_positions = read_key(rope, "original_max_position_embeddings", scaling.original_positions);
  }

  void write(const DecoderShape& shape, nlohmann::json& file) const override {
    static constexpr const char* types[]{"llama", "mistral", "qwen2"};
    static constexpr const char* classes[]{"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"};
    const auto variant = static_cast<std::size_t>(variant_);
    file.update({{"architectures", {classes[variant]}},
                 {"hidden_act", "silu"},
                 {"model_type", types[variant]},
                 {"tie_word_embeddings", shape.tie_embeddings}});
    if (variant_ == Variant::Mistral) file["sliding_window"] = nullptr;
    if (variant_ == Variant::Qwen2) file["use_sliding_window"] = false;
    if (variant_ == Variant::Llama) file.update({{"attention_bias", false}, {"mlp_bias", false}});
    const RotaryScaling& scaling = shape.rotary_scaling;
    nlohmann::json rope{{"rope_theta", shape.rotary_base}, {"rope_type", "default"}};
    if (scaling.kind != RotaryScaling::Kind::None) {
      rope["rope_type"] = scaling.kind == RotaryScaling::Kind::Linear ? "linear" : "llama3";
      rope["factor"] = scaling.factor;
    }
    if (scaling.kind == RotaryScaling::Kind::Llama3)
      rope.update({{"low_freq_factor", scaling.low_frequency_factor},
                   {"high_freq_factor", scaling.high_frequency_factor},
                   {"original_max_position_embeddings", scaling.original_positions}});
    file["rope_parameters"] = rope;
    if (scaling.kind != RotaryScaling::Kind::None) file["rope_scaling"] = rope;
  }

  Variant variant_;
};

}  // namespace strata::llama

STRATA_PLUGIN(strata::llama::Llama, strata::llama::LlamaOptions, LLAMA_OPTIONS)
