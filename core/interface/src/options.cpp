#include <strata/error.hpp>
#include <strata/options.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace strata {
namespace {

using std::string_view;

constexpr const char* known_types = "integer, number, boolean, text, choice, size, integers, numbers";

string_view trimmed(string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// std::from_chars reads no plus sign.
string_view without_plus(string_view text) {
  const bool has_plus = text.size() > 1 && text[0] == '+' && text[1] != '+' && text[1] != '-';
  return has_plus ? text.substr(1) : text;
}

// The whole of `text` as a finite number.
std::optional<double> to_number(string_view text) {
  text = without_plus(text);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "12" and also "5e8" and "2.0": a number that is whole. Beyond 2^53 only plain digits are exact.
std::optional<std::int64_t> to_integer(string_view text) {
  const string_view digits = without_plus(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc() && end == digits.data() + digits.size()) return value;
  const std::optional<double> number = to_number(text);
  constexpr double exact = 9007199254740992.0;
  if (!number || *number != std::trunc(*number) || std::abs(*number) > exact) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

// "4096", "64MiB", "1.5 GB": bytes.
std::optional<std::int64_t> to_size(string_view text) {
  struct Unit {
    string_view name;
    double bytes;
  };
  static constexpr std::array<Unit, 10> units{{{"KiB", 1024.0},
                                               {"MiB", 1048576.0},
                                               {"GiB", 1073741824.0},
                                               {"TiB", 1099511627776.0},
                                               {"kB", 1e3},
                                               {"KB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12},
                                               {"B", 1.0}}};
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.name)) continue;
    const std::optional<double> count = to_number(trimmed(text.substr(0, text.size() - unit.name.size())));
    if (!count) return std::nullopt;
    const double bytes = *count * unit.bytes;
    if (bytes < 0.0 || bytes > 9.2e18 || bytes != std::trunc(bytes)) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  }
  const std::optional<std::int64_t> bytes = to_integer(text);
  return bytes && *bytes >= 0 ? bytes : std::nullopt;
}

std::optional<bool> to_boolean(string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

// "[1, 2]" by its elements; "[]" is the empty list.
template <class Element>
std::optional<std::vector<Element>> to_list(string_view text, std::optional<Element> (*convert)(string_view)) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = trimmed(text.substr(1, text.size() - 2));
  std::vector<Element> elements;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::optional<Element> element = convert(trimmed(text.substr(0, comma)));
    if (!element) return std::nullopt;
    elements.push_back(*element);
    if (comma == string_view::npos) break;
    text = trimmed(text.substr(comma + 1));
    if (text.empty()) return std::nullopt;
  }
  return elements;
}

std::string in_quotes(string_view text) {
  return "'" + std::string(text) + "'";
}

[[noreturn]] void refuse(const OptionSpec& spec, string_view text, const std::string& rule) {
  throw UserError("option {} is {}: {}", spec.name, in_quotes(text), rule);
}

// Throws Bug when a limit of the spec cannot be read.
template <class Value>
void check_limits(const OptionSpec& spec, string_view text, Value value, std::optional<Value> (*convert)(string_view)) {
  const auto limit = [&](const std::string& written) {
    const std::optional<Value> converted = convert(written);
    if (!converted) throw Bug("option {}: the limit {} is not of type {}", spec.name, in_quotes(written), spec.type);
    return *converted;
  };
  // Units are plurals, and the text of a size has its own.
  const auto with_unit = [&](const std::string& written) {
    return spec.unit.empty() || spec.type == "size" || written == "1" ? written : written + " " + spec.unit;
  };
  if (!spec.minimum.empty() && value < limit(spec.minimum))
    refuse(spec, text, "the minimum is " + with_unit(spec.minimum));
  if (!spec.maximum.empty() && value > limit(spec.maximum))
    refuse(spec, text, "the maximum is " + with_unit(spec.maximum));
}

template <class Value>
OptionValue scalar(const OptionSpec& spec, string_view text, std::optional<Value> (*convert)(string_view),
                   const char* rule) {
  const std::optional<Value> value = convert(trimmed(text));
  if (!value) refuse(spec, text, rule);
  check_limits(spec, text, *value, convert);
  return *value;
}

template <class Value>
OptionValue list(const OptionSpec& spec, string_view text, std::optional<Value> (*convert)(string_view),
                 const char* rule) {
  std::optional<std::vector<Value>> values = to_list(trimmed(text), convert);
  if (!values) refuse(spec, text, rule);
  for (const Value value : *values) check_limits(spec, text, value, convert);
  return std::move(*values);
}

OptionValue choice(const OptionSpec& spec, string_view text) {
  if (std::find(spec.choices.begin(), spec.choices.end(), text) == spec.choices.end()) {
    std::string choices;
    for (const std::string& one : spec.choices) choices += (choices.empty() ? "" : ", ") + one;
    refuse(spec, text, "it must be one of " + choices);
  }
  return std::string(text);
}

}  // namespace

OptionValue parse_option(const OptionSpec& spec, string_view text) {
  if (spec.type == "integer") {
    const std::optional<double> number = to_number(trimmed(text));
    const bool too_large = number && std::abs(*number) >= 0x1p53;
    return scalar(spec, text, to_integer,
                  too_large ? "the number is too large" : "it must be a whole number, as in 12 or 5e8");
  }
  if (spec.type == "number") return scalar(spec, text, to_number, "it must be a finite number, as in 0.5 or 6e-4");
  if (spec.type == "size") return scalar(spec, text, to_size, "it must be a size, as in 4096, 64MiB or 1.5GB");
  if (spec.type == "integers") return list(spec, text, to_integer, "it must be a list of whole numbers, as in [1, 2]");
  if (spec.type == "numbers") return list(spec, text, to_number, "it must be a list of numbers, as in [0.9, 0.95]");
  if (spec.type == "text") return std::string(text);
  if (spec.type == "choice") return choice(spec, text);
  if (spec.type == "boolean") {
    const std::optional<bool> value = to_boolean(trimmed(text));
    if (!value) refuse(spec, text, "it must be true or false");
    return *value;
  }
  throw Bug("option {} is of the unknown type {}; types are {}", spec.name, in_quotes(spec.type), known_types);
}

namespace {

// The error in a spec whose texts are all filled in, or "".
std::string problem_of(const OptionSpec& spec) {
  const std::string& type = spec.type;
  const bool is_list = type == "integers" || type == "numbers";
  const bool is_ranged = is_list || type == "integer" || type == "number" || type == "size";
  if (spec.name.empty()) return "an option has no name";
  if (!is_ranged && type != "text" && type != "choice" && type != "boolean") {
    return "option " + spec.name + " is of the unknown type " + in_quotes(type) + "; types are " + known_types;
  }
  if (spec.choices.empty() == (type == "choice") || (!(spec.minimum + spec.maximum).empty() && !is_ranged)) {
    return "option " + spec.name + ": limits of that kind do not suit the type " + type;
  }
  OptionSpec unlimited = spec;
  unlimited.minimum = unlimited.maximum = "";
  try {
    for (const std::string& limit : {spec.minimum, spec.maximum}) {
      if (!limit.empty()) parse_option(unlimited, is_list ? "[" + limit + "]" : limit);
    }
    if (!spec.minimum.empty()) {
      unlimited.maximum = spec.maximum;
      parse_option(unlimited, is_list ? "[" + spec.minimum + "]" : spec.minimum);
    }
  } catch (const UserError& error) {
    return std::string("a limit is malformed: ") + error.what();
  }
  try {
    parse_option(spec, spec.default_text);
  } catch (const UserError& error) {
    return std::string("a default breaks its own rule: ") + error.what();
  }
  return "";
}

}  // namespace

std::string read_option_spec(string_view name, string_view type, string_view default_text, string_view limits,
                             string_view unit, string_view documentation, OptionSpec& spec) {
  spec = {std::string(name), std::string(type),         std::string(default_text), "", "", {},
          std::string(unit), std::string(documentation)};
  if (type == "integer" || type == "number") std::erase(spec.default_text, '\'');  // C++ digit separators
  if (!option_list::are_limits(limits)) {
    return "option " + spec.name + ": the limits " + in_quotes(limits) + " are not min=, max= or one_of=";
  }
  while (!limits.empty()) {
    const std::size_t comma = limits.find(',');
    const string_view part = limits.substr(0, comma);
    string_view value = part.substr(part.find('=') + 1);
    if (part.starts_with("min=")) spec.minimum = value;
    if (part.starts_with("max=")) spec.maximum = value;
    while (part.starts_with("one_of=") && !value.empty()) {
      const std::size_t bar = value.find('|');
      spec.choices.emplace_back(value.substr(0, bar));
      value.remove_prefix(bar == string_view::npos ? value.size() : bar + 1);
    }
    limits.remove_prefix(comma == string_view::npos ? limits.size() : comma + 1);
  }
  if (type == "text" && !spec.choices.empty()) spec.type = "choice";
  return problem_of(spec);
}

OptionSpec make_option_spec(string_view name, string_view type, string_view default_text, string_view limits,
                            string_view unit, string_view documentation) {
  OptionSpec spec;
  const std::string problem = read_option_spec(name, type, default_text, limits, unit, documentation, spec);
  if (!problem.empty()) throw Bug(problem);
  return spec;
}

OptionValues::OptionValues() = default;
OptionValues::OptionValues(const OptionValues&) = default;
OptionValues::OptionValues(OptionValues&&) noexcept = default;
OptionValues& OptionValues::operator=(const OptionValues&) = default;
OptionValues& OptionValues::operator=(OptionValues&&) noexcept = default;
OptionValues::~OptionValues() = default;

void OptionValues::set(string_view name, OptionValue value) {
  values_.insert_or_assign(std::string(name), std::move(value));
}

bool OptionValues::contains(string_view name) const {
  return values_.find(name) != values_.end();
}

const OptionValue& OptionValues::value(string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw Bug("no option {}: it is not in the plugin's schema", in_quotes(name));
  return found->second;
}

std::vector<std::string> OptionValues::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) names.push_back(name);
  return names;
}

namespace {
template <class Value>
const Value& typed(const OptionValues& values, string_view name, const char* type) {
  const Value* value = std::get_if<Value>(&values.value(name));
  if (value == nullptr) throw Bug("option {} is not of the type {}", in_quotes(name), type);
  return *value;
}
}  // namespace

std::int64_t OptionValues::integer(string_view name) const {
  return typed<std::int64_t>(*this, name, "integer");
}
double OptionValues::number(string_view name) const {
  return typed<double>(*this, name, "number");
}
bool OptionValues::boolean(string_view name) const {
  return typed<bool>(*this, name, "boolean");
}
const std::string& OptionValues::text(string_view name) const {
  return typed<std::string>(*this, name, "text");
}
std::int64_t OptionValues::size(string_view name) const {
  return typed<std::int64_t>(*this, name, "size");
}
const std::vector<std::int64_t>& OptionValues::integers(string_view name) const {
  return typed<std::vector<std::int64_t>>(*this, name, "integers");
}
const std::vector<double>& OptionValues::numbers(string_view name) const {
  return typed<std::vector<double>>(*this, name, "numbers");
}

OptionValues default_options(const std::vector<OptionSpec>& specs) {
  OptionValues values;
  for (const OptionSpec& spec : specs) values.set(spec.name, parse_option(spec, spec.default_text));
  return values;
}

namespace option_list {
namespace {
template <class Value>
Value or_bug(std::optional<Value> value, string_view text, const char* type) {
  if (!value) throw Bug("the default {} is not of type {}", in_quotes(text), type);
  return std::move(*value);
}
}  // namespace

std::int64_t size_default(string_view text) {
  return or_bug(to_size(trimmed(text)), text, "size");
}
std::vector<std::int64_t> integers_default(string_view text) {
  return or_bug(to_list(trimmed(text), to_integer), text, "list of integers");
}
std::vector<double> numbers_default(string_view text) {
  return or_bug(to_list(trimmed(text), to_number), text, "list of numbers");
}
}  // namespace option_list

int choice_index(std::string_view names, std::string_view text) {
  int index = 0;
  for (std::string_view rest = names;; ++index) {
    const std::size_t bar = rest.find('|');
    if (rest.substr(0, bar) == text) return index;
    if (bar == std::string_view::npos) throw Bug("'{}' is not one of the choices {}", text, names);
    rest.remove_prefix(bar + 1);
  }
}

std::string choice_name(std::string_view names, int index) {
  for (std::string_view rest = names;; --index) {
    const std::size_t bar = rest.find('|');
    if (index == 0) return std::string(rest.substr(0, bar));
    if (bar == std::string_view::npos) throw Bug("the choices {} are fewer than the enumerators", names);
    rest.remove_prefix(bar + 1);
  }
}

}  // namespace strata
