// A model plugin around a Decoder: its family's options, presets, names and config.json are what is left to write.
// Needs nlohmann/json.
#pragma once
#include <strata/error.hpp>
#include <strata/model.hpp>
#include <strata/options_in_file.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/decoder.hpp>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

// A key of config.json, the option that says the same, and where both go. What is `needed` must be in the file and be
// equal to an option that is given.
struct DecoderKey {
  using Member = std::variant<std::int64_t DecoderShape::*, double DecoderShape::*, bool DecoderShape::*>;
  const char* key;
  const char* option;
  Member member;
  bool needed = false;
};

[[noreturn]] inline void refuse_key(const std::string& key, const nlohmann::json& value, const std::string& rule) {
  throw UserError("config.json: " + key + " is " + value.dump() + "; " + rule);
}

// A value of the file, `otherwise` where the key is absent or null.
template <class T>
T read_key(const nlohmann::json& file, const char* key, T otherwise) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return otherwise;
  if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) refuse_key(key, *found, "it must be true or false");
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) refuse_key(key, *found, "it must be a text");
  } else {
    if (!found->is_number()) refuse_key(key, *found, "it must be a number");
  }
  return found->get<T>();
}

// A key that may be absent, or have this one value.
inline void require_key(const nlohmann::json& file, const char* key, const nlohmann::json& wanted, const char* rule) {
  const auto found = file.find(key);
  if (found != file.end() && !found->is_null() && *found != wanted) refuse_key(key, *found, rule);
}

class DecoderModel : public Model {
 public:
  void configure(const std::string& config_json) final {
    const nlohmann::json file = parse(config_json);
    DecoderShape shape = given_;
    for (const DecoderKey& key : keys_)
      std::visit([&](auto member) { read_member(file, key, member, shape); }, key.member);
    read(file, shape);
    decoder_.emplace(complete(std::move(shape)));
    if (in_file_ == nullptr) return;
    for (const DecoderKey& key : keys_)
      std::visit([&](auto member) { in_file_->take(key.option, this->shape().*member, key.key); }, key.member);
  }

  int layers() const final { return decoder().layers(); }
  std::int64_t vocabulary() const final { return shape().vocabulary; }
  std::int64_t maximum_sequence_length() const final { return shape().maximum_positions; }
  LayerInfo describe(int layer, const BatchShape& batch) const final { return decoder().describe(layer, batch); }
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const final { return decoder().build(layer, context); }
  CheckpointNames checkpoint_names() const override { return decoder().checkpoint_names(); }

  std::string hugging_face_config(at::ScalarType dtype) const final {
    const char* const name = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
    nlohmann::json file{{"dtype", name}, {"torch_dtype", name}, {"use_cache", true}};
    for (const DecoderKey& key : keys_) std::visit([&](auto member) { file[key.key] = shape().*member; }, key.member);
    write(shape(), file);
    return file.dump(2) + "\n";
  }

 protected:
  // `given`: the shape by the options, which a config.json may complete. `keys`: what both can say.
  DecoderModel(PluginContext& context, DecoderShape given, std::vector<DecoderKey> keys)
      : given_(std::move(given)),
        keys_(std::move(keys)),
        in_file_(static_cast<OptionsInFile*>(context.extension(OptionsInFile::id))) {}

  // Reads what the keys do not say; throws UserError, by refuse_key() and require_key(), for what is another model.
  virtual void read(const nlohmann::json& file, DecoderShape& shape) = 0;
  // Adds what the keys do not say.
  virtual void write(const DecoderShape& shape, nlohmann::json& file) const = 0;
  // Fills in what follows from other sizes and was not given.
  virtual DecoderShape complete(DecoderShape shape) const {
    if (shape.key_value_heads == 0) shape.key_value_heads = shape.heads;
    if (shape.head_size == 0 && shape.heads > 0 && shape.hidden % shape.heads == 0)
      shape.head_size = shape.hidden / shape.heads;
    return shape;
  }
  const DecoderShape& shape() const { return decoder().shape(); }

 private:
  static nlohmann::json parse(const std::string& text) {
    nlohmann::json file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (file.is_discarded()) throw UserError("config.json is not JSON");  // the engine's reader says where
    if (!file.is_object()) throw UserError("config.json is not a JSON object");
    return file;
  }

  template <class T>
  static void read_member(const nlohmann::json& file, const DecoderKey& key, T DecoderShape::*member,
                          DecoderShape& shape) {
    const auto found = file.find(key.key);
    if (!key.needed) {
      shape.*member = read_key(file, key.key, shape.*member);
      return;
    }
    if (found == file.end())
      throw UserError(std::string("config.json: ") + key.key + " is missing; the model needs it");
    if (!found->is_number_integer() || found->get<std::int64_t>() <= 0)
      refuse_key(key.key, *found, "it must be an integer of at least 1");
    const T value = found->get<T>(), given = shape.*member;
    if (given != T{} && given != value)  // one of them is not what the user means
      throw UserError("model " + std::string(key.option) + " is " + std::to_string(given) +
                      " by the options or the preset, but config.json has " + key.key + " " + std::to_string(value) +
                      "; remove the option and the preset to use the file's sizes");
    shape.*member = value;
  }

  // Made when it is first asked for: until then a config.json may still give the sizes.
  const Decoder& decoder() const {
    if (!decoder_) decoder_.emplace(complete(given_));
    return *decoder_;
  }

  DecoderShape given_;
  std::vector<DecoderKey> keys_;
  OptionsInFile* in_file_;  // may be null
  mutable std::optional<Decoder> decoder_;
};

}  // namespace strata
