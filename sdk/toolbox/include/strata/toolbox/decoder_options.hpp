// Options of the model plugins of all decoder families; a family's list begins with them.
#pragma once
#include <strata/error.hpp>
#include <strata/toolbox/decoder.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

#define STRATA_DECODER_OPTIONS(OPTION)                                                                                \
  OPTION(integer, hidden_size, 0, "min=0", "elements", "Width of the residual stream; 0: from the preset.")           \
  OPTION(integer, layers, 0, "min=0", "blocks", "Number of transformer blocks; 0: from the preset.")                  \
  OPTION(integer, heads, 0, "min=0", "heads", "Number of attention heads; 0: from the preset.")                       \
  OPTION(integer, intermediate_size, 0, "min=0", "elements",                                                          \
         "Width of the MLP; 0: from the preset, or the family's default for this hidden_size.")                       \
  OPTION(integer, vocabulary, 0, "min=0", "tokens",                                                                   \
         "Vocabulary size, which is the number of rows of the embedding and of the head; 0: from the preset.")        \
  OPTION(number, initializer_range, 0.02, "min=0", "", "Standard deviation of the initial weights.")                  \
  OPTION(integer, loss_chunk, 0, "min=0", "tokens",                                                                   \
         "Tokens per chunk of the logits; smaller chunks save memory. 0: the smallest chunk without loss of speed, "  \
         "512 in fp32 and 1024 in bf16.")                                                                             \
  OPTION(number, z_loss, 0, "min=0,max=1", "",                                                                        \
         "Weight of the z-loss, which keeps the logits small: the mean square of the logarithm of the softmax's "     \
         "denominator, reported as auxiliary_loss. PaLM used 1e-4. 0: no z-loss.")                                    \
  OPTION(boolean, report_largest_logit, false, "", "",                                                                \
         "Report the largest logit of each step as largest_logit. Costs one small all-reduce per step.")              \
  OPTION(integer, mlp_chunk, 0, "min=0", "tokens",                                                                    \
         "Tokens per chunk of the MLP. Each chunk is recomputed in the backward, so that inner activations are kept " \
         "for one chunk only. 0: no chunks and no recomputation.")

namespace strata {

// A decoder as options, a preset and config.json describe it, before its blocks are laid out: `blocks` is empty, and
// all of `layers` blocks begin as `block`.
struct DecoderSettings : DecoderShape {
  std::int64_t layers = 0;
  BlockShape block;
};

// A row of a family's table of presets: published sizes. A family whose presets have more members derives its row type
// from it. The first row is "none", with the values of a model without a preset.
struct DecoderPreset {
  const char* name;
  std::int64_t hidden, layers, heads, intermediate, vocabulary;
};

template <class Preset, std::size_t count>
const Preset& preset_of(const std::string& name, const Preset (&presets)[count]) {
  for (const Preset& preset : presets)
    if (preset.name == name) return preset;
  throw Bug("the table of presets has no row for {}, which the option lists", name);
}

// Returns settings with each size from `options`, or from the preset if the option is 0; 0 if both are.
template <class Options>
DecoderSettings sizes_of(const Options& options, const DecoderPreset& preset) {
  const auto first = [](std::int64_t option, std::int64_t otherwise) { return option != 0 ? option : otherwise; };
  DecoderSettings settings;
  settings.hidden = first(options.hidden_size, preset.hidden);
  settings.layers = first(options.layers, preset.layers);
  settings.heads = first(options.heads, preset.heads);
  settings.intermediate = first(options.intermediate_size, preset.intermediate);
  settings.vocabulary = first(options.vocabulary, preset.vocabulary);
  settings.initializer_range = options.initializer_range;
  settings.loss = {options.loss_chunk, options.z_loss, options.report_largest_logit};
  settings.mlp_chunk = options.mlp_chunk;
  return settings;
}

}  // namespace strata
