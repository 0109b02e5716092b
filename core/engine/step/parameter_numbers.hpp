#pragma once
#include <strata/model.hpp>

#include <map>
#include <string>
#include <vector>

namespace strata::step {

// Numbering of the whole model's parameters, equal on every rank: in the order of layers, a tied one once.
class ParameterNumbers {
 public:
  explicit ParameterNumbers(const std::vector<LayerInfo>& layers) {
    for (const LayerInfo& layer : layers)
      for (const ParameterInfo& parameter : layer.parameters)
        if (numbers_.emplace(parameter.name, names_.size()).second) names_.push_back(parameter.name);
  }
  const std::vector<std::string>& names() const { return names_; }
  std::size_t of(const std::string& name) const { return numbers_.at(name); }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::size_t> numbers_;
};

}  // namespace strata::step
