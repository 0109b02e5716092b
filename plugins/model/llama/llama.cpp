// Model llama: Llama 2 and 3, and models that differ by options only, Mistral and Qwen2. Parameters carry Hugging
// Face's names and layouts.
#include <strata/toolbox/decoder_model.hpp>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "llama_options.hpp"

namespace strata::llama {

const char* name_of(RotaryScaling::Kind kind) {
  using Kind = RotaryScaling::Kind;
  return kind == Kind::None ? "none" : kind == Kind::Linear ? "linear" : "llama3";
}

class Llama final : public DecoderModel {
  using Kind = DecoderKey::Kind;

 public:
  Llama(PluginContext& context, const LlamaOptions& options)
      : DecoderModel(
            context, settings_of(options),
            {{"hidden_size", "hidden_size", &DecoderSettings::hidden, Kind::Size},
             {"num_hidden_layers", "layers", &DecoderSettings::layers, Kind::Size},
             {"num_attention_heads", "heads", &DecoderSettings::heads, Kind::Size},
             {"num_key_value_heads", "key_value_heads", &DecoderSettings::key_value_heads, Kind::Derived},
             {"head_dim", "head_size", &DecoderSettings::head_size, Kind::Derived},
             {"intermediate_size", "intermediate_size", &DecoderSettings::intermediate, Kind::Size},
             {"vocab_size", "vocabulary", &DecoderSettings::vocabulary, Kind::Size},
             {"max_position_embeddings", "maximum_positions", &DecoderSettings::maximum_positions, Kind::Count},
             {"rms_norm_eps", "rms_norm_epsilon", &DecoderSettings::norm_epsilon},
             {"initializer_range", "initializer_range", &DecoderSettings::initializer_range},
             {"attention_dropout", "attention_dropout", &DecoderSettings::attention_dropout, Kind::Chance}}),
        options_(options),
        variant_(given_preset(options).variant) {}

  CheckpointNames checkpoint_names() const override {
    CheckpointNames names = DecoderModel::checkpoint_names();
    names.ignored.push_back("*.rotary_emb.inv_freq");
    return names;
  }

 private:
  DecoderSettings complete(DecoderSettings settings) const override {
    if (settings.intermediate == 0) settings.intermediate = (8 * settings.hidden / 3 + 255) / 256 * 256;
    return DecoderModel::complete(std::move(settings));
  }

  void check_options() const override {
    const RotaryScaling& scaling = given().block.rotary.scaling;
    const auto refuse = [&](const std::string& option) {
      throw UserError(
          "model {} has no effect, as rotary_scaling is {} by the options or the preset; set rotary_scaling, too, or "
          "leave {} out",
          option, name_of(scaling.kind), option);
    };
    if (scaling.kind == RotaryScaling::Kind::None && options_.rotary_factor != default_factor) refuse("rotary_factor");
    if (scaling.kind != RotaryScaling::Kind::Llama3 && options_.rotary_original_positions != default_original_positions)
      refuse("rotary_original_positions");
  }

  // The defaults of LlamaConfig, MistralConfig and Qwen2Config.
  void start(const nlohmann::json& file, DecoderSettings& settings) override {
    const auto type = value_of<std::string>("model_type", file.at("model_type"));
    const auto* const known = std::find(std::begin(variant_names), std::end(variant_names), type);
    if (known == std::end(variant_names))
      refuse_key("model_type", type, "this model is llama, and reads mistral and qwen2 too");
    variant_ = static_cast<Variant>(known - std::begin(variant_names));
    settings.hidden = 4096;
    settings.layers = settings.heads = 32;
    settings.key_value_heads = variant_ == Variant::Llama ? 0 : variant_ == Variant::Mistral ? 8 : 32;
    settings.head_size = 0;
    settings.intermediate = variant_ == Variant::Llama ? 11008 : variant_ == Variant::Mistral ? 14336 : 22016;
    settings.vocabulary = variant_ == Variant::Qwen2 ? 151936 : 32000;
    settings.maximum_positions = variant_ == Variant::Llama ? 2048 : variant_ == Variant::Mistral ? 131072 : 32768;
    settings.norm_epsilon = 1e-6;
    settings.initializer_range = 0.02;
    settings.attention_dropout = 0.0;
  }

  void read(const nlohmann::json& file, DecoderSettings& settings) override {
    settings.tie_embeddings = read_key(file, "tie_word_embeddings", false);
    settings.projection_bias = variant_ == Variant::Qwen2;
    read_activation(file, "hidden_act", "silu", /*gated=*/true);
    require_key(file, "mlp_bias", false, "this model has no biases in the MLP");
    require_key(file, "attention_bias", false, "this model has no biases in attention but those of qwen2");
    if (variant_ == Variant::Qwen2 && file.contains("head_dim") && file.at("head_dim").is_null())
      refuse_key("head_dim", nullptr, "with model_type qwen2 it must be an integer, or left out");
    settings.block.window = read_window(file);
    RotaryShape& rotary = settings.block.rotary;
    rotary = read_rotary(file, {"rope_theta", "partial_rotary_factor", 1.0}, settings.maximum_positions);
    if (rotary.fraction != 1.0) refuse_key("partial_rotary_factor", rotary.fraction, "this model rotates whole heads");
    check_against(settings);
  }

  // Returns the window of the blocks that slide; 0: none does.
  std::int64_t read_window(const nlohmann::json& file) const {
    constexpr std::int64_t default_window = 4096;
    if (variant_ == Variant::Llama) return 0;
    std::int64_t window = default_window;
    if (file.contains("sliding_window"))
      window =
          file.at("sliding_window").is_null() ? 0 : value_of<std::int64_t>("sliding_window", file["sliding_window"]);
    if (window < 0 || (window == 0 && has_value(file, "sliding_window")))
      refuse_key("sliding_window", window, "it must be at least 1");
    if (variant_ == Variant::Qwen2) return read_key(file, "use_sliding_window", false) ? window : 0;
    if (has_value(file, "layer_types"))
      refuse_key("layer_types", file.at("layer_types"), "the layers of model_type mistral are alike");
    return window;
  }

  // As transformers 5 has it, qwen2 slides in the blocks that layer_types names or, without it, from max_window_layers
  // on.
  std::vector<BlockShape> blocks(const DecoderSettings& settings, const nlohmann::json& file) const override {
    constexpr std::int64_t default_full_layers = 28;
    std::vector<BlockShape> blocks = DecoderModel::blocks(settings, file);
    if (variant_ != Variant::Qwen2) return blocks;
    std::vector<bool> slides(blocks.size(), false);
    if (has_value(file, "layer_types")) {
      slides = read_layer_types(file.at("layer_types"), settings);
    } else if (settings.block.window > 0) {
      const std::int64_t full = read_key(file, "max_window_layers", default_full_layers);
      for (std::size_t i = 0; i < blocks.size(); ++i) slides[i] = static_cast<std::int64_t>(i) >= full;
    }
    for (std::size_t i = 0; i < blocks.size(); ++i)
      if (!slides[i]) blocks[i].window = 0;
    return blocks;
  }

  static std::vector<bool> read_layer_types(const nlohmann::json& types, const DecoderSettings& settings) {
    const bool fits = types.is_array() && static_cast<std::int64_t>(types.size()) == settings.layers;
    if (!fits) refuse_key("layer_types", types, "it must name one type for each layer");
    std::vector<bool> slides;
    for (const nlohmann::json& type : types) {
      if (type != "full_attention" && type != "sliding_attention")
        refuse_key("layer_types", types, "this model has full_attention and sliding_attention");
      slides.push_back(type == "sliding_attention");
      if (slides.back() && settings.block.window == 0)
        refuse_key("layer_types", types, "sliding_attention needs use_sliding_window and sliding_window");
    }
    return slides;
  }

  // Throws UserError for an option that the keys do not cover, or a preset, that is not as the file's settings.
  void check_against(const DecoderSettings& settings) const {
    const auto refuse = [](const std::string& option, const std::string& value, const std::string& in_file) {
      throw UserError("model {} is {}, and config.json has {}; leave {} out to take the file's", option, value, in_file,
                      option);
    };
    const RotaryScaling& scaling = settings.block.rotary.scaling;
    if (options_.variant != "auto" && options_.variant != variant_name())
      refuse("variant", options_.variant, "model_type " + variant_name());
    if (options_.tie_embeddings != "auto" && (options_.tie_embeddings == "true") != settings.tie_embeddings)
      refuse("tie_embeddings", options_.tie_embeddings,
             std::string("tie_word_embeddings ") + (settings.tie_embeddings ? "true" : "false"));
    if (options_.rotary_scaling != "auto" && options_.rotary_scaling != name_of(scaling.kind))
      refuse("rotary_scaling", options_.rotary_scaling, std::string("rotary scaling ") + name_of(scaling.kind));
    if (scaling.kind == RotaryScaling::Kind::None && options_.rotary_factor != default_factor)
      refuse("rotary_factor", nlohmann::json(options_.rotary_factor).dump(), "no rotary scaling");
    if (scaling.kind != RotaryScaling::Kind::Llama3 && options_.rotary_original_positions != default_original_positions)
      refuse("rotary_original_positions", std::to_string(options_.rotary_original_positions),
             std::string("rotary scaling ") + name_of(scaling.kind));
    if (options_.preset == "none") return;
    const DecoderSettings preset = complete(given()), file = complete(settings);
    const auto agree = [&](const char* key, const auto& one, const auto& other) {
      if (one != other)
        refuse("preset", options_.preset + ", whose " + key + " is " + nlohmann::json(one).dump(),
               nlohmann::json(other).dump());
    };
    agree("num_key_value_heads", preset.key_value_heads, file.key_value_heads);
    agree("head_dim", preset.head_size, file.head_size);
    agree("rms_norm_eps", preset.norm_epsilon, file.norm_epsilon);
    agree("rope_theta", preset.block.rotary.base, file.block.rotary.base);
    agree("tie_word_embeddings", preset.tie_embeddings, file.tie_embeddings);
    agree("model_type", variant_names[static_cast<int>(given_preset(options_).variant)], variant_name());
    agree("rope_type", std::string(name_of(preset.block.rotary.scaling.kind)), std::string(name_of(scaling.kind)));
    if (scaling.kind != RotaryScaling::Kind::None) agree("factor", preset.block.rotary.scaling.factor, scaling.factor);
  }

  std::string variant_name() const { return variant_names[static_cast<int>(variant_)]; }

  void report(OptionsInFile& in_file) const override {
    const RotaryScaling& scaling = settings().block.rotary.scaling;
    in_file.take("rotary_base", settings().block.rotary.base, "rope_theta");
    if (scaling.kind != RotaryScaling::Kind::None) in_file.take("rotary_factor", scaling.factor, "factor");
    if (scaling.kind == RotaryScaling::Kind::Llama3)
      in_file.take("rotary_original_positions", scaling.original_positions, "original_max_position_embeddings");
  }

  void write(const DecoderSettings& settings, nlohmann::json& file) const override {
    static constexpr const char* classes[]{"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"};
    file.update({{"architectures", {classes[static_cast<int>(variant_)]}},
                 {"hidden_act", "silu"},
                 {"model_type", variant_name()},
                 {"rope_theta", settings.block.rotary.base},
                 {"tie_word_embeddings", settings.tie_embeddings}});
    if (variant_ == Variant::Mistral) file["sliding_window"] = nullptr;
    if (variant_ == Variant::Qwen2) file["use_sliding_window"] = false;
    if (variant_ == Variant::Llama) file.update({{"attention_bias", false}, {"mlp_bias", false}});
    const RotaryScaling& scaling = settings.block.rotary.scaling;
    nlohmann::json rope{{"rope_theta", settings.block.rotary.base}, {"rope_type", "default"}};
    if (scaling.kind != RotaryScaling::Kind::None) {
      rope["rope_type"] = name_of(scaling.kind);
      rope["factor"] = scaling.factor;
    }
    if (scaling.kind == RotaryScaling::Kind::Llama3)
      rope.update({{"low_freq_factor", scaling.low_frequency_factor},
                   {"high_freq_factor", scaling.high_frequency_factor},
                   {"original_max_position_embeddings", scaling.original_positions}});
    file["rope_parameters"] = rope;
    if (scaling.kind != RotaryScaling::Kind::None) file["rope_scaling"] = rope;
  }

  LlamaOptions options_;
  Variant variant_;
};

}  // namespace strata::llama

STRATA_PLUGIN(strata::llama::Llama, strata::llama::LlamaOptions, LLAMA_OPTIONS)
