// strata_sample: what `strata sample CONFIG --prompt TEXT` runs. Reads the command line.
#include <strata/deepspeed.hpp>
#include <strata/error.hpp>

#include <iostream>

#include "tools/command/carry_out.hpp"
#include "tools/command/command.hpp"
#include "tools/command/leave.hpp"
#include "tools/sample/sample.hpp"

namespace {

using namespace strata;
using namespace strata::cli;
using namespace strata::sample;

void describe(CommandLine& line, SampleArguments& arguments) {
  CLI::App& command = line.app;
  add_run_options(line, command, arguments.run);
  CLI::Option* const init =
      add_setting(command, "--init", "model.init", arguments.run.settings, "Folder of weights in Hugging Face format");
  command
      .add_option("--checkpoint", arguments.checkpoint,
                  "Checkpoint of a training run, or its folder of checkpoints for the latest one")
      ->excludes(init);
  CLI::Option* const prompt = command.add_option("--prompt", arguments.prompt, "Beginning of the text");
  CLI::Option* const tokenizer =
      command.add_option("--tokenizer", arguments.tokenizer,
                         "tokenizer.json of the model, or its folder (default: none, tokens are bytes)");
  command
      .add_option("--prompt-tokens", arguments.prompt_tokens,
                  "Prompt as token ids, separated by commas; generated tokens are also printed as ids")
      ->type_name("NUMBERS")
      ->excludes(prompt)
      ->excludes(tokenizer);
  command.add_option("--tokens", arguments.tokens, "Maximum number of tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000000));
  command
      .add_option("--temperature", arguments.choice.temperature,
                  "Divisor of the logits; below 1 favours likely tokens, 0 always takes the most likely one")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0));
  command
      .add_option("--top-p", arguments.choice.top_p,
                  "Sample from the most likely tokens that together have this probability; 1: no limit")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--top-k", arguments.choice.top_k, "Sample from the k most likely tokens; 0: no limit")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000000));
  command.add_option("--seed", arguments.choice.seed, "Random seed")->capture_default_str();
  command
      .add_option("--document-end", arguments.document_end,
                  "Token id that ends the text, none, or auto: data.document_end, else the tokenizer's <|endoftext|> "
                  "or <|end_of_text|>, else 0 for byte tokens")
      ->capture_default_str();
  add_format(command, arguments.format, {"text", "json"});
  command.footer(
      "Prints the prompt and its continuation. The ranks of --nproc or of a launcher share the model as configured. "
      "The same seed gives the same text on every layout, unless rounding decides between two tokens. Of a text longer "
      "than model.seq_len, the model reads the last tokens.\n"
      "  strata sample configs/quickstart.yaml --checkpoint ckpt --prompt 'The step'\n"
      "  strata sample run.yaml --nproc 2 --set parallel.pipeline=2 --init hf_folder --tokenizer hf_folder \\\n"
      "    --prompt 'Once upon a time' --tokens 200 --temperature 0");
}

}  // namespace

int main(int argc, char* argv[]) {
  accept_deepspeed_configs();
  CLI::App app("Generate text with trained weights", "strata sample");
  SampleArguments arguments;
  CommandLine line{app, {argv + 1, argv + argc}};
  describe(line, arguments);
  line.action = [&] {
    if (arguments.choice.temperature == 0.0)
      for (const char* const option : {"--top-p", "--top-k", "--seed"})
        if (app.count(option) > 0)
          throw UserError(
              "{} has no effect with --temperature 0, which always takes the most likely token; leave one of them out",
              option);
    return sample_command(arguments, std::cout);
  };
  leave(carry_out(line));
}
