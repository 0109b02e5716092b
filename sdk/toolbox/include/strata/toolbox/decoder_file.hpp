// Keys of config.json that all decoder families share: names of activations, rotary parameters, and keys of models that
// no DecoderShape describes. Meanings and defaults are those of transformers 5. Needs nlohmann/json.
#pragma once
#include <strata/toolbox/config_file.hpp>
#include <strata/toolbox/decoder.hpp>

#include <algorithm>
#include <optional>
#include <string>

namespace strata {

// Returns the kind of MLP of an activation of transformers; empty for activations that no BlockShape has.
inline std::optional<BlockShape::Mlp> mlp_of_activation(const std::string& name) {
  if (name == "gelu" || name == "gelu_python") return BlockShape::Mlp::Gelu;
  for (const char* const by_tanh :
       {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "gelu_fast"})  // equal to rounding
    if (name == by_tanh) return BlockShape::Mlp::GeluByTanh;
  if (name == "silu" || name == "swish") return BlockShape::Mlp::SwiGlu;
  return std::nullopt;
}

// Returns the MLP for the activation that `key` names. `gated`: the family's MLP has a gate, with silu; otherwise it
// has a gelu.
inline BlockShape::Mlp read_activation(const nlohmann::json& file, const std::string& key, const std::string& otherwise,
                                       bool gated) {
  const std::string name = read_key<std::string>(file, key, otherwise);
  const std::optional<BlockShape::Mlp> mlp = mlp_of_activation(name);
  if (!mlp || BlockShape::is_gated(*mlp) != gated)
    refuse_key(key, name,
               gated ? "this model's activation is silu, also called swish"
                     : "this model's activation is gelu, or gelu by tanh (gelu_new, gelu_pytorch_tanh, gelu_fast)");
  return *mlp;
}

// Refuses keys that make transformers compute differently with the weights, in any family.
inline void refuse_other_models(const nlohmann::json& file) {
  for (const char* const key : {"quantization_config", "per_layer_config"})
    if (has_value(file, key))
      refuse_key(key, file.at(key), "this model has weights in floating point, and all its layers are alike");
  require_key(file, "is_encoder_decoder", false, "this model is a decoder");
  require_key(file, "is_causal", true, "this model's attention is causal");  // null is false to transformers
}

// A family's keys of rotary parameters other than `rope_parameters`, and their defaults.
struct RotaryKeys {
  const char* base;
  const char* fraction;
  double fraction_otherwise;
};

namespace decoder_file {

// Returns the dictionary that transformers uses: a `rope_scaling` that is not empty replaces `rope_parameters`.
inline nlohmann::json rotary_dictionary(const nlohmann::json& file) {
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    if (!has_value(file, key)) continue;
    const nlohmann::json& rope = file.at(key);
    if (!rope.is_object()) refuse_key(key, rope, "it must be an object");
    for (const auto& [name, value] : rope.items())
      if (value.is_object()) refuse_key(key, rope, "this model has one kind of rotary embedding for all layers");
    if (!rope.empty()) return rope;
  }
  return nlohmann::json::object();
}

inline double required(const nlohmann::json& rope, const std::string& type, const std::string& key) {
  if (!rope.contains(key)) throw UserError("config.json: {} is missing, which rope_type \"{}\" needs", key, type);
  return value_of<double>(key, rope.at(key));
}

inline double scaling_factor(const nlohmann::json& rope, const std::string& type) {
  const double factor = required(rope, type, "factor");
  if (factor < 1.0) refuse_key("factor", factor, "a factor of rotary frequencies is at least 1");
  return factor;
}

inline RotaryScaling llama3_scaling(const nlohmann::json& file, const nlohmann::json& rope, std::int64_t positions) {
  RotaryScaling scaling{RotaryScaling::Kind::Llama3, scaling_factor(rope, "llama3")};
  scaling.low_frequency_factor = required(rope, "llama3", "low_freq_factor");
  scaling.high_frequency_factor = required(rope, "llama3", "high_freq_factor");
  if (scaling.low_frequency_factor <= 0.0 || scaling.high_frequency_factor <= scaling.low_frequency_factor)
    refuse_key("high_freq_factor", scaling.high_frequency_factor, "it must exceed low_freq_factor, and both 0");
  const std::string key = "original_max_position_embeddings";
  scaling.original_positions = read_key(file, key, read_key(rope, key, positions));
  if (scaling.original_positions < 1) refuse_key(key, scaling.original_positions, "it must be at least 1");
  return scaling;
}

}  // namespace decoder_file

// Returns the rotary embedding of all blocks. `positions`: the original length of llama3 if the file has none.
inline RotaryShape read_rotary(const nlohmann::json& file, const RotaryKeys& keys, std::int64_t positions) {
  constexpr double base_otherwise = 10000.0;
  RotaryShape rotary;
  const nlohmann::json rope = decoder_file::rotary_dictionary(file);
  rotary.base = rope.contains("rope_theta") ? value_of<double>("rope_theta", rope.at("rope_theta"))
                                            : read_key(file, keys.base, base_otherwise);
  if (rotary.base < 1.0) refuse_key(keys.base, rotary.base, "the base of frequencies is at least 1");
  const std::string fraction = "partial_rotary_factor";
  rotary.fraction = rope.contains(fraction) ? value_of<double>(fraction, rope.at(fraction))
                                            : read_key(file, keys.fraction, keys.fraction_otherwise);
  if (rotary.fraction < 0.0 || rotary.fraction > 1.0)
    refuse_key(rope.contains(fraction) ? fraction : keys.fraction, rotary.fraction, "it must be from 0 to 1");
  const auto type = read_key<std::string>(rope, "rope_type", read_key<std::string>(rope, "type", "default"));
  if (type == "default") {
    if (rope.contains("factor") && rope.at("factor") != 1.0)
      refuse_key("factor", rope.at("factor"), "without a rope_type it would have no effect; set one, or remove it");
  } else if (type == "dynamic") {
    decoder_file::scaling_factor(rope, type);  // acts on sequences beyond max_position_embeddings, which are refused
  } else if (type == "linear") {
    rotary.scaling = {RotaryScaling::Kind::Linear, decoder_file::scaling_factor(rope, type)};
  } else if (type == "llama3") {
    rotary.scaling = decoder_file::llama3_scaling(file, rope, positions);
  } else {
    refuse_key("rope_type", type, "this model has \"default\", \"linear\", \"llama3\" and \"dynamic\"");
  }
  return rotary;
}

}  // namespace strata
