#pragma once
#include <optional>
#include <string>
#include <vector>

#include "resolve/dialect.hpp"

namespace strata::deepspeed {

// A key of a ds_config, or a block that is accepted or refused as a whole.
struct DeepSpeedKey {
  std::string path;
  Place place;  // of the key
  const config::Node* value;
  const config::Node* row;  // row of the table; null: DeepSpeed ignores the key
};

// A ds_config as written, with former names of keys replaced by the current ones.
class DeepSpeedFile {
 public:
  // Adds a line to `lines` for each replaced name. Throws UserError if both names are given.
  DeepSpeedFile(config::Node file, std::vector<resolve::DialectLine>& lines);

  const config::Node& root() const { return root_; }
  const config::Node* given(const std::string& path) const;  // null if left out or null

  bool is_automatic(const std::string& path) const;

  // Returns the value of a key of the table; empty if it is left out, null or "auto". Throws UserError if its type
  // differs from that of its row, or if it is below `minimum`.
  template <typename Value>
  std::optional<Value> value(const std::string& path, const char* minimum = "") const {
    if (given(path) == nullptr || is_automatic(path)) return {};
    return std::get<Value>(typed(path, *given(path), minimum));
  }
  OptionValue typed(const std::string& path, const config::Node& value, const char* minimum = "") const;

  // Returns the keys in the file's order. Throws UserError at a key that the table lacks, except at the top level,
  // where DeepSpeed ignores unknown keys: there only for a likely typing error that is not among `allowed`.
  std::vector<DeepSpeedKey> keys(const std::vector<std::string>& allowed) const;

 private:
  config::Node root_;
};

// Returns a scalar, or a list of scalars, as text for messages.
std::string spelled(const config::Node& node);

}  // namespace strata::deepspeed
