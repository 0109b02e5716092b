#include "config/schema.hpp"

#include <fmt/ranges.h>

#include <array>
#include <type_traits>

namespace strata::config {
namespace {

bool is_list(const OptionSpec& option) {
  return option.type == "integers" || option.type == "numbers";
}

// 1_000 as 1000, as in TOML: all syntaxes take it.
std::string without_groups(const std::string& text) {
  const auto digit_at = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] != '_' || at == 0 || !digit_at(at - 1) || !digit_at(at + 1)) plain += text[at];
  return plain;
}

// One scalar, of a list too. parse_option has the rules; quotes and places are added here.
OptionValue typed_scalar(const Node& node, const OptionSpec& option) {
  const bool is_text = option.type == "text" || option.type == "choice";
  if (option.type == "text") return node.text;
  if (node.quoted && !is_text && option.type != "size") {
    const std::string what = option.type == "boolean" ? "true and false are" : "a number is";
    throw UserError(node.place, "{}: {} is text in quotes; {} written without", option.name, shown(node.text), what);
  }
  try {
    return parse_option(option, one_line(is_text ? node.text : without_groups(node.text), 60));
  } catch (const UserError& error) {
    throw UserError(node.place, error.what());
  }
}

template <typename Element>
std::vector<Element> typed_list(const Node& node, OptionSpec option) {
  option.type = std::is_same_v<Element, double> ? "number" : "integer";
  std::vector<Element> values;
  for (const Node& item : node.items) values.push_back(std::get<Element>(typed_scalar(item, option)));
  return values;
}

std::string expected(const OptionSpec& option) {
  if (option.type == "integer") return "a whole number, as in 12 or 5e8";
  if (option.type == "number") return "a number, as in 0.5 or 6e-4";
  if (option.type == "boolean") return "true or false";
  if (option.type == "size") return "a size, as in 4096, 64MiB or 1.5GB";
  if (option.type == "integers") return "a list of whole numbers, as in [1, 2]";
  if (option.type == "numbers") return "a list of numbers, as in [0.9, 0.95]";
  return option.choices.empty() ? "text" : fmt::format("one of {}", fmt::join(option.choices, ", "));
}

void check_shape(const Node& node, const OptionSpec& option) {
  const auto refuse = [&](const Node& wrong, const std::string& found) {
    throw UserError(wrong.place, "{}: {}; it must be {}", option.name, found, expected(option));
  };
  if (node.kind == NodeKind::Null) refuse(node, "no value");
  if (node.kind == NodeKind::Map) refuse(node, "a section");
  if (!is_list(option) && node.kind == NodeKind::Sequence) refuse(node, "a list");
  if (is_list(option) && node.kind == NodeKind::Scalar) refuse(node, shown(node.text));
  for (const Node& item : node.items) {
    if (item.kind != NodeKind::Scalar) refuse(item, "an element of the list that is not a value");
  }
}

}  // namespace

OptionValue typed_option(const Node& node, const OptionSpec& option, const std::string& path) {
  OptionSpec named = option;
  named.name = path;
  check_shape(node, named);
  if (option.type == "integers") return typed_list<std::int64_t>(node, named);
  if (option.type == "numbers") return typed_list<double>(node, named);
  return typed_scalar(node, named);
}

bool is_auto(const Node& node) {
  return node.kind == NodeKind::Scalar && node.text == "auto";
}

std::string to_text(const OptionValue& value) {
  // fmt writes a number with the fewest digits that read back as the same.
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

bool means(const std::string& text, const OptionValue& value) {
  static constexpr std::array<const char*, 6> types{"boolean", "integer", "number", "text", "integers", "numbers"};
  static_assert(types.size() == std::variant_size_v<OptionValue>);
  OptionSpec spec;
  spec.type = types[value.index()];
  try {
    return parse_option(spec, text) == value;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace strata::config
