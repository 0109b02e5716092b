// `strata sample`: a text that goes on as the weights have learned.
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
  std::string checkpoint;                    // a checkpoint, or the folder of several; empty: model.init
  std::optional<std::string> prompt;         // one of the two
  std::optional<std::string> prompt_tokens;  // their numbers
  std::string tokenizer;                     // a tokenizer.json; empty: tokens are bytes
  std::int64_t tokens = 100;                 // to make at most
  Choice choice;
  std::string document_end = "auto";  // a token's number, none, or auto
  std::string format = "text";        // or json
};

// With nproc: checks what can be checked, then starts that many ranks of this program and waits for them. Without:
// samples as one rank. Rank 0 writes. Returns the exit status. Throws UserError.
int sample_command(const SampleArguments& arguments, std::ostream& out);

}  // namespace strata::sample
