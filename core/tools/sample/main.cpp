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

void describe(CommandLine& line, SampleArguments& arguments) {
  CLI::App& command = line.app;
  add_run_options(line, command, arguments.run);
  CLI::Option* const init =
      add_setting(command, "--init", "model.init", arguments.run.settings, "Weights: a folder in Hugging Face format");
  command
      .add_option("--checkpoint", arguments.checkpoint,
                  "Weights: a checkpoint of a training run, or the folder of its checkpoints for the latest one")
      ->excludes(init);
  CLI::Option* const prompt = command.add_option("--prompt", arguments.prompt, "The beginning of the text");
  CLI::Option* const tokenizer = command.add_option(
      "--tokenizer", arguments.tokenizer,
      "tokenizer.json, or its folder, that the model's tokens were made with (default: none, bytes are tokens)");
  command
      .add_option("--prompt-tokens", arguments.prompt_tokens,
                  "In place of --prompt: the numbers of its tokens, separated by commas; the others are printed so too")
      ->type_name("NUMBERS")
      ->excludes(prompt)
      ->excludes(tokenizer);
  command.add_option("--tokens", arguments.tokens, "Tokens to make at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000000));
  command
      .add_option("--temperature", arguments.choice.temperature,
                  "What logits are divided by: below 1 likely tokens gain; 0: always the most likely one")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0));
  command
      .add_option("--top-p", arguments.choice.top_p,
                  "Choose among the most likely tokens that have this probability together; 1: among all")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--top-k", arguments.choice.top_k, "Choose among so many most likely tokens; 0: among all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000000));
  command.add_option("--seed", arguments.choice.seed, "Another seed gives another text")->capture_default_str();
  command
      .add_option("--document-end", arguments.document_end,
                  "Token at which the text ends, none, or auto: data.document_end, else the tokenizer's <|endoftext|> "
                  "or\n<|end_of_text|>, else 0 of bytes")
      ->capture_default_str();
  add_format(command, arguments.format, {"text", "json"});
  command.footer(
      "Prints the prompt and how the model goes on with it, on any layout: the ranks of --nproc, or of a launcher, "
      "share the model\n"
      "as the config says. The same seed gives the same text on all of them, unless rounding decides between two "
      "tokens. Of a text that is\n"
      "longer than model.seq_len the model sees the last tokens.\n"
      "  strata sample configs/quickstart.yaml --checkpoint ckpt --prompt 'The step'\n"
      "  strata sample run.yaml --nproc 2 --set parallel.pipeline=2 --init hf_folder --tokenizer "
      "hf_folder \\\n"
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
          throw UserError(std::string(option) +
                          " does nothing with --temperature 0, which always takes the most likely token; leave one of "
                          "them out");
    return sample_command(arguments, std::cout);
  };
  leave(carry_out(line));
}
