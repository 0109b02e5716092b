// A plugin's options, described once as a macro list in its source (every line but the last ends in a backslash):
//
//   #define GATHER_OPTIONS(OPTION)
//     OPTION(integer, prefetch_layers, 1, "min=0,max=64", "layers", "How many layers ahead parameters are gathered.")
//     OPTION(text, order, "forward", "one_of=forward|reverse", "", "The order in which layers are gathered.")
//   STRATA_OPTIONS(GatherOptions, GATHER_OPTIONS)
//
// Each OPTION(type, name, default, limits, unit, documentation) becomes a member of struct GatherOptions and an entry
// of the schema in the manifest, so code, schema and documentation cannot differ. A plugin without options uses
// STRATA_NO_OPTIONS(Name).
//   type       default           C++ type                     limits
//   integer    12                std::int64_t                 "min=0,max=64", either or both, or ""
//   number     0.5               double                       "min=0,max=1", either or both, or ""
//   boolean    true              bool                         ""
//   text       "forward"         std::string                  "one_of=forward|reverse" or ""
//   size       "64MiB"           std::int64_t, in bytes       "min=1MiB,max=1GiB", either or both, or ""
//   integers   "[1, 2]"          std::vector<std::int64_t>    as for integer, for each element
//   numbers    "[0.9, 0.95]"     std::vector<double>          as for number, for each element
// A text that names files has the unit "file": `validation` inherits the options of `data`, except those of this unit.
// To convert a text with choices to an enum, write the choices once, in the order of the enumerators:
//
//   #define ORDERS "forward|reverse"
//   OPTION(text, order, "forward", "one_of=" ORDERS, "", "The order in which layers are gathered.")
//   const auto order = choice<Order>(ORDERS, options.order);
//
// Texts must not contain double quotes, backslashes or control characters; the compiler checks this.
#pragma once
#include <strata/export.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace strata {

using OptionValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

// One option of a schema, as written in the list. `minimum` and `maximum` are empty without a limit.
struct OptionSpec {
  std::string name;
  std::string type;  // a type of the table above, or "choice" for a text out of `choices`
  std::string default_text;
  std::string minimum;
  std::string maximum;
  std::vector<std::string> choices;
  std::string unit;
  std::string documentation;
};

// Parses `text` as a value of this option. Throws UserError naming the option, the text and the rule if the text has
// another type, is outside the limits or is not one of the choices; Bug if the spec itself is malformed.
STRATA_EXPORT OptionValue parse_option(const OptionSpec& spec, std::string_view text);

// Makes a spec, splitting `limits` into minimum, maximum and choices. Throws Bug if the type is unknown, the limits are
// malformed or do not suit the type, or the default breaks them.
STRATA_EXPORT OptionSpec make_option_spec(std::string_view name, std::string_view type, std::string_view default_text,
                                          std::string_view limits, std::string_view unit,
                                          std::string_view documentation);

// Makes a spec like make_option_spec, without throwing, for schemas read from files; returns the malformed part, or "".
STRATA_EXPORT std::string read_option_spec(std::string_view name, std::string_view type, std::string_view default_text,
                                           std::string_view limits, std::string_view unit,
                                           std::string_view documentation, OptionSpec& spec);

// Typed values by option name, already checked against a schema. A getter throws Bug if the option is absent or has
// another type.
class STRATA_EXPORT OptionValues {
 public:
  OptionValues();
  OptionValues(const OptionValues& other);
  OptionValues(OptionValues&& other) noexcept;
  OptionValues& operator=(const OptionValues& other);
  OptionValues& operator=(OptionValues&& other) noexcept;
  ~OptionValues();

  void set(std::string_view name, OptionValue value);  // replaces an earlier value
  bool contains(std::string_view name) const;
  const OptionValue& value(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool boolean(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  std::int64_t size(std::string_view name) const;  // bytes
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;

 private:
  std::map<std::string, OptionValue, std::less<>> values_;
};

// Returns every option at its default.
STRATA_EXPORT OptionValues default_options(const std::vector<OptionSpec>& specs);

// Returns the index of `text` in a list of names separated by bars; throws Bug for any other text, because parse_option
// has already refused it. choice_name() returns the name at an index.
STRATA_EXPORT int choice_index(std::string_view names, std::string_view text);
STRATA_EXPORT std::string choice_name(std::string_view names, int index);

// Returns the enumerator whose index is that of `text` in `names`.
template <typename Enum>
Enum choice(std::string_view names, std::string_view text) {
  return static_cast<Enum>(choice_index(names, text));
}

// Functions that the macros below use.
namespace option_list {

// True if the text needs no escaping in the manifest.
constexpr bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\' || (c >= 0 && c < ' ') || c == 127) return false;
  }
  return true;
}

// True if every comma-separated part of `limits` begins with min=, max= or one_of=.
constexpr bool are_limits(std::string_view limits) {
  while (!limits.empty()) {
    const std::size_t comma = limits.find(',');
    const std::string_view part = limits.substr(0, comma);
    if (!part.starts_with("min=") && !part.starts_with("max=") && !part.starts_with("one_of=")) return false;
    if (part.find('=') + 1 == part.size()) return false;
    if (comma == std::string_view::npos) break;
    limits.remove_prefix(comma + 1);
    if (limits.empty()) return false;
  }
  return true;
}

// Parses a default given as text; throws Bug if `text` is malformed.
STRATA_EXPORT std::int64_t size_default(std::string_view text);
STRATA_EXPORT std::vector<std::int64_t> integers_default(std::string_view text);
STRATA_EXPORT std::vector<double> numbers_default(std::string_view text);

}  // namespace option_list
}  // namespace strata

// C++ type, initializer and manifest text of each option type.
#define STRATA_OPTION_TYPE_integer std::int64_t
#define STRATA_OPTION_TYPE_number double
#define STRATA_OPTION_TYPE_boolean bool
#define STRATA_OPTION_TYPE_text std::string
#define STRATA_OPTION_TYPE_size std::int64_t
#define STRATA_OPTION_TYPE_integers std::vector<std::int64_t>
#define STRATA_OPTION_TYPE_numbers std::vector<double>
#define STRATA_OPTION_INITIAL_integer(default_) default_
#define STRATA_OPTION_INITIAL_number(default_) default_
#define STRATA_OPTION_INITIAL_boolean(default_) default_
#define STRATA_OPTION_INITIAL_text(default_) default_
#define STRATA_OPTION_INITIAL_size(default_) ::strata::option_list::size_default(default_)
#define STRATA_OPTION_INITIAL_integers(default_) ::strata::option_list::integers_default(default_)
#define STRATA_OPTION_INITIAL_numbers(default_) ::strata::option_list::numbers_default(default_)
#define STRATA_OPTION_TEXT_integer(default_) #default_
#define STRATA_OPTION_TEXT_number(default_) #default_
#define STRATA_OPTION_TEXT_boolean(default_) #default_
#define STRATA_OPTION_TEXT_text(default_) default_
#define STRATA_OPTION_TEXT_size(default_) default_
#define STRATA_OPTION_TEXT_integers(default_) default_
#define STRATA_OPTION_TEXT_numbers(default_) default_

// Expansions of one OPTION(...) of a list.
#define STRATA_OPTION_MEMBER(type, name, default_, limits, unit, documentation) \
  STRATA_OPTION_TYPE_##type name{STRATA_OPTION_INITIAL_##type(default_)};
#define STRATA_OPTION_READ(type, name, default_, limits, unit, documentation) options.name = values.type(#name);
#define STRATA_OPTION_SPEC(type, name, default_, limits, unit, documentation) \
  ::strata::make_option_spec(#name, #type, STRATA_OPTION_TEXT_##type(default_), limits, unit, documentation),
#define STRATA_OPTION_CHECK(type, name, default_, limits, unit, documentation)                                  \
  static_assert(::strata::option_list::is_plain(STRATA_OPTION_TEXT_##type(default_) limits unit documentation), \
                "option " #name ": its texts may hold no double quote, backslash or control character");        \
  static_assert(::strata::option_list::are_limits(limits),                                                      \
                "option " #name ": limits are min=, max= or one_of=, separated by commas");                     \
  static_assert(sizeof(documentation) > 1, "option " #name " has no documentation");
#define STRATA_OPTION_JSON(type, name, default_, limits, unit, documentation)                             \
  "{\"name\":\"" #name "\",\"type\":\"" #type                                                             \
  "\",\"default\":\"" STRATA_OPTION_TEXT_##type(default_) "\",\"limits\":\"" limits "\",\"unit\":\"" unit \
                                                          "\",\"documentation\":\"" documentation "\"},"

// Defines struct Name with one member per option of LIST, initialised to its default.
//   Name::read(values)   from values that a schema has checked
//   Name::specs()        the schema
//   Name::schema         the schema as it stands in the manifest, with a null after the last comma
#define STRATA_OPTIONS(Name, LIST)                                                          \
  struct Name {                                                                             \
    LIST(STRATA_OPTION_MEMBER)                                                              \
    static Name read(const ::strata::OptionValues& values) {                                \
      Name options;                                                                         \
      LIST(STRATA_OPTION_READ)                                                              \
      return options;                                                                       \
    }                                                                                       \
    static std::vector<::strata::OptionSpec> specs() { return {LIST(STRATA_OPTION_SPEC)}; } \
    static constexpr std::string_view schema = LIST(STRATA_OPTION_JSON) "null";             \
    LIST(STRATA_OPTION_CHECK)                                                               \
  };

// Defines struct Name for a plugin without options.
#define STRATA_NO_OPTIONS(Name)                                     \
  struct Name {                                                     \
    static Name read(const ::strata::OptionValues&) { return {}; }  \
    static std::vector<::strata::OptionSpec> specs() { return {}; } \
    static constexpr std::string_view schema = "null";              \
  };
