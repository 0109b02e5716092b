// Presets and config.json of the families beside gpt_neox.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/model.hpp>

#include <set>
#include <string>

#include "catch.hpp"

namespace {

using strata::fakes::OptionTexts;
using Plugin = strata::fakes::LoadedPlugin<strata::Model>;

Plugin gpt2(const OptionTexts& options = {}) {
  return Plugin(strata::fakes::PluginLibrary(GPT2_LIBRARY), options);
}
Plugin llama(const OptionTexts& options = {}) {
  return Plugin(strata::fakes::PluginLibrary(LLAMA_LIBRARY), options);
}

// A tied parameter once.
std::int64_t count_of(const strata::Model& model) {
  std::set<std::string> seen;
  std::int64_t count = 0;
  for (int i = 0; i < model.layers(); ++i)
    for (const strata::ParameterInfo& info : model.describe(i, {1, 8, at::kFloat}).parameters)
      if (seen.insert(info.name).second) count += info.elements();
  return count;
}

const std::string llama_json = R"({"model_type":"llama","hidden_act":"silu","hidden_size":64,"intermediate_size":160,
  "num_hidden_layers":2,"num_attention_heads":8,"num_key_value_heads":2,"vocab_size":300,"max_position_embeddings":512,
  "rms_norm_eps":1e-06,"rope_theta":500000.0,"tie_word_embeddings":true,"attention_bias":false,
  "rope_scaling":{"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
  "original_max_position_embeddings":128}})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("presets of Llama, Mistral and Qwen2 have the published numbers of parameters") {
  for (const auto& [name, count] : std::vector<std::pair<const char*, std::int64_t>>{{"llama-160m", 162417408},
                                                                                     {"tinyllama-1.1b", 1100048384},
                                                                                     {"llama-2-7b", 6738415616},
                                                                                     {"llama-2-13b", 13015864320},
                                                                                     {"llama-3.2-1b", 1235814400},
                                                                                     {"llama-3.2-3b", 3212749824},
                                                                                     {"llama-3.1-8b", 8030261248},
                                                                                     {"mistral-7b", 7241732096},
                                                                                     {"qwen2-0.5b", 494032768},
                                                                                     {"qwen2-1.5b", 1543714304},
                                                                                     {"qwen2-7b", 7615616512}}) {
    INFO(name);
    CHECK(count_of(*llama({{"preset", name}})) == count);
  }
  CHECK_THAT(llama({{"preset", "qwen2-7b"}})->hugging_face_config(at::kFloat),
             Catch::Contains("\"rms_norm_eps\": 1e-06") && Catch::Contains("Qwen2ForCausalLM"));
  CHECK_THAT(llama({{"preset", "llama-3.1-8b"}})->hugging_face_config(at::kFloat),
             Catch::Contains("\"rms_norm_eps\": 1e-05") && Catch::Contains("\"rope_type\": \"llama3\""));
}

TEST_CASE("presets of GPT-2 have the published numbers of parameters") {
  for (const auto& [name, count] : std::vector<std::pair<const char*, std::int64_t>>{
           {"gpt2", 124439808}, {"gpt2-medium", 354823168}, {"gpt2-large", 774030080}, {"gpt2-xl", 1557611200}}) {
    INFO(name);
    CHECK(count_of(*gpt2({{"preset", name}})) == count);
  }
}

TEST_CASE("a config.json of Llama 3 is read and written again") {
  const Plugin model = llama();
  model->configure(llama_json);
  CHECK(model->layers() == 4);
  const auto block = model->describe(1, {}).parameters;
  CHECK(block[3].name == "model.layers.0.self_attn.k_proj.weight");
  CHECK(block[3].shape == std::vector<std::int64_t>{16, 64});
  const std::string written = model->hugging_face_config(at::kBFloat16);
  CHECK_THAT(written, Catch::Contains("\"factor\": 32.0") && Catch::Contains("\"head_dim\": 8") &&
                          Catch::Contains("\"original_max_position_embeddings\": 128") &&
                          Catch::Contains("\"tie_word_embeddings\": true"));
  const Plugin again = llama();
  again->configure(written);
  CHECK(again->hugging_face_config(at::kBFloat16) == written);
}

TEST_CASE("a sliding window bounds the sequence, as attention here sees all of it") {
  const Plugin model = llama();
  const std::string mistral = replaced(llama_json, "\"model_type\":\"llama\"", "\"model_type\":\"mistral\"");
  model->configure(replaced(mistral, "\"vocab_size\":300", "\"vocab_size\":300,\"sliding_window\":100"));
  CHECK(model->maximum_sequence_length() == 100);
  model->configure(replaced(mistral, "\"vocab_size\":300", "\"vocab_size\":300,\"sliding_window\":null"));
  CHECK(model->maximum_sequence_length() == 512);
}

TEST_CASE("what is another model is refused by key and value") {
  const auto refused = [](const std::string& json, const std::string& text) {
    CHECK_THROWS_WITH(llama()->configure(json), Catch::Contains(text));
    CHECK_THROWS_AS(llama()->configure(json), strata::UserError);
  };
  refused(replaced(llama_json, "\"rope_type\":\"llama3\"", "\"rope_type\":\"yarn\""), "rope_type is \"yarn\"");
  refused(replaced(llama_json, "\"model_type\":\"llama\"", "\"model_type\":\"gemma\""), "model_type is \"gemma\"");
  refused(replaced(llama_json, "\"hidden_act\":\"silu\"", "\"hidden_act\":\"gelu\""), "hidden_act is \"gelu\"");
  refused(replaced(llama_json, "\"attention_bias\":false", "\"attention_bias\":true"), "attention_bias is true");
  refused(replaced(llama_json, "\"num_key_value_heads\":2", "\"num_key_value_heads\":3"),
          "heads 8 is not divisible by key_value_heads 3");
  CHECK_THROWS_WITH(gpt2()->configure(llama_json), Catch::Contains("n_embd is missing"));
  CHECK_THROWS_WITH(
      gpt2()->configure(
          R"({"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":2,"vocab_size":9,"activation_function":"relu"})"),
      Catch::Contains("activation_function is \"relu\""));
}
