// Presets and config.json of the families beside gpt_neox.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/model.hpp>

#include <c10/core/GradMode.h>

#include <cmath>
#include <set>
#include <string>

#include "catch.hpp"
#include "layers_in_order.hpp"

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
  CHECK_THAT(written, Catch::Contains("\"factor\": 32.0") && !Catch::Contains("\"head_dim\"") &&
                          Catch::Contains("\"original_max_position_embeddings\": 128") &&
                          Catch::Contains("\"tie_word_embeddings\": true"));
  const Plugin again = llama();
  again->configure(written);
  CHECK(again->hugging_face_config(at::kBFloat16) == written);
}

TEST_CASE("a sample longer than a sliding window is refused by the key") {
  const auto too_long = [](const std::string& type, const std::string& keys, std::int64_t tokens) -> std::string {
    const Plugin model = llama();
    model->configure(replaced(replaced(llama_json, "\"model_type\":\"llama\"", "\"model_type\":\"" + type + "\""),
                              "\"vocab_size\":300", "\"vocab_size\":300" + keys));
    CHECK(model->maximum_sequence_length() == 512);
    try {
      model->describe(1, {1, tokens});
      return "";
    } catch (const strata::UserError& error) {
      return error.what();
    }
  };
  CHECK(too_long("mistral", ",\"sliding_window\":100", 100).empty());
  CHECK_THAT(too_long("mistral", ",\"sliding_window\":100", 101), Catch::Contains("sliding_window 100"));
  CHECK(too_long("mistral", ",\"sliding_window\":null", 512).empty());
  CHECK(too_long("mistral", "", 512).empty());
  CHECK(too_long("llama", ",\"sliding_window\":100", 512).empty());
  // Two layers, which qwen2's max_window_layers, 28 if left out, keeps from sliding.
  CHECK(too_long("qwen2", ",\"sliding_window\":100,\"use_sliding_window\":true", 512).empty());
  CHECK(too_long("qwen2", ",\"sliding_window\":100,\"max_window_layers\":0", 512).empty());
  CHECK_THAT(too_long("qwen2", ",\"sliding_window\":100,\"use_sliding_window\":true,\"max_window_layers\":1", 101),
             Catch::Contains("sliding_window 100"));
  CHECK_THAT(too_long("qwen2",
                      ",\"sliding_window\":100,\"use_sliding_window\":true,\"layer_types\":[\"full_attention\","
                      "\"sliding_attention\"]",
                      101),
             Catch::Contains("sliding_window 100"));
}

TEST_CASE("options that contradict a config.json are refused by name") {
  const auto refused = [](const OptionTexts& options, const std::string& text) {
    CHECK_THROWS_WITH(llama(options)->configure(llama_json), Catch::Contains(text));
    CHECK_THROWS_AS(llama(options)->configure(llama_json), strata::UserError);
  };
  refused({{"variant", "mistral"}}, "variant is mistral");
  refused({{"tie_embeddings", "false"}}, "tie_embeddings is false");
  refused({{"rotary_scaling", "linear"}}, "rotary_scaling is linear");
  refused({{"preset", "llama-160m"}}, "hidden_size is 768");
  refused({{"preset", "llama-3.2-1b"},
           {"hidden_size", "64"},
           {"layers", "2"},
           {"heads", "8"},
           {"intermediate_size", "160"},
           {"vocabulary", "300"},
           {"key_value_heads", "2"}},
          "preset is llama-3.2-1b, whose rms_norm_eps");
  CHECK_NOTHROW(llama({{"rotary_scaling", "llama3"}, {"tie_embeddings", "true"}})->configure(llama_json));
  CHECK_THROWS_WITH(llama({{"preset", "llama-160m"}, {"rotary_factor", "2"}})->layers(),
                    Catch::Contains("rotary_factor has no effect"));
  CHECK_THROWS_WITH(
      llama({{"preset", "llama-160m"}, {"rotary_scaling", "linear"}, {"rotary_original_positions", "64"}})->layers(),
      Catch::Contains("rotary_original_positions has no effect"));
  CHECK_THAT(llama({{"preset", "llama-3.2-1b"}, {"rotary_factor", "4"}})->hugging_face_config(at::kFloat),
             Catch::Contains("\"factor\": 4.0"));
}

TEST_CASE("presets have the published rotary parameters and lengths") {
  struct Published {
    const char *preset, *theta, *positions, *epsilon, *rest;
  };
  for (const auto& [preset, theta, positions, epsilon, rest] :
       std::vector<Published>{{"llama-160m", "10000.0", "2048", "1e-05", "\"rope_type\": \"default\""},
                              {"tinyllama-1.1b", "10000.0", "2048", "1e-05", "\"num_key_value_heads\": 4"},
                              {"llama-2-7b", "10000.0", "4096", "1e-05", "\"num_key_value_heads\": 32"},
                              {"llama-3.2-1b", "500000.0", "131072", "1e-05", "\"factor\": 32.0"},
                              {"llama-3.2-3b", "500000.0", "131072", "1e-05", "\"head_dim\": 128"},
                              {"llama-3.1-8b", "500000.0", "131072", "1e-05", "\"factor\": 8.0"},
                              {"mistral-7b", "10000.0", "4096", "1e-05", "\"sliding_window\": null"},
                              {"qwen2-0.5b", "1000000.0", "32768", "1e-06", "\"tie_word_embeddings\": true"},
                              {"qwen2-7b", "1000000.0", "32768", "1e-06", "\"tie_word_embeddings\": false"}}) {
    INFO(preset);
    CHECK_THAT(llama({{"preset", preset}})->hugging_face_config(at::kFloat),
               Catch::Contains(std::string("\"rope_theta\": ") + theta) &&
                   Catch::Contains(std::string("\"max_position_embeddings\": ") + positions) &&
                   Catch::Contains(std::string("\"rms_norm_eps\": ") + epsilon) && Catch::Contains(rest));
  }
}

TEST_CASE("initial deviations of GPT-2 shrink with the depth of the residual stream") {
  const Plugin model = gpt2({{"preset", "gpt2"}});
  for (const strata::ParameterInfo& info : model->describe(1, {}).parameters)
    if (info.name.ends_with("weight") && !info.name.ends_with("ln_1.weight") && !info.name.ends_with("ln_2.weight"))
      CHECK(info.initializer.deviation == Approx(info.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(24.0) : 0.02));
}

// Both parts of the layer give 1 everywhere, before dropout: their matrices are 0, and their biases 1.
TEST_CASE("the two parts of a layer draw their dropout apart, and the embedding drops too") {
  const Plugin model(
      strata::fakes::PluginLibrary(GPT_NEOX_LIBRARY),
      {{"hidden_size", "32"}, {"layers", "1"}, {"heads", "2"}, {"vocabulary", "20"}, {"hidden_dropout", "0.5"}});
  LayersInOrder run(*model, {4, 8, at::kFloat});
  run.make_parameters(at::kFloat, at::kFloat);
  const c10::NoGradGuard no_grad;
  for (auto& [name, parameter] : run.parameters)
    if (name.find("embed") == std::string::npos) parameter.fill_(name.ends_with("bias") ? 1.0 : 0.0);
  strata::MicroBatch batch{at::zeros({4, 8}, at::kLong), at::zeros({4, 8}, at::kLong)};
  batch.random_key = at::full({}, 5, at::kLong);
  const auto share = [](const at::Tensor& values, double wanted) {
    return at::isclose(values, at::full_like(values, wanted)).to(at::kDouble).mean().item<double>();
  };
  // 1024 draws of a half: a share of theirs is off by 1/64 in the mean, and by 5 of these never.
  constexpr double far = 5.0 / 64;
  const at::Tensor parts = run.layer(1).forward({at::zeros({32, 32})}, batch).activations[0];
  CHECK(share(parts, 0.0) == Approx(0.25).margin(far));
  CHECK(share(parts, 2.0) == Approx(0.5).margin(far));
  CHECK(share(parts, 4.0) == Approx(0.25).margin(far));
  CHECK(share(run.layer(0).forward({}, batch).activations[0], 0.0) == Approx(0.5).margin(far));
}

TEST_CASE("a checkpoint of another model is refused by key and value") {
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
  CHECK_THROWS_WITH(gpt2()->configure(llama_json), Catch::Contains("model_type is \"llama\"; this model is gpt2"));
  CHECK_THROWS_WITH(
      gpt2()->configure(
          R"({"model_type":"gpt2","n_embd":8,"n_layer":1,"n_head":2,"vocab_size":9,"activation_function":"relu"})"),
      Catch::Contains("activation_function is \"relu\""));
}
