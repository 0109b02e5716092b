#include "stage/fragments.hpp"

#include <map>
#include <string>

namespace strata::stage {

std::vector<int> fragments_of_flats(const std::vector<LayerInfo>& model, const std::vector<FlatParameter*>& flat,
                                    std::int64_t fragments) {
  std::map<std::string, std::int64_t> before;  // elements before it, by parameter, or name of a tie
  std::int64_t elements = 0;
  const auto key = [](const ParameterInfo& info) { return info.tie.empty() ? info.name : "tie " + info.tie; };
  for (const LayerInfo& layer : model)
    for (const ParameterInfo& parameter : layer.parameters)
      if (before.emplace(key(parameter), elements).second) elements += parameter.elements();
  std::vector<int> result;
  for (const FlatParameter* const parameter : flat) {
    const std::vector<ParameterSpan>& spans = parameter->info().parameters;
    const std::int64_t place = spans.empty() ? 0 : before.at(key(spans.front().info));
    result.push_back(static_cast<int>(place * fragments / elements));
  }
  return result;
}

}  // namespace strata::stage
