// Three error classes, by what must be fixed. UserError: a config, a file or a command line. EnvironmentError: the
// machine, e.g. a full disk, a missing library, a rank that died. Bug: the code of Strata or of a plugin. Every text
// names what was found, the rule it breaks and the remedy: UserError("{} is {}; give {}", key, value, choices), see
// format.hpp.
#pragma once
#include <strata/export.hpp>
#include <strata/format.hpp>

#include <stdexcept>
#include <string>

namespace strata {

// Place at which a value was written. `line` and `column` count from 1; 0 means unknown. An empty file means no place.
struct Place {
  std::string file;  // a path, or "--set", or "the command line"
  int line = 0;
  int column = 0;
};

// Returns "train.yaml:12:3", "train.yaml", or "" for an empty place.
STRATA_EXPORT std::string to_string(const Place& place);

class STRATA_EXPORT Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
  // Returns the exit status of a process that ends with this error: 2 UserError, 3 EnvironmentError, 70 Bug.
  virtual int exit_status() const noexcept = 0;
};

class STRATA_EXPORT UserError : public Error {
 public:
  explicit UserError(const std::string& text) : Error(text) {}
  template <typename... Values>
  requires(sizeof...(Values) > 0) explicit UserError(const FormatText<std::type_identity_t<Values>...>& text,
                                                     const Values&... values)
      : Error(format(text, values...)) {}
  // Makes the text "FILE:LINE:COLUMN: text".
  UserError(const Place& place, const std::string& text);
  template <typename... Values>
  requires(sizeof...(Values) > 0)
      UserError(const Place& place, const FormatText<std::type_identity_t<Values>...>& text, const Values&... values)
      : UserError(place, format(text, values...)) {}
  ~UserError() override;
  int exit_status() const noexcept override { return 2; }
};

class STRATA_EXPORT EnvironmentError : public Error {
 public:
  using Error::Error;
  template <typename... Values>
  requires(sizeof...(Values) > 0) explicit EnvironmentError(const FormatText<std::type_identity_t<Values>...>& text,
                                                            const Values&... values)
      : Error(format(text, values...)) {}
  ~EnvironmentError() override;
  int exit_status() const noexcept override { return 3; }
};

class STRATA_EXPORT Bug : public Error {
 public:
  // Makes the text "FILE:LINE: text"; `text` names the rule that the code broke.
  explicit Bug(const std::string& text, SourcePlace where = SourcePlace::current());
  template <typename... Values>
  requires(sizeof...(Values) > 0) explicit Bug(const FormatText<std::type_identity_t<Values>...>& text,
                                               const Values&... values)
      : Bug(format(text, values...), text.where) {}
  ~Bug() override;
  int exit_status() const noexcept override { return 70; }
};

// Throws Bug if `holds` is false. Active in release builds; `holds` must not have side effects.
inline void strata_check(bool holds, const char* text, SourcePlace where = SourcePlace::current()) {
  if (!holds) throw Bug(text, where);
}

}  // namespace strata
