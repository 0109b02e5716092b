#include "tools/command/parse_error.hpp"

#include <spdlog/fmt/ranges.h>
#include <strata/format.hpp>

#include <sstream>
#include <vector>

#include "text/nearest.hpp"

namespace strata::cli {

namespace {

// The command whose words were being read.
const CLI::App& last_command(const CLI::App& app) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
  return *last;
}

std::string name_of(const CLI::App& app) {
  const CLI::App& last = last_command(app);
  return &last == &app ? app.get_name() : app.get_name() + " " + last.get_name();
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// The words at the end of `message`, which has the last one first: "The following arguments were not expected: 4 --x".
std::vector<std::string> unexpected_words(const std::string& message) {
  const std::size_t colon = message.find(": ");
  std::istringstream rest(colon == std::string::npos ? "" : message.substr(colon + 2));
  std::vector<std::string> words;
  for (std::string word; rest >> word;) words.insert(words.begin(), word);
  return words;
}

std::string unexpected(const CLI::App& app, const std::vector<std::string>& words, const std::string& message) {
  const CLI::App& last = last_command(app);
  for (const std::string& word : words)
    if (word.starts_with('-')) {
      std::vector<std::string> options;
      for (const CLI::Option* const option : last.get_options())
        for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
      const std::string best = text::near(word.substr(0, word.find('=')), options);
      return "unknown option " + word + (best.empty() ? "" : "; did you mean " + best + "?");
    }
  const std::vector<std::string> commands = commands_of(last);
  if (words.empty()) return message;
  if (commands.empty()) return format("unexpected argument '{}'", words.front());
  return format("unknown command '{}' of {}; {}", words.front(), name_of(app),
                text::suggestion(words.front(), commands));
}

// "{a,b}" as "a, b"; empty if `text` has no braces.
std::string choices_in(const std::string& text) {
  const std::size_t begin = text.find('{'), end = text.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  std::string choices;
  for (const char letter : text.substr(begin + 1, end - begin - 1))
    choices += letter == ',' ? ", " : std::string(1, letter);
  return choices;
}

// A limit without the zeros that std::to_string appends.
std::string limit(const std::string& number) {
  if (number.find('.') == std::string::npos) return number;
  const std::size_t last = number.find_last_not_of('0');
  return number.substr(0, number[last] == '.' ? last : last + 1);
}

// `message`: "--x: Value V not in range A to B", "--x: V not in {a,b}", or a check's own text.
std::string invalid(const std::string& message) {
  const std::size_t colon = message.find(": ");
  if (colon == std::string::npos) return message;
  const std::string option = message.substr(0, colon), rest = message.substr(colon + 2);
  constexpr std::string_view range = " not in range ", value = "Value ";
  const std::size_t at = rest.find(range);
  if (rest.starts_with(value) && at != std::string::npos) {
    const std::string given = rest.substr(value.size(), at - value.size()), limits = rest.substr(at + range.size());
    const std::size_t to = limits.find(" to ");
    if (to == std::string::npos) return message;
    const std::string low = limit(limits.substr(0, to)), high = limits.substr(to + 4);
    const char* const number = limits.find('.') == std::string::npos ? "whole number" : "number";
    const bool bounded = high.size() < 30;  // not the largest number of its type
    return bounded ? format("{} is '{}'; it must be a {} from {} to {}", option, given, number, low, limit(high))
                   : format("{} is '{}'; it must be a {} of at least {}", option, given, number, low);
  }
  if (const std::size_t choices = rest.find(" not in {"); choices != std::string::npos)
    return format("{} is '{}'; it must be one of {}", option, rest.substr(0, choices), choices_in(rest));
  return message;
}

// `message`: "--x: 1 required TEXT missing" or "--x: At Most 1 required but received 2".
std::string wrong_count(const std::string& message) {
  const std::string option = message.substr(0, message.find(": "));
  if (message.find("At Most") != std::string::npos) return option + " is given more than once";
  if (message.find("missing") == std::string::npos && message.find("required") == std::string::npos) return message;
  const std::string choices = choices_in(message);
  return option + " needs a value" + (choices.empty() ? "" : ": " + choices);
}

// `message`: "Could not convert: --x = V".
std::string not_converted(const CLI::App& app, const std::string& message) {
  const std::size_t begin = message.find(": "), middle = message.find(" = ");
  if (begin == std::string::npos || middle == std::string::npos || middle < begin) return message;
  const std::string option = message.substr(begin + 2, middle - begin - 2), value = message.substr(middle + 3);
  const CLI::Option* const found = last_command(app).get_option_no_throw(option);
  const bool real = found != nullptr && found->get_type_name().starts_with("FLOAT");
  return format("{} is '{}'; it must be a {}", option, value, real ? "number" : "whole number");
}

}  // namespace

std::string parse_error_text(const CLI::App& app, const CLI::Error& error) {
  std::string message = error.what();
  const std::string kind = error.get_name();
  // What stands before and behind `word`, with other words between and after them.
  const auto halves = [&](const std::string& word, const std::string& between, const std::string& after = "") {
    const std::size_t at = message.find(word);
    return at == std::string::npos ? message
                                   : message.substr(0, at) + between + message.substr(at + word.size()) + after;
  };
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return unexpected(app, unexpected_words(message), message);
  if (kind == "ValidationError") return invalid(message);
  if (kind == "ArgumentMismatch") return wrong_count(message);
  if (kind == "ConversionError") return not_converted(app, message);
  if (kind == "ExcludesError") return halves(" excludes ", " and ", " cannot be combined");
  if (kind == "RequiresError") return halves(" requires ", " needs ");
  if (kind != "RequiredError") return message;
  if (message == "A subcommand is required") {
    const std::vector<std::string> words = app.remaining(true);
    if (!words.empty()) return unexpected(app, words, message);
    return fmt::format("give a command of {}: {}", name_of(app), fmt::join(commands_of(last_command(app)), ", "));
  }
  return halves(" is required", " is missing");
}

}  // namespace strata::cli
