// Options of the model plugins of all decoder families; a family's list begins with them.
#pragma once
#include <strata/toolbox/decoder.hpp>

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
  OPTION(integer, mlp_chunk, 0, "min=0", "tokens",                                                                    \
         "Tokens per chunk of the MLP. Each chunk is recomputed in the backward, so that inner activations are kept " \
         "for one chunk only. 0: no chunks and no recomputation.")

namespace strata {

// Named published sizes.
struct DecoderPreset {
  const char* name;
  std::int64_t hidden, layers, heads, intermediate, vocabulary;
};

// Returns sizes from `options`, then from the preset that `options` names; 0 if neither has one.
template <class Options, std::size_t count>
DecoderShape sizes_of(const Options& options, const DecoderPreset (&presets)[count]) {
  DecoderShape shape;
  for (const DecoderPreset& preset : presets) {
    if (preset.name != options.preset) continue;
    shape.hidden = preset.hidden;
    shape.layers = preset.layers;
    shape.heads = preset.heads;
    shape.intermediate = preset.intermediate;
    shape.vocabulary = preset.vocabulary;
  }
  const auto take = [](std::int64_t& size, std::int64_t option) {
    if (option != 0) size = option;
  };
  take(shape.hidden, options.hidden_size);
  take(shape.layers, options.layers);
  take(shape.heads, options.heads);
  take(shape.intermediate, options.intermediate_size);
  take(shape.vocabulary, options.vocabulary);
  shape.initializer_range = options.initializer_range;
  shape.loss_chunk = options.loss_chunk;
  shape.mlp_chunk = options.mlp_chunk;
  return shape;
}

}  // namespace strata
