#pragma once
#include <c10/core/ScalarType.h>
#include <strata/options.hpp>
#include <strata/options_in_file.hpp>

#include <cstdint>
#include <string>

#define GPT_NEOX_OPTIONS(OPTION)                                                                                   \
  OPTION(text, preset, "none",                                                                                     \
         "one_of=none|pythia-14m|pythia-31m|pythia-70m|pythia-160m|pythia-410m|pythia-1b|pythia-1.4b|pythia-2.8b|" \
         "pythia-6.9b|pythia-12b",                                                                                 \
         "", "The published sizes of a Pythia model; sizes given beside it replace the preset's.")                 \
  OPTION(integer, hidden_size, 0, "min=0", "elements", "Width of the residual stream. 0: the preset's.")           \
  OPTION(integer, layers, 0, "min=0", "blocks", "How many transformer blocks. 0: the preset's.")                   \
  OPTION(integer, heads, 0, "min=0", "heads", "Attention heads; they divide hidden_size. 0: the preset's.")        \
  OPTION(integer, intermediate_size, 0, "min=0", "elements",                                                       \
         "Width inside the MLP. 0: the preset's, or without a preset 4 times hidden_size.")                        \
  OPTION(integer, vocabulary, 0, "min=0", "tokens", "Rows of the embedding and of the head. 0: the preset's.")     \
  OPTION(number, rotary_fraction, 0.25, "min=0,max=1", "", "The part of each head's dimensions that is rotated.")  \
  OPTION(number, rotary_base, 10000.0, "min=1", "", "Base of the rotary frequencies.")                             \
  OPTION(integer, maximum_positions, 2048, "min=1", "tokens", "The longest sequence.")                             \
  OPTION(number, layer_norm_epsilon, 1e-5, "min=0", "", "Added to the variance in layer norms.")                   \
  OPTION(boolean, parallel_residual, true, "", "",                                                                 \
         "Attention and MLP both read the block's input; false: the MLP reads what attention gave.")               \
  OPTION(boolean, tie_embeddings, false, "", "", "The head uses the embedding's weight.")                          \
  OPTION(number, initializer_range, 0.02, "min=0", "", "Standard deviation of the weights at first.")              \
  OPTION(integer, loss_chunk, 0, "min=0", "tokens",                                                                \
         "How many tokens' logits exist at a time. 0: the fewest that cost no time, 512 in fp32 and 1024 in bf16.")

namespace strata::gpt_neox {

STRATA_OPTIONS(GptNeoxOptions, GPT_NEOX_OPTIONS)

// All that fixes the model's shape and arithmetic.
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

  std::int64_t head_size() const { return hidden / heads; }
  // How many of a head's dimensions are rotated: rounded down, as Hugging Face's code does.
  std::int64_t rotary_dimensions() const;
  // Throws UserError naming the size that is missing or does not fit.
  void check() const;
};

// The preset's sizes, replaced by those given beside it; not checked yet, since a config.json may still fill in the
// rest.
Sizes sizes_from_options(const GptNeoxOptions& options);

// The sizes in the text of a Hugging Face config.json. `options` keeps what such a file does not know (loss_chunk).
// Throws UserError naming the key and its value when the file describes something this model is not, lacks a size, or
// contradicts a size in `options`.
Sizes read_hugging_face(const std::string& config_json, const Sizes& options);

// Tells what read_hugging_face() took from the file, under the file's keys.
void tell_file_options(const Sizes& sizes, OptionsInFile& options);

// A config.json for transformers' GPTNeoXForCausalLM, with the keys of its older and newer releases.
std::string write_hugging_face(const Sizes& sizes, at::ScalarType dtype);

}  // namespace strata::gpt_neox
