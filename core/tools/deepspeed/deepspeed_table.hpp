#pragma once
#include <string>
#include <vector>

#include "config/tree.hpp"

namespace strata::config {

// keys.yaml, whose first lines say what a row is.
class DeepSpeedTable {
 public:
  static const DeepSpeedTable& get();

  const Node& part(const std::string& name) const { return *tree_.get(name); }  // "stages", "fill", ...
  const Node* key(const std::string& path) const { return part("keys").get(path); }
  const Node* block(const std::string& path) const { return part("blocks").get(path); }
  std::vector<std::string> children(const std::string& path) const;  // keys directly below; "" is the top

 private:
  explicit DeepSpeedTable(Node tree) : tree_(std::move(tree)) {}
  Node tree_;
};

// The text at a key of a map; empty when there is none.
std::string text_at(const Node& map, const std::string& key);

// -1, 0 or 1 as version `left` is older than, equal to or newer than `right`: numbers between dots.
int compare_versions(const std::string& left, const std::string& right);

}  // namespace strata::config
