#include <strata/error.hpp>

#include <nlohmann/json.hpp>

#include "sizes.hpp"

namespace strata::gpt_neox {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& key, const json& value, const std::string& rule) {
  throw UserError("config.json: " + key + " is " + value.dump() + "; " + rule);
}

// A value of the file, `otherwise` where the key is absent or null.
template <class T>
T read(const json& file, const char* key, T otherwise) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return otherwise;
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    refuse(key, *found, std::is_same_v<T, bool> ? "it must be true or false" : "it must be a number");
  }
}

std::int64_t read_size(const json& file, const char* key) {
  const auto found = file.find(key);
  if (found == file.end()) throw UserError(std::string("config.json: ") + key + " is missing; the model needs it");
  if (!found->is_number_integer() || found->get<std::int64_t>() <= 0)
    refuse(key, *found, "it must be an integer of at least 1");
  return found->get<std::int64_t>();
}

// A key that may be absent, or have this one value.
void require(const json& file, const char* key, const json& wanted, const char* rule) {
  const auto found = file.find(key);
  if (found != file.end() && !found->is_null() && *found != wanted) refuse(key, *found, rule);
}

void refuse_other_models(const json& file) {
  require(file, "model_type", "gpt_neox", "this model is gpt_neox");
  require(file, "hidden_act", "gelu", "this model's activation is gelu, the exact one");
  require(file, "attention_bias", true, "this model has biases in attention");
  for (const char* key : {"attention_dropout", "hidden_dropout"}) {
    require(file, key, 0.0, "this model has no dropout; set it to 0.0 in the file");
  }
  require(file, "rope_scaling", nullptr, "this model scales no rotary frequencies");
}

void read_rotary(const json& file, Sizes& sizes) {
  sizes.rotary_fraction = read(file, "rotary_pct", 0.25);
  sizes.rotary_base = read(file, "rotary_emb_base", read(file, "rope_theta", 10000.0));
  const auto found = file.find("rope_parameters");
  if (found == file.end() || found->is_null()) return;
  if (!found->is_object()) refuse("rope_parameters", *found, "it must be an object");
  require(*found, "rope_type", "default", "this model knows rope_type \"default\" only");
  sizes.rotary_fraction = read(*found, "partial_rotary_factor", sizes.rotary_fraction);
  sizes.rotary_base = read(*found, "rope_theta", sizes.rotary_base);
}

// A size given in the options and another one in the file: one of them is not what the user means.
void agree(const char* option, std::int64_t given, const char* key, std::int64_t found) {
  if (given == 0 || given == found) return;
  throw UserError("model " + std::string(option) + " is " + std::to_string(given) +
                  " by the options or the preset, but config.json has " + key + " " + std::to_string(found) +
                  "; remove the option and the preset to use the file's sizes");
}

}  // namespace

Sizes read_hugging_face(const std::string& config_json, const Sizes& options) {
  json file;
  try {
    file = json::parse(config_json);
  } catch (const json::exception& error) {
    throw UserError(std::string("config.json is not JSON: ") + error.what());
  }
  if (!file.is_object()) throw UserError("config.json is not a JSON object");
  refuse_other_models(file);
  Sizes sizes = options;
  sizes.hidden = read_size(file, "hidden_size");
  sizes.layers = read_size(file, "num_hidden_layers");
  sizes.heads = read_size(file, "num_attention_heads");
  sizes.intermediate = read_size(file, "intermediate_size");
  sizes.vocabulary = read_size(file, "vocab_size");
  agree("hidden_size", options.hidden, "hidden_size", sizes.hidden);
  agree("layers", options.layers, "num_hidden_layers", sizes.layers);
  agree("heads", options.heads, "num_attention_heads", sizes.heads);
  agree("intermediate_size", options.intermediate, "intermediate_size", sizes.intermediate);
  agree("vocabulary", options.vocabulary, "vocab_size", sizes.vocabulary);
  read_rotary(file, sizes);
  sizes.maximum_positions = read<std::int64_t>(file, "max_position_embeddings", 2048);
  sizes.layer_norm_epsilon = read(file, "layer_norm_eps", 1e-5);
  sizes.parallel_residual = read(file, "use_parallel_residual", true);
  sizes.tie_embeddings = read(file, "tie_word_embeddings", false);
  sizes.initializer_range = read(file, "initializer_range", 0.02);
  sizes.check();
  return sizes;
}

void tell_file_options(const Sizes& sizes, OptionsInFile& options) {
  options.take("hidden_size", sizes.hidden, "hidden_size");
  options.take("layers", sizes.layers, "num_hidden_layers");
  options.take("heads", sizes.heads, "num_attention_heads");
  options.take("intermediate_size", sizes.intermediate, "intermediate_size");
  options.take("vocabulary", sizes.vocabulary, "vocab_size");
  options.take("rotary_fraction", sizes.rotary_fraction, "rotary_pct");
  options.take("rotary_base", sizes.rotary_base, "rotary_emb_base");
  options.take("maximum_positions", sizes.maximum_positions, "max_position_embeddings");
  options.take("layer_norm_epsilon", sizes.layer_norm_epsilon, "layer_norm_eps");
  options.take("parallel_residual", sizes.parallel_residual, "use_parallel_residual");
  options.take("tie_embeddings", sizes.tie_embeddings, "tie_word_embeddings");
  options.take("initializer_range", sizes.initializer_range, "initializer_range");
}

std::string write_hugging_face(const Sizes& sizes, at::ScalarType dtype) {
  const char* name = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
  return json{
             {"architectures", {"GPTNeoXForCausalLM"}},
             {"attention_bias", true},
             {"attention_dropout", 0.0},
             {"bos_token_id", 0},
             {"dtype", name},
             {"eos_token_id", 0},
             {"hidden_act", "gelu"},
             {"hidden_dropout", 0.0},
             {"hidden_size", sizes.hidden},
             {"initializer_range", sizes.initializer_range},
             {"intermediate_size", sizes.intermediate},
             {"layer_norm_eps", sizes.layer_norm_epsilon},
             {"max_position_embeddings", sizes.maximum_positions},
             {"model_type", "gpt_neox"},
             {"num_attention_heads", sizes.heads},
             {"num_hidden_layers", sizes.layers},
             {"rope_parameters",
              {{"partial_rotary_factor", sizes.rotary_fraction},
               {"rope_theta", sizes.rotary_base},
               {"rope_type", "default"}}},
             {"rotary_emb_base", sizes.rotary_base},
             {"rotary_pct", sizes.rotary_fraction},
             {"tie_word_embeddings", sizes.tie_embeddings},
             {"torch_dtype", name},
             {"use_cache", true},
             {"use_parallel_residual", sizes.parallel_residual},
             {"vocab_size", sizes.vocabulary},
         }
             .dump(2) +
         "\n";
}

}  // namespace strata::gpt_neox
