#pragma once
#include <c10/core/ScalarType.h>
#include <strata/options.hpp>
#include <strata/options_in_file.hpp>

#include <cstdint>
#include <string>

#define GPT_NEOX_OPTIONS(OPTION)                                                                                      \
  OPTION(text, preset, "none",                                                                                        \
         "one_of=none|pythia-14m|pythia-31m|pythia-70m|pythia-160m|pythia-410m|pythia-1b|pythia-1.4b|pythia-2.8b|"    \
         "pythia-6.9b|pythia-12b",                                                                                    \
         "", "Published sizes of a Pythia model; the options below override single sizes.")                           \
  OPTION(integer, hidden_size, 0, "min=0", "elements", "Width of the residual stream; 0: from the preset.")           \
  OPTION(integer, layers, 0, "min=0", "blocks", "Number of transformer blocks; 0: from the preset.")                  \
  OPTION(integer, heads, 0, "min=0", "heads",                                                                         \
         "Number of attention heads; must divide hidden_size; 0: from the preset.")                                   \
  OPTION(integer, intermediate_size, 0, "min=0", "elements",                                                          \
         "Width of the MLP; 0: from the preset, or 4 x hidden_size without a preset.")                                \
  OPTION(integer, vocabulary, 0, "min=0", "tokens",                                                                   \
         "Vocabulary size: rows of the embedding and of the head; 0: from the preset.")                               \
  OPTION(number, rotary_fraction, 0.25, "min=0,max=1", "",                                                            \
         "Fraction of each head's dimensions with rotary embeddings.")                                                \
  OPTION(number, rotary_base, 10000.0, "min=1", "", "Base of the rotary frequencies.")                                \
  OPTION(integer, maximum_positions, 2048, "min=1", "tokens", "Maximum sequence length.")                             \
  OPTION(number, layer_norm_epsilon, 1e-5, "min=0", "", "Epsilon of the layer norms.")                                \
  OPTION(boolean, parallel_residual, true, "", "",                                                                    \
         "Attention and MLP both read the block's input; false: the MLP reads the attention's output.")               \
  OPTION(boolean, tie_embeddings, false, "", "", "Tie the head's weight to the embedding.")                           \
  OPTION(number, initializer_range, 0.02, "min=0", "", "Standard deviation of the initial weights.")                  \
  OPTION(integer, loss_chunk, 0, "min=0", "tokens",                                                                   \
         "Tokens whose logits are computed at a time; fewer save memory. 0: the smallest chunk that is not slower, "  \
         "512 in fp32 and 1024 in bf16.")                                                                             \
  OPTION(integer, mlp_chunk, 0, "min=0", "tokens",                                                                    \
         "Tokens whose MLP is computed at a time, and computed again in backward, so that its inner activations are " \
         "kept for no more tokens than these. 0: all tokens at once, and nothing is computed again.")

namespace strata::gpt_neox {

STRATA_OPTIONS(GptNeoxOptions, GPT_NEOX_OPTIONS)

// Everything that determines the model's shape and arithmetic.
struct Sizes {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;
  double rotary_fraction = 0.25;
  double rotary_base = 10000.0;
  std::int64_t maximum_positions = 2048;
  double layer_norm_epsilon = 1e-5;
  bool parallel_residual = true;
  bool tie_embeddings = false;
  double initializer_range = 0.02;
  std::int64_t loss_chunk = 0;
  std::int64_t mlp_chunk = 0;

  std::int64_t head_size() const { return hidden / heads; }
  // Number of rotated dimensions per head, rounded down as in Hugging Face's code.
  std::int64_t rotary_dimensions() const;
  // Throws UserError naming the size that is missing or invalid.
  void check() const;
};

// The preset's sizes, overridden by other options; not checked yet, because a config.json may still provide the rest.
Sizes sizes_from_options(const GptNeoxOptions& options);

// The sizes in the text of a Hugging Face config.json. Values that such a file does not have (loss_chunk, mlp_chunk)
// come from `options`. Throws UserError naming the key and its value if the file describes another model, lacks a size,
// or contradicts a size in `options`.
Sizes read_hugging_face(const std::string& config_json, const Sizes& options);

// Reports which options read_hugging_face() took from the file, with the file's keys.
void tell_file_options(const Sizes& sizes, OptionsInFile& options);

// The text of a config.json for transformers' GPTNeoXForCausalLM, with the keys of older and newer releases.
std::string write_hugging_face(const Sizes& sizes, at::ScalarType dtype);

}  // namespace strata::gpt_neox
