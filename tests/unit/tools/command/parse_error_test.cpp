#include "tools/command/parse_error.hpp"

#include <string>
#include <vector>

#include "catch.hpp"

using namespace strata::cli;

namespace {

// Returns the text of the error of a command line with options of each type; empty if it has none.
std::string error_of_words(std::vector<std::string> words) {
  CLI::App app("a test", "tool");
  int ranks = 0, seed = 0;
  double ratio = 0.0, heat = 0.0;
  std::string name, level, input;
  app.require_subcommand(1);
  CLI::App* const run = app.add_subcommand("run", "runs");
  app.add_subcommand("stop", "stops");
  run->add_option("--ranks", ranks)->check(CLI::Range(1, 4096));
  run->add_option("--seed", seed);
  run->add_option("--ratio", ratio)->check(CLI::NonNegativeNumber);
  run->add_option("--heat", heat)->check(CLI::Range(0.0, 1000.0));
  CLI::Option* const named = run->add_option("--name", name);
  CLI::Option* const flag = run->add_flag("--flag");
  run->add_flag("--without")->excludes(named);
  flag->needs(named);
  run->add_option("--level", level)->check(CLI::IsMember({"low", "high"}));
  run->add_option("input", input)->required();
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Error& error) {
    return parse_error_text(app, error);
  }
  return "";
}

}  // namespace

TEST_CASE("each error of a command line is a text of our own") {
  CHECK(error_of_words({"run", "file"}).empty());
  CHECK(error_of_words({}) == "give a command of tool: run, stop");
  CHECK(error_of_words({"rnu"}) == "unknown command 'rnu' of tool; did you mean run?");
  CHECK(error_of_words({"run", "file", "--rank", "4"}) == "unknown option --rank; did you mean --ranks?");
  CHECK(error_of_words({"run", "file", "--nothing-like-it"}) == "unknown option --nothing-like-it");
  CHECK(error_of_words({"run", "file", "other"}) == "unexpected argument 'other'");
  CHECK(error_of_words({"run"}) == "input is missing");
  CHECK(error_of_words({"run", "file", "--ranks", "two"}) ==
        "--ranks is 'two'; it must be a whole number from 1 to 4096");
  CHECK(error_of_words({"run", "file", "--ranks", "5000"}) ==
        "--ranks is '5000'; it must be a whole number from 1 to 4096");
  CHECK(error_of_words({"run", "file", "--heat", "-1"}) == "--heat is '-1'; it must be a number from 0 to 1000");
  CHECK(error_of_words({"run", "file", "--seed", "x"}) == "--seed is 'x'; it must be a whole number");
  CHECK(error_of_words({"run", "file", "--name"}) == "--name needs a value");
  CHECK(error_of_words({"run", "file", "--name", "a", "--name", "b"}) == "--name is given more than once");
  CHECK(error_of_words({"run", "file", "--level", "middle"}) == "--level is 'middle'; it must be one of low, high");
  CHECK(error_of_words({"run", "file", "--flag"}) == "--flag needs --name");
  CHECK(error_of_words({"run", "file", "--without", "--name", "a"}) == "--name and --without cannot be combined");
  // Whatever its form, the text of a check without a template names the option.
  CHECK(error_of_words({"run", "file", "--ratio", "-1"}).starts_with("--ratio"));
}
