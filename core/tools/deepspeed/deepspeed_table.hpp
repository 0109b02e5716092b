#pragma once
#include <string>
#include <vector>

#include "config/tree.hpp"

namespace strata::config {

// configs/deepspeed.yaml, whose first lines say what a row is.
class DeepSpeedTable {
 public:
  explicit DeepSpeedTable(Node tree) : tree_(std::move(tree)) {}
  // Read once a process and configs folder. Throws EnvironmentError, UserError.
  static const DeepSpeedTable& installed();

  const Node& part(const std::string& name) const;                   // "stages", "fill", ...
  const Node* key(const std::string& path) const;                    // a row of `keys`
  const Node* block(const std::string& path) const;                  // a row of `blocks`
  std::vector<std::string> children(const std::string& path) const;  // keys directly below; "" is the top
  std::string version() const { return part("version").text; }

 private:
  Node tree_;
};

// The text at a key of a map; empty when there is none.
std::string text_at(const Node& map, const std::string& key);
bool flag_at(const Node& map, const std::string& key);

// -1, 0 or 1 as version `left` is older than, equal to or newer than `right`: numbers between dots.
int compare_versions(const std::string& left, const std::string& right);

}  // namespace strata::config
