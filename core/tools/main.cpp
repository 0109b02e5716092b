// The `strata` command: reads the command line and calls the command.
#include <strata/deepspeed.hpp>

#include "tools/command/carry_out.hpp"
#include "tools/command/command.hpp"
#include "tools/command/leave.hpp"
#include "tools/version/version.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

int run(int argc, char* argv[]) {
  accept_deepspeed_configs();
  CLI::App app(
      "Trains large transformer models. ZeRO stage, precision, pipeline schedule, optimizer and offload are plugins "
      "chosen in the config.",
      "strata");
  app.require_subcommand(1);
  app.set_version_flag("--version", version::text());
  CommandLine line{app, {argv + 1, argv + argc}};
  app.add_option("--log-level", line.log_level, "Minimum severity of messages on stderr")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "err", "off"}));
  add_words(line);
  app.footer(
      "Start here:\n"
      "  strata doctor                                      machine resources, usable plugins and the folder CONFIGS\n"
      "  strata data pack my_texts/ -o quickstart.bin       convert text files to a token file\n"
      "  strata train CONFIGS/quickstart.yaml --nproc 2     train a small model on two ranks\n"
      "  strata plan CONFIGS/quickstart.yaml --ranks 8      memory and traffic of each rank, without training\n"
      "`strata COMMAND --help` describes a command. Exit status: 0 success; 2 wrong input; 3 failure of the machine or "
      "a file system; 70 internal error. train also returns 130 or 143 for a run ended by a signal.");
  return carry_out(line);
}

}  // namespace

int main(int argc, char* argv[]) {
  leave(run(argc, argv));
}
