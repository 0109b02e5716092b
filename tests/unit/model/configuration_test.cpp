// Presets, options, Hugging Face's config.json in both directions, and what describe() says.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/model.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "catch.hpp"

namespace {

using strata::fakes::OptionTexts;
using Plugin = strata::fakes::LoadedPlugin<strata::Model>;

Plugin model_of(const OptionTexts& options = {}) {
  return Plugin(strata::fakes::PluginLibrary(GPT_NEOX_LIBRARY), options);
}

std::int64_t parameters_of(const strata::Model& model) {
  std::int64_t count = 0;
  for (int i = 0; i < model.layers(); ++i) {
    for (const strata::ParameterInfo& info : model.describe(i, {1, 8, at::kFloat}).parameters) count += info.elements();
  }
  return count;
}

// As Pythia's own files have it.
const std::string pythia_json =
    R"({"architectures":["GPTNeoXForCausalLM"],"bos_token_id":0,"eos_token_id":0,"hidden_act":"gelu",
  "hidden_size":64,"initializer_range":0.01,"intermediate_size":200,"layer_norm_eps":1e-06,"max_position_embeddings":512,
  "model_type":"gpt_neox","num_attention_heads":4,"num_hidden_layers":3,"rotary_emb_base":5000,"rotary_pct":0.5,
  "tie_word_embeddings":false,"torch_dtype":"float16","use_cache":true,"use_parallel_residual":false,"vocab_size":300})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("presets have the published numbers of parameters") {
  const std::vector<std::pair<const char*, std::int64_t>> published{
      {"pythia-14m", 14067712},    {"pythia-31m", 30494720},   {"pythia-70m", 70426624},    {"pythia-160m", 162322944},
      {"pythia-410m", 405334016},  {"pythia-1b", 1011781632},  {"pythia-1.4b", 1414647808}, {"pythia-2.8b", 2775208960},
      {"pythia-6.9b", 6857302016}, {"pythia-12b", 11846072320}};
  for (const auto& [name, count] : published) {
    const Plugin model = model_of({{"preset", name}});
    INFO(name);
    CHECK(parameters_of(*model) == count);
  }
}

TEST_CASE("sizes beside a preset replace the preset's") {
  const Plugin model = model_of({{"preset", "pythia-70m"}, {"layers", "2"}, {"vocabulary", "1000"}});
  CHECK(model->layers() == 4);
  CHECK(model->vocabulary() == 1000);
  CHECK(model->describe(1, {1, 8, at::kFloat}).parameters[4].shape == std::vector<std::int64_t>{1536, 512});
}

TEST_CASE("a size that is missing or does not fit is named") {
  CHECK_THROWS_WITH(model_of()->layers(), Catch::Contains("hidden_size is not set"));
  CHECK_THROWS_WITH(model_of({{"preset", "pythia-70m"}, {"heads", "7"}})->layers(),
                    Catch::Contains("512 is not divisible by heads 7"));
  CHECK_THROWS_WITH(model_of({{"preset", "pythia-70m"}, {"heads", "8"}, {"rotary_fraction", "0.05"}})->layers(),
                    Catch::Contains("the number must be even"));
}

TEST_CASE("describe names layers, parameters and shapes") {
  const Plugin model = model_of({{"preset", "pythia-14m"}});
  const strata::BatchShape batch{4, 256, at::kBFloat16};
  CHECK(model->layers() == 8);
  CHECK(model->describe(0, batch).name == "embedding");
  CHECK(model->describe(7, batch).name == "head");
  CHECK(model->describe(7, batch).outputs.empty());
  const strata::LayerInfo block = model->describe(4, batch);
  CHECK(block.name == "block 3");
  CHECK(block.outputs.at(0).extents == std::vector<std::int64_t>{4 * 256, 128});
  CHECK(block.outputs.at(0).dtype == at::kBFloat16);
  CHECK(block.parameters.size() == 12);
  CHECK(block.parameters[4].name == "gpt_neox.layers.3.attention.query_key_value.weight");
  CHECK(block.parameters[4].initializer.deviation == 0.02);
  CHECK(block.parameters[5].initializer.kind == strata::Initializer::Kind::Zeros);
  CHECK(block.parameters[0].initializer.kind == strata::Initializer::Kind::Ones);
  const double tokens = 4 * 256;
  CHECK(block.forward_flops == Approx(2 * tokens * (12 * 128 * 128) + 4 * tokens * 256 * 128));
  CHECK(model->describe(7, batch).forward_flops == Approx(2 * tokens * 128 * 50304));
}

TEST_CASE("the layers built have the parameters described") {
  for (const bool tied : {false, true}) {
    const Plugin model = model_of({{"preset", "pythia-14m"}, {"tie_embeddings", tied ? "true" : "false"}});
    struct Context final : strata::ModelContext {
      strata::BatchShape shape;
      const strata::BatchShape& batch() const override { return shape; }
      at::Tensor linear(const at::Tensor& x, const strata::Parameter&, const strata::Parameter*) override { return x; }
    } context;
    for (int i = 0; i < model->layers(); ++i) {
      const strata::LayerInfo info = model->describe(i, {});
      const auto layer = model->build(i, context);
      REQUIRE(layer->parameters().size() == info.parameters.size());
      for (std::size_t j = 0; j < info.parameters.size(); ++j) {
        CHECK(layer->parameters()[j]->info.name == info.parameters[j].name);
        CHECK(layer->parameters()[j]->info.shape == info.parameters[j].shape);
        CHECK(layer->parameters()[j]->info.tie == info.parameters[j].tie);
      }
    }
    const auto names = model->checkpoint_names();
    const auto holds = [&](const std::string& name) {
      return std::count(names.names.begin(), names.names.end(), std::pair(name, name)) == 1;
    };
    CHECK(std::ranges::count_if(names.names, [](const auto& name) { return name.first == name.second; }) ==
          (tied ? 75 : 76));
    CHECK(std::count(names.names.begin(), names.names.end(),
                     std::pair<std::string, std::string>("gpt_neox.embed_in.weight", "embed_in.weight")) == 1);
    CHECK(std::count(names.names.begin(), names.names.end(),
                     std::pair<std::string, std::string>("gpt_neox.embed_in.weight", "embed_out.weight")) == tied);
    CHECK(holds("gpt_neox.embed_in.weight"));
    CHECK(holds("embed_out.weight") == !tied);
    CHECK_THROWS_AS(model->describe(8, {}), strata::Bug);
  }
}

TEST_CASE("config.json of older and newer releases is read") {
  const auto model = model_of();
  model->configure(pythia_json);
  CHECK(model->layers() == 5);
  CHECK(model->vocabulary() == 300);
  CHECK(model->maximum_sequence_length() == 512);
  CHECK(model->describe(1, {}).parameters[8].shape == std::vector<std::int64_t>{200, 64});
}

TEST_CASE("a config.json comes out as it went in, with another dtype") {
  using nlohmann::json;
  const std::string text =
      with(pythia_json, R"("use_cache":true)", R"("use_cache":null,"eos_token_id":7,"own key":[1])");
  const auto model = model_of();
  model->configure(text);
  json expected = json::parse(text);
  expected["dtype"] = expected["torch_dtype"] = "bfloat16";
  const std::string written = model->hugging_face_config(at::kBFloat16);
  CHECK(json::parse(written) == expected);
  const auto again = model_of();
  again->configure(written);
  CHECK(again->hugging_face_config(at::kBFloat16) == written);
}

TEST_CASE("a config.json without a source names no token") {
  const auto config = nlohmann::json::parse(model_of({{"preset", "pythia-14m"}})->hugging_face_config(at::kFloat));
  for (const char* key : {"bos_token_id", "eos_token_id"}) CHECK(config.at(key).is_null());
}

TEST_CASE("a key that config.json leaves out has the default of transformers") {
  const auto model = model_of();
  model->configure(R"({"model_type":"gpt_neox","num_hidden_layers":1})");
  CHECK(model->vocabulary() == 50432);
  CHECK(model->maximum_sequence_length() == 2048);
  CHECK(model->describe(1, {}).parameters[8].shape == std::vector<std::int64_t>{24576, 6144});
  CHECK_THROWS_WITH(model_of()->configure(R"({"model_type":"gpt_neox","num_hidden_layers":1,"num_attention_heads":7})"),
                    Catch::Contains("config.json leaves out hidden_size"));
}

TEST_CASE("a config.json of another model is refused by key and value") {
  const auto refused = [](const std::string& json, const std::string& text) {
    INFO(json);
    CHECK_THROWS_WITH(model_of()->configure(json), Catch::Contains(text));
    CHECK_THROWS_AS(model_of()->configure(json), strata::UserError);
  };
  refused(with(pythia_json, R"("hidden_act":"gelu")", R"("hidden_act":"relu")"), R"(hidden_act is "relu")");
  refused(with(pythia_json, R"("model_type":"gpt_neox")", R"("model_type":"llama")"), R"(model_type is "llama")");
  refused(with(pythia_json, R"("use_cache":true)", R"("attention_bias":false)"), "attention_bias is false");
  refused(with(pythia_json, R"("use_cache":true)", R"("hidden_dropout":"much")"), "hidden_dropout is \"much\"");
  refused(with(pythia_json, R"("use_cache":true)", R"("rope_scaling":{"type":"linear"})"), "factor is missing");
  refused(with(pythia_json, R"("use_cache":true)", R"("quantization_config":{"bits":4})"), "quantization_config");
  refused(with(pythia_json, R"("use_cache":true)", R"("is_causal":null)"), "is_causal is null");
  refused(with(pythia_json, R"("layer_norm_eps":1e-06)", R"("layer_norm_eps":null)"), "layer_norm_eps is null");
  refused(with(pythia_json, R"("hidden_size":64)", R"("hidden_size":64.5)"), "hidden_size is 64.5");
  refused(with(pythia_json, R"("num_hidden_layers":3)", R"("num_hidden_layers":1000000000)"), "num_hidden_layers");
  refused(with(pythia_json, R"("use_cache":true)", R"("rope_parameters":{"rope_type":"yarn"})"),
          "rope_type is \"yarn\"");
  refused(with(pythia_json, R"("use_cache":true)", R"("rope_parameters":3)"), "rope_parameters is 3");
  refused(with(pythia_json, R"("hidden_size":64)", R"("hidden_size":"64")"), "hidden_size is \"64\"");
  refused(with(pythia_json, R"("hidden_size":64)", R"("hidden_size":66)"), "66 is not divisible by heads 4");
  refused(with(pythia_json, R"("rotary_pct":0.5)", R"("rotary_pct":"half")"), "rotary_pct is \"half\"");
  refused("", "not JSON");
  refused("[1]", "not a JSON object");
  CHECK_THROWS_WITH(model_of({{"preset", "pythia-70m"}})->configure(pythia_json),
                    Catch::Contains("hidden_size is 512") && Catch::Contains("64"));
}
