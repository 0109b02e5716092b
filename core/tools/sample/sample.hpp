// `strata sample`: generates text with trained weights.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "tools/sample/next_token.hpp"
#include "tools/train/train.hpp"

namespace strata::sample {

struct SampleArguments {
  cli::RunArguments run;
  std::string checkpoint;                    // a checkpoint, or a folder of checkpoints; empty: model.init
  std::optional<std::string> prompt;         // exactly one of prompt and prompt_tokens is set
  std::optional<std::string> prompt_tokens;  // token ids

  std::string tokenizer;      // a tokenizer.json; empty: tokens are bytes
  std::int64_t tokens = 100;  // maximum number of tokens to generate
  Choice choice;
  std::string document_end = "auto";  // a token id, none, or auto

  std::string format = "text";  // or json
};

// With nproc: checks the config, then starts that number of ranks of this program and waits for them. Without: samples
// as one rank. Rank 0 writes. Returns the exit status. Throws UserError.
int sample_command(const SampleArguments& arguments, std::ostream& out);

}  // namespace strata::sample
