// Base of a model plugin around a Decoder; a family adds its options, presets, names and config.json. Needs
// nlohmann/json.
#pragma once
#include <strata/model.hpp>
#include <strata/options_in_file.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/decoder_file.hpp>
#include <strata/toolbox/decoder_options.hpp>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

// A key of config.json, the option of the same meaning, and the member that holds the value: of the settings, or of
// the block that all blocks begin as.
struct DecoderKey {
  using Member = std::variant<std::int64_t DecoderSettings::*, double DecoderSettings::*, bool DecoderSettings::*,
                              bool BlockShape::*>;
  enum class Kind {
    Size,     // at least 1; an option or preset other than 0 must be equal
    Derived,  // at least 1, or null: derived from other sizes, as 0 is
    Count,    // at least 1
    Value,    // a switch, or a number of at least 0
    Chance    // a probability below 1
  };
  const char* key;
  const char* option;
  Member member;
  Kind kind = Kind::Value;
  const char* alias = nullptr;  // second name of the key in transformers

  template <class T>
  static auto& value(auto& settings, T DecoderSettings::*member) {
    return settings.*member;
  }
  template <class T>
  static auto& value(auto& settings, T BlockShape::*member) {
    return settings.block.*member;
  }
};

class DecoderModel : public Model {
 public:
  void configure(const std::string& config_json) final {
    const nlohmann::json file = parse_config(config_json);
    if (!file.contains("model_type"))
      throw UserError("config.json: model_type is missing, which names the family; transformers needs it, too");
    DecoderSettings settings = given_;
    start(file, settings);
    refuse_other_models(file);
    std::string absent;
    for (const DecoderKey& key : keys_) {
      const bool there = std::visit([&](auto member) { return read_member(file, key, member, settings); }, key.member);
      if (!there && key.kind == DecoderKey::Kind::Size) absent += (absent.empty() ? "" : ", ") + std::string(key.key);
    }
    read(file, settings);
    try {
      make(std::move(settings), file);
    } catch (const UserError& error) {
      if (absent.empty()) throw;
      throw UserError("{}; config.json leaves out {}, and the default of its model_type was taken", error.what(),
                      absent);
    }
    file_ = file;
    if (in_file_ == nullptr) return;
    for (const DecoderKey& key : keys_)
      std::visit(
          [&](auto member) { in_file_->take(key.option, DecoderKey::value(settings_, member), origin(file, key)); },
          key.member);
    report(*in_file_);
  }

  int layers() const final { return decoder().layers(); }
  std::int64_t vocabulary() const final { return settings().vocabulary; }
  std::int64_t maximum_sequence_length() const final { return settings().maximum_positions; }
  LayerInfo describe(int layer, const BatchShape& batch) const final { return decoder().describe(layer, batch); }
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const final { return decoder().build(layer, context); }
  CheckpointNames checkpoint_names() const override { return decoder().checkpoint_names(); }

  // Returns the config.json of the model's file, if any, with another dtype: unused keys are kept.
  std::string hugging_face_config(at::ScalarType dtype) const final {
    const char* const name = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
    nlohmann::json file = file_;
    if (file.is_null()) {
      file = {{"use_cache", true}, {"bos_token_id", nullptr}, {"eos_token_id", nullptr}};  // a tokenizer's, if any
      for (const DecoderKey& key : keys_)
        std::visit([&](auto member) { file[key.key] = DecoderKey::value(settings(), member); }, key.member);
      write(settings(), file);
    }
    file.update({{"dtype", name}, {"torch_dtype", name}});
    return file.dump(2) + "\n";
  }

 protected:
  // Makes a model. `given`: the settings from the options, which a config.json may complete. `keys`: settings of both.
  DecoderModel(PluginContext& context, DecoderSettings given, std::vector<DecoderKey> keys)
      : given_(std::move(given)),
        keys_(std::move(keys)),
        in_file_(static_cast<OptionsInFile*>(context.extension(OptionsInFile::id))) {}

  // Checks the model_type, and sets the keys' values for a file that lacks them: the defaults of its class.
  virtual void start(const nlohmann::json& file, DecoderSettings& settings) = 0;
  // Reads all other settings of the file; throws UserError, by refuse_key() and require_key(), for another model.
  virtual void read(const nlohmann::json& file, DecoderSettings& settings) = 0;
  // Writes all settings without a key, for a model without a config.json.
  virtual void write(const DecoderSettings& settings, nlohmann::json& file) const = 0;
  // Reports the options that the file sets without a key.
  virtual void report(OptionsInFile& /*in_file*/) const {}
  // Throws UserError if options that stand alone, without a config.json, contradict each other.
  virtual void check_options() const {}
  // Fills in sizes that were not given and follow from others.
  virtual DecoderSettings complete(DecoderSettings settings) const {
    if (settings.key_value_heads == 0) settings.key_value_heads = settings.heads;
    if (settings.head_size == 0 && settings.heads > 0 && settings.hidden % settings.heads == 0)
      settings.head_size = settings.hidden / settings.heads;
    return settings;
  }
  // Returns the blocks of complete settings. A family whose layers differ overrides it. `file`: null without a
  // config.json.
  virtual std::vector<BlockShape> blocks(const DecoderSettings& settings, const nlohmann::json& /*file*/) const {
    return std::vector(static_cast<std::size_t>(settings.layers), settings.block);
  }
  // Returns the complete settings.
  const DecoderSettings& settings() const {
    decoder();
    return settings_;
  }
  const DecoderSettings& given() const { return given_; }

 private:
  // Returns the origin of a key's value.
  static std::string origin(const nlohmann::json& file, const DecoderKey& key) {
    if (file.contains(key.key)) return key.key;
    if (key.alias != nullptr && file.contains(key.alias)) return key.alias;
    return std::string(key.key) + ", left out";
  }

  // Returns false, and leaves the settings as they are, if the file lacks the key.
  template <class T, class Owner>
  bool read_member(const nlohmann::json& file, const DecoderKey& key, T Owner::*member,
                   DecoderSettings& settings) const {
    using Kind = DecoderKey::Kind;
    T& held = DecoderKey::value(settings, member);
    std::string name = key.key;
    if (key.alias != nullptr && file.contains(key.alias)) {
      if (file.contains(name) && file.at(name) != file.at(key.alias))
        refuse_key(key.alias, file.at(key.alias), "it is another name of " + name + ", which has another value");
      name = key.alias;
    }
    const bool there = file.contains(name);
    if (there && key.kind == Kind::Derived && file.at(name).is_null()) {
      held = T{};
      return true;
    }
    const T value = read_key(file, name, held);
    if constexpr (std::is_same_v<T, std::int64_t>) {
      if (there && value < 1) refuse_key(name, value, "it must be at least 1");
      if (member == &DecoderSettings::layers && value > most_layers_of_file)
        refuse_key(name, value, "a model of a file has at most " + std::to_string(most_layers_of_file) + " layers");
      const std::int64_t given = given_.*member;
      if (key.kind == Kind::Size && given != 0 && given != value)  // one of them is not what the user means
        throw UserError(
            "model {} is {} by the options or the preset, but config.json has {} {}; remove the option and the preset "
            "to use the file's sizes",
            key.option, given, name, value);
    } else if constexpr (std::is_same_v<T, double>) {
      if (value < 0.0) refuse_key(name, value, "it must be at least 0");
      if (key.kind == Kind::Chance && value > most_dropped)
        refuse_key(name, value, "a probability of dropout is at most 0.99");
    }
    held = value;
    return there;
  }

  // Returns the decoder, created at the first call: before it, a config.json may still set the sizes.
  const Decoder& decoder() const {
    if (!decoder_) {
      check_options();
      make(given_, nullptr);
    }
    return *decoder_;
  }

  void make(DecoderSettings settings, const nlohmann::json& file) const {
    settings_ = complete(std::move(settings));
    if (settings_.layers > most_layers)
      throw UserError("model layers is {}; at most {} can be described", settings_.layers, most_layers);
    DecoderShape shape = settings_;
    shape.blocks = blocks(settings_, file);
    decoder_.emplace(std::move(shape));
  }

  static constexpr std::int64_t most_layers = 100'000;
  static constexpr std::int64_t most_layers_of_file = 10'000;
  static constexpr double most_dropped = 0.99;

  DecoderSettings given_;
  std::vector<DecoderKey> keys_;
  OptionsInFile* in_file_;            // may be null
  nlohmann::json file_;               // null without a config.json
  mutable DecoderSettings settings_;  // complete, once the decoder is there
  mutable std::optional<Decoder> decoder_;
};

}  // namespace strata
