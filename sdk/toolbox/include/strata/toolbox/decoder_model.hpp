// Base of a model plugin around a Decoder; a family adds its options, presets, names and config.json. Needs
// nlohmann/json.
#pragma once
#include <strata/model.hpp>
#include <strata/options_in_file.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/decoder_file.hpp>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

// A key of config.json, the option of the same meaning, and the member of the shape that holds the value.
struct DecoderKey {
  using Member = std::variant<std::int64_t DecoderShape::*, double DecoderShape::*, bool DecoderShape::*>;
  enum class Kind {
    Size,     // at least 1; an option or preset other than 0 must be equal
    Derived,  // at least 1, or null: derived from other sizes, as 0 is
    Count,    // at least 1
    Value,    // a switch, or a number of at least 0
    Chance,   // a probability below 1
    InFamily  // read by DecoderModel::read()
  };
  const char* key;
  const char* option;
  Member member;
  Kind kind = Kind::Value;
  const char* alias = nullptr;  // second name of the key in transformers
};

class DecoderModel : public Model {
 public:
  void configure(const std::string& config_json) final {
    const nlohmann::json file = parse_config(config_json);
    if (!file.contains("model_type"))
      throw UserError("config.json: model_type is missing, which names the family; transformers needs it, too");
    DecoderShape shape = given_;
    start(file, shape);
    refuse_other_models(file);
    std::string absent;
    for (const DecoderKey& key : keys_) {
      const bool there = std::visit([&](auto member) { return read_member(file, key, member, shape); }, key.member);
      if (!there && key.kind == DecoderKey::Kind::Size) absent += (absent.empty() ? "" : ", ") + std::string(key.key);
    }
    read(file, shape);
    try {
      decoder_.emplace(complete(std::move(shape)));
    } catch (const UserError& error) {
      if (absent.empty()) throw;
      throw UserError("{}; config.json leaves out {}, and the default of its model_type was taken", error.what(),
                      absent);
    }
    file_ = file;
    if (in_file_ == nullptr) return;
    for (const DecoderKey& key : keys_)
      std::visit([&](auto member) { in_file_->take(key.option, this->shape().*member, origin(file, key)); },
                 key.member);
    report(*in_file_);
  }

  int layers() const final { return decoder().layers(); }
  std::int64_t vocabulary() const final { return shape().vocabulary; }
  std::int64_t maximum_sequence_length() const final { return shape().maximum_positions; }
  LayerInfo describe(int layer, const BatchShape& batch) const final {
    check_length(batch.sequence_length);
    return decoder().describe(layer, batch);
  }
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const final { return decoder().build(layer, context); }
  CheckpointNames checkpoint_names() const override { return decoder().checkpoint_names(); }

  // Returns the config.json of the model's file, if any, with another dtype: unused keys are kept.
  std::string hugging_face_config(at::ScalarType dtype) const final {
    const char* const name = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
    nlohmann::json file = file_;
    if (file.is_null()) {
      file = {{"use_cache", true}, {"bos_token_id", nullptr}, {"eos_token_id", nullptr}};  // a tokenizer's, if any
      for (const DecoderKey& key : keys_) std::visit([&](auto member) { file[key.key] = shape().*member; }, key.member);
      write(shape(), file);
    }
    file.update({{"dtype", name}, {"torch_dtype", name}});
    return file.dump(2) + "\n";
  }

 protected:
  // Makes a model. `given`: the shape from the options, which a config.json may complete. `keys`: settings of both.
  DecoderModel(PluginContext& context, DecoderShape given, std::vector<DecoderKey> keys)
      : given_(std::move(given)),
        keys_(std::move(keys)),
        in_file_(static_cast<OptionsInFile*>(context.extension(OptionsInFile::id))) {}

  // Checks the model_type, and sets the keys' values for a file that lacks them: the defaults of its class.
  virtual void start(const nlohmann::json& file, DecoderShape& shape) = 0;
  // Reads all other settings of the file; throws UserError, by refuse_key() and require_key(), for another model.
  virtual void read(const nlohmann::json& file, DecoderShape& shape) = 0;
  // Writes all settings without a key, for a model without a config.json.
  virtual void write(const DecoderShape& shape, nlohmann::json& file) const = 0;
  // Reports the options that the file sets without a key.
  virtual void report(OptionsInFile& /*in_file*/) const {}
  // Throws UserError if options that stand alone, without a config.json, contradict each other.
  virtual void check_options() const {}
  // Fills in sizes that were not given and follow from others.
  virtual DecoderShape complete(DecoderShape shape) const {
    if (shape.key_value_heads == 0) shape.key_value_heads = shape.heads;
    if (shape.head_size == 0 && shape.heads > 0 && shape.hidden % shape.heads == 0)
      shape.head_size = shape.hidden / shape.heads;
    return shape;
  }
  const DecoderShape& shape() const { return decoder().shape(); }
  const DecoderShape& given() const { return given_; }

 private:
  // Throws UserError for samples that are longer than the file's sliding window.
  void check_length(std::int64_t tokens) const {
    const std::int64_t window = shape().attention_window;
    if (window > 0 && tokens > window)
      throw UserError(
          "model.seq_len is {}, and config.json has sliding_window {}, while attention here sees all tokens before a "
          "token; set model.seq_len to at most {}",
          tokens, window, window);
  }

  // Returns the origin of a key's value.
  static std::string origin(const nlohmann::json& file, const DecoderKey& key) {
    if (file.contains(key.key)) return key.key;
    if (key.alias != nullptr && file.contains(key.alias)) return key.alias;
    return key.kind == DecoderKey::Kind::InFamily ? key.key : std::string(key.key) + ", left out";
  }

  // Returns false, and leaves the shape as it is, if the file lacks the key.
  template <class T>
  bool read_member(const nlohmann::json& file, const DecoderKey& key, T DecoderShape::*member,
                   DecoderShape& shape) const {
    using Kind = DecoderKey::Kind;
    if (key.kind == Kind::InFamily) return true;
    std::string name = key.key;
    if (key.alias != nullptr && file.contains(key.alias)) {
      if (file.contains(name) && file.at(name) != file.at(key.alias))
        refuse_key(key.alias, file.at(key.alias), "it is another name of " + name + ", which has another value");
      name = key.alias;
    }
    const bool there = file.contains(name);
    if (there && key.kind == Kind::Derived && file.at(name).is_null()) {
      shape.*member = T{};
      return true;
    }
    const T value = read_key(file, name, shape.*member);
    if constexpr (std::is_same_v<T, std::int64_t>) {
      if (there && value < 1) refuse_key(name, value, "it must be at least 1");
      if (member == &DecoderShape::layers && value > most_layers)
        refuse_key(name, value, "a model of a file has at most " + std::to_string(most_layers) + " layers");
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
    shape.*member = value;
    return there;
  }

  // Returns the decoder, created at the first call: before it, a config.json may still set the sizes.
  const Decoder& decoder() const {
    if (!decoder_) {
      check_options();
      decoder_.emplace(complete(given_));
    }
    return *decoder_;
  }

  static constexpr std::int64_t most_layers = 10'000;
  static constexpr double most_dropped = 0.99;

  DecoderShape given_;
  std::vector<DecoderKey> keys_;
  OptionsInFile* in_file_;  // may be null
  nlohmann::json file_;     // null without a config.json
  mutable std::optional<Decoder> decoder_;
};

}  // namespace strata
