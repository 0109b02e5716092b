#include "config/schema.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

#include "config/nearest.hpp"
#include "config/scalar.hpp"
#include "config/size.hpp"

namespace strata::config {
namespace {

struct TypeName {
  const char* name;
  const char* article;  // as messages call it
  const char* example;
};
constexpr std::array<TypeName, 8> kTypes{{{"integer", "an integer", "4 or 5e8"},
                                          {"number", "a number", "0.1 or 6e-4"},
                                          {"boolean", "true or false", "true"},
                                          {"text", "a text", "train.bin"},
                                          {"size", "a size in bytes", "65536, 16MB or 16MiB"},
                                          {"integers", "a list of integers", "[0, 1]"},
                                          {"numbers", "a list of numbers", "[0.9, 0.95]"},
                                          {"choice", "one of the choices", ""}}};

const TypeName* type_of(const OptionSpec& option) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& type) { return option.type == type.name; });
  return found == kTypes.end() ? nullptr : &*found;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string with_unit(const std::string& bound, const OptionSpec& option) {
  return bound + (option.unit.empty() || option.type == "size" ? "" : " " + option.unit);
}

// Types one scalar, and says with its place what is wrong with it.
class Typing {
 public:
  Typing(const OptionSpec& option, const std::string& path) : option_(option), path_(path) {}

  std::int64_t integer(const Node& node) const {
    const std::optional<std::int64_t> value = node.quoted ? std::nullopt : parse_integer(node.text);
    if (!value) fail(node, "is not an integer (" + number_rule(node, "4 or 5e8") + ")");
    check_range(node, *value, parse_integer(option_.minimum), parse_integer(option_.maximum));
    return *value;
  }

  double number(const Node& node) const {
    const std::optional<double> value = node.quoted ? std::nullopt : parse_number(node.text);
    if (!value) fail(node, "is not a finite number (" + number_rule(node, "0.1 or 6e-4") + ")");
    check_range(node, *value, parse_number(option_.minimum), parse_number(option_.maximum));
    return *value;
  }

  bool boolean(const Node& node) const {
    const std::optional<bool> value = node.quoted ? std::nullopt : parse_boolean(node.text);
    if (!value) fail(node, "is neither true nor false, written without quotes");
    return *value;
  }

  std::int64_t size(const Node& node) const {
    const std::optional<std::int64_t> value = parse_bytes(node.text);  // quoted or not: TOML and JSON must quote 16MB
    if (!value) fail(node, "is not a size in bytes (like 65536, 16MB = 16000000 or 16MiB = 16777216)");
    check_range(node, *value, parse_bytes(option_.minimum), parse_bytes(option_.maximum));
    return *value;
  }

  std::string choice(const Node& node) const {
    if (std::find(option_.choices.begin(), option_.choices.end(), node.text) == option_.choices.end()) {
      fail(node, "is not one of " + joined(option_.choices));
    }
    return node.text;
  }

 private:
  [[noreturn]] void fail(const Node& node, const std::string& rule) const {
    throw UserError(node.place,
                    path_ + ": " + (node.quoted ? shown(node.text) + " in quotes" : shown(node.text)) + " " + rule);
  }

  static std::string number_rule(const Node& node, const std::string& example) {
    return node.quoted ? "numbers are written without quotes" : "like " + example;
  }

  template <typename Value>
  void check_range(const Node& node, Value value, std::optional<Value> minimum, std::optional<Value> maximum) const {
    if (minimum && value < *minimum) fail(node, "is below the minimum " + with_unit(option_.minimum, option_));
    if (maximum && value > *maximum) fail(node, "is above the maximum " + with_unit(option_.maximum, option_));
  }

  const OptionSpec& option_;
  const std::string& path_;
};

void check_shape(const Node& node, const OptionSpec& option, const std::string& path) {
  const TypeName* type = type_of(option);
  if (type == nullptr) throw UserError(path + ": unknown option type " + shown(option.type));
  const bool list = option.type == "integers" || option.type == "numbers";
  std::string expected = std::string(", where ") + type->article + " is expected";
  if (option.type == "choice") {
    expected += " (" + joined(option.choices) + ")";
  } else {
    expected += std::string(" (like ") + type->example + ")";
  }
  const auto refuse = [&](const Node& wrong, const std::string& found) {
    throw UserError(wrong.place, path + ": " + found + expected);
  };
  if (node.kind == NodeKind::Null) refuse(node, "no value");
  if (node.kind == NodeKind::Map) refuse(node, "a section");
  if (!list && node.kind == NodeKind::Sequence) refuse(node, "a list");
  if (list && node.kind == NodeKind::Scalar) refuse(node, shown(node.text));
  for (const Node& item : node.items) {
    if (item.kind != NodeKind::Scalar) refuse(item, "something else than a value in the list");
  }
}

}  // namespace

OptionValue typed_option(const Node& node, const OptionSpec& option, const std::string& path) {
  check_shape(node, option, path);
  const Typing typing(option, path);
  if (option.type == "integer") return typing.integer(node);
  if (option.type == "number") return typing.number(node);
  if (option.type == "boolean") return typing.boolean(node);
  if (option.type == "size") return typing.size(node);
  if (option.type == "choice") return typing.choice(node);
  if (option.type == "integers") {
    std::vector<std::int64_t> values;
    for (const Node& item : node.items) values.push_back(typing.integer(item));
    return values;
  }
  if (option.type == "numbers") {
    std::vector<double> values;
    for (const Node& item : node.items) values.push_back(typing.number(item));
    return values;
  }
  return node.text;
}

OptionValue default_option(const OptionSpec& option, const std::string& path) {
  if (option.type == "text") return option.default_text;
  if (option.default_text.empty()) {
    throw UserError(path + ": must be given, it has no default" +
                    (option.documentation.empty() ? "" : " (" + option.documentation + ")"));
  }
  return typed_option(parse_value(option.default_text, "the default"), option, path);
}

void check_option(const OptionSpec& option) {
  if (option.name.empty() || option.name.find_first_of(". \t\n") != std::string::npos) {
    throw UserError("option " + shown(option.name) + ": a name without dots and spaces is expected");
  }
  const std::string where = "option " + option.name;
  if (type_of(option) == nullptr) {
    std::vector<std::string> names;
    for (const TypeName& type : kTypes) names.emplace_back(type.name);
    throw UserError(where + ": unknown type " + shown(option.type) + "; " + suggestion(option.type, names));
  }
  if ((option.type == "choice") == option.choices.empty()) {
    throw UserError(where + (option.choices.empty() ? ": a choice without choices"
                                                    : ": choices are given, but the type is " + option.type));
  }
  const bool ranged = option.type != "text" && option.type != "choice" && option.type != "boolean";
  const auto bound = [&](const std::string& text) -> std::optional<double> {
    if (text.empty()) return {};
    std::optional<double> value = option.type == "size" ? std::nullopt : parse_number(text);
    if (const auto bytes = parse_bytes(text); option.type == "size" && bytes) value = static_cast<double>(*bytes);
    const bool whole = option.type == "integer" || option.type == "integers";
    if (!ranged || !value || (whole && !parse_integer(text))) {
      throw UserError(where + ": the bound " + shown(text) + " does not fit the type " + option.type);
    }
    return value;
  };
  const std::optional<double> minimum = bound(option.minimum);
  const std::optional<double> maximum = bound(option.maximum);
  if (minimum && maximum && *minimum > *maximum) throw UserError(where + ": the minimum is above the maximum");
  if (!option.default_text.empty()) default_option(option, where);
}

bool is_auto(const Node& node) {
  return node.kind == NodeKind::Scalar && node.text == "auto";
}

std::string to_text(const OptionValue& value) {
  const auto spell = [](const auto& one) {
    using Value = std::decay_t<decltype(one)>;
    if constexpr (std::is_same_v<Value, double>) {
      return spell_number(one);
    } else {
      return std::to_string(one);
    }
  };
  return std::visit(
      [&](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, bool>) {
          return held ? "true" : "false";
        } else if constexpr (std::is_same_v<Held, std::string>) {
          return held;
        } else if constexpr (std::is_arithmetic_v<Held>) {
          return spell(held);
        } else {
          std::string text;
          for (const auto& one : held) text += (text.empty() ? "" : ", ") + spell(one);
          return "[" + text + "]";
        }
      },
      value);
}

}  // namespace strata::config
