// Model gpt_neox: GPT-NeoX, the architecture of the Pythia family: an embedding, blocks, and a head that computes the
// loss.
#include <strata/error.hpp>
#include <strata/model.hpp>
#include <strata/options_in_file.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "layers.hpp"
#include "sizes.hpp"

namespace strata::gpt_neox {

std::int64_t Sizes::rotary_dimensions() const {
  return static_cast<std::int64_t>(static_cast<double>(head_size()) * rotary_fraction);
}

void Sizes::check() const {
  const std::array<std::pair<const char*, std::int64_t>, 5> needed{{{"hidden_size", hidden},
                                                                    {"layers", layers},
                                                                    {"heads", heads},
                                                                    {"intermediate_size", intermediate},
                                                                    {"vocabulary", vocabulary}}};
  for (const auto& [name, value] : needed) {
    if (value <= 0)
      throw UserError(std::string("model ") + name +
                      " is not set: set it, choose a preset, or set model.init to a folder with a config.json");
  }
  if (hidden % heads != 0) {
    throw UserError("model hidden_size " + std::to_string(hidden) + " is not divisible by heads " +
                    std::to_string(heads));
  }
  if (rotary_fraction < 0.0 || rotary_fraction > 1.0) {
    throw UserError("model rotary_fraction is " + std::to_string(rotary_fraction) + "; it must be between 0 and 1");
  }
  if (rotary_dimensions() % 2 != 0) {
    throw UserError("model rotary_fraction " + std::to_string(rotary_fraction) + " of a head of " +
                    std::to_string(head_size()) + " dimensions rotates " + std::to_string(rotary_dimensions()) +
                    " of them; the number must be even");
  }
}

Sizes sizes_from_options(const GptNeoxOptions& options) {
  struct Preset {
    std::string_view name;
    std::int64_t hidden, layers, heads, intermediate, vocabulary;
  };
  static constexpr std::array<Preset, 11> presets{{
      {"none", 0, 0, 0, 0, 0},
      {"pythia-14m", 128, 6, 4, 512, 50304},
      {"pythia-31m", 256, 6, 8, 1024, 50304},
      {"pythia-70m", 512, 6, 8, 2048, 50304},
      {"pythia-160m", 768, 12, 12, 3072, 50304},
      {"pythia-410m", 1024, 24, 16, 4096, 50304},
      {"pythia-1b", 2048, 16, 8, 8192, 50304},
      {"pythia-1.4b", 2048, 24, 16, 8192, 50304},
      {"pythia-2.8b", 2560, 32, 32, 10240, 50304},
      {"pythia-6.9b", 4096, 32, 32, 16384, 50432},
      {"pythia-12b", 5120, 36, 40, 20480, 50688},
  }};
  const auto preset =
      std::find_if(presets.begin(), presets.end(), [&](const Preset& p) { return p.name == options.preset; });
  strata_check(preset != presets.end(), "every choice of the option preset has its sizes");
  const auto given = [](std::int64_t option, std::int64_t otherwise) { return option != 0 ? option : otherwise; };
  Sizes sizes;
  sizes.hidden = given(options.hidden_size, preset->hidden);
  sizes.layers = given(options.layers, preset->layers);
  sizes.heads = given(options.heads, preset->heads);
  sizes.intermediate = given(options.intermediate_size, preset->intermediate);
  sizes.vocabulary = given(options.vocabulary, preset->vocabulary);
  sizes.rotary_fraction = options.rotary_fraction;
  sizes.rotary_base = options.rotary_base;
  sizes.maximum_positions = options.maximum_positions;
  sizes.layer_norm_epsilon = options.layer_norm_epsilon;
  sizes.parallel_residual = options.parallel_residual;
  sizes.tie_embeddings = options.tie_embeddings;
  sizes.initializer_range = options.initializer_range;
  sizes.loss_chunk = options.loss_chunk;
  sizes.mlp_chunk = options.mlp_chunk;
  return sizes;
}

namespace {

class GptNeox final : public Model {
 public:
  GptNeox(PluginContext& context, const GptNeoxOptions& options)
      : given_(sizes_from_options(options)),
        sizes_(given_),
        in_file_(static_cast<OptionsInFile*>(context.extension(OptionsInFile::id))) {
    if (sizes_.intermediate == 0) sizes_.intermediate = 4 * sizes_.hidden;
  }

  void configure(const std::string& config_json) override {
    sizes_ = read_hugging_face(config_json, given_);
    rotary_.reset();
    if (in_file_ != nullptr) tell_file_options(sizes_, *in_file_);
  }

  int layers() const override { return static_cast<int>(sizes().layers) + 2; }
  std::int64_t vocabulary() const override { return sizes().vocabulary; }
  std::int64_t maximum_sequence_length() const override { return sizes().maximum_positions; }

  LayerInfo describe(int layer, const BatchShape& batch) const override {
    check_layer(layer);
    if (layer == 0) return EmbeddingLayer::describe(sizes(), batch);
    if (layer == layers() - 1) return HeadLayer::describe(sizes(), batch);
    return BlockLayer::describe(sizes(), layer - 1, batch);
  }

  std::unique_ptr<Layer> build(int layer, ModelContext& context) const override {
    check_layer(layer);
    if (layer == 0) return std::make_unique<EmbeddingLayer>(sizes());
    if (layer == layers() - 1) return std::make_unique<HeadLayer>(sizes());
    if (!rotary_) rotary_ = std::make_shared<RotaryTable>(sizes().rotary_dimensions(), sizes().rotary_base);
    return std::make_unique<BlockLayer>(sizes(), layer - 1, context, rotary_);
  }

  CheckpointNames checkpoint_names() const override {
    CheckpointNames names;
    for (int layer = 0; layer < layers(); ++layer) {
      for (const ParameterInfo& info : describe(layer, {}).parameters) {
        const std::pair<std::string, std::string> same{info.name, info.name};
        if (std::find(names.names.begin(), names.names.end(), same) == names.names.end()) names.names.push_back(same);
      }
    }
    names.ignored = {"*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq"};
    if (sizes().tie_embeddings) names.ignored.push_back("embed_out.weight");
    return names;
  }

  std::string hugging_face_config(at::ScalarType dtype) const override { return write_hugging_face(sizes(), dtype); }

 private:
  const Sizes& sizes() const {
    sizes_.check();
    return sizes_;
  }

  void check_layer(int layer) const {
    strata_check(layer >= 0 && layer < layers(), "a layer's number is below layers()");
  }

  Sizes given_;  // by the options, before a config.json
  Sizes sizes_;
  OptionsInFile* in_file_;                       // may be null
  mutable std::shared_ptr<RotaryTable> rotary_;  // one for all layers
};

}  // namespace
}  // namespace strata::gpt_neox

STRATA_PLUGIN(strata::gpt_neox::GptNeox, strata::gpt_neox::GptNeoxOptions, GPT_NEOX_OPTIONS)
