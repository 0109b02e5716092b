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
  const config::Node* row;  // of the table; null: DeepSpeed ignores the key
};

// A ds_config as it is written, but for former names of keys: they are the present ones.
class DeepSpeedFile {
 public:
  // Says in `lines` which names were replaced. Throws UserError where both names are given.
  DeepSpeedFile(config::Node file, std::vector<resolve::DialectLine>& lines);

  const config::Node& root() const { return root_; }
  const config::Node* given(const std::string& path) const;  // null when left out or null
  bool is_automatic(const std::string& path) const;

  // The value of a key that the table knows; nothing when it is left out, null or "auto". Throws UserError when it is
  // of another type than its row says, or below `minimum`.
  template <typename Value>
  std::optional<Value> value(const std::string& path, const char* minimum = "") const {
    if (given(path) == nullptr || is_automatic(path)) return {};
    return std::get<Value>(typed(path, *given(path), minimum));
  }
  OptionValue typed(const std::string& path, const config::Node& value, const char* minimum = "") const;

  // In the file's order. Throws UserError at a key that the table does not know. DeepSpeed ignores such keys at the
  // top; so is it here, unless a key looks like a slip of the pen and is not among `allowed`.
  std::vector<DeepSpeedKey> keys(const std::vector<std::string>& allowed) const;

 private:
  config::Node root_;
};

// A scalar or a list of them, for people.
std::string spelled(const config::Node& node);

}  // namespace strata::deepspeed
