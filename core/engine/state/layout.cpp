#include "state/layout.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace strata::state {

namespace {

// Properties that two parameters of one layer in one buffer have in common.
using Key = std::tuple<int, at::ScalarType, at::ScalarType, at::ScalarType, at::ScalarType, bool, bool, std::string>;

struct Draft {
  FlatParameterInfo info;
  std::vector<std::pair<Parameter*, std::size_t>> users;  // and the index of the span each one views
};

std::string name_of(int layer, const ParameterInfo& parameter, bool deferred) {
  if (!parameter.tie.empty()) return "tie " + parameter.tie;
  return format("layer {}{}{}", layer, parameter.trainable ? "" : " (frozen)", deferred ? " (linear)" : "");
}

// Adds the parameter to the draft, or finds the span it shares there. `first_use` has its own info, or that which
// names it.
void add(Draft& draft, Parameter& parameter, const ParameterSpan& first_use, int layer) {
  std::vector<ParameterSpan>& spans = draft.info.parameters;
  std::size_t index = spans.size();
  if (!parameter.info.tie.empty() && !spans.empty()) {
    index = 0;
    check_tie(spans.front().info, parameter.info);
  } else {
    spans.push_back(first_use);
    spans.back().offset = draft.info.elements;
    draft.info.elements += first_use.elements();
  }
  draft.users.emplace_back(&parameter, index);
  if (draft.info.layers.empty() || draft.info.layers.back() != layer) draft.info.layers.push_back(layer);
}

using WithUnit = std::pair<Parameter*, std::int64_t>;

// Of a tied parameter it is that of its first use, by which the optimizer names it.
std::vector<WithUnit> by_unit(const std::vector<Parameter*>& parameters,
                              const std::map<std::string, ParameterInfo>& tied,
                              const std::function<std::int64_t(const ParameterInfo&)>& unit) {
  std::vector<WithUnit> ordered;
  for (Parameter* const parameter : parameters) {
    const auto first_use = tied.find(parameter->info.tie);
    const ParameterInfo& info = first_use == tied.end() ? parameter->info : first_use->second;
    ordered.emplace_back(parameter, unit ? std::min(unit(info), info.elements()) : 1);
  }
  std::ranges::stable_sort(ordered, std::greater(), &WithUnit::second);
  return ordered;
}

}  // namespace

void check_tie(const ParameterInfo& first, const ParameterInfo& other) {
  if (first.shape == other.shape && first.split == other.split && first.trainable == other.trainable) return;
  throw UserError(
      "parameters {} and {} are tied (\"{}\") but differ in shape, in split or in being trainable; tied parameters "
      "must be equal in all three",
      first.name, other.name, first.tie);
}

Layout lay_out(const std::vector<Layer*>& layers, const std::vector<int>& numbers, const PrecisionPolicy& precision,
               at::Device device, bool splits_backward, const std::map<std::string, ParameterInfo>& tied,
               int tensor_rank, int tensor_ranks, const std::function<std::int64_t(const ParameterInfo&)>& unit) {
  std::vector<Draft> drafts;
  std::map<Key, std::size_t> by_key;
  Layout layout;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<int>& used = layout.flat_of_layer.emplace_back();
    for (const auto& [parameter, together] : by_unit(layers[l]->parameters(), tied, unit)) {
      const ParameterInfo& info = parameter->info;
      if (info.elements() <= 0)
        throw UserError("parameter {} has no elements: every extent of its shape must be at least 1", info.name);
      const DTypes dtypes = precision.dtypes(info);
      const bool deferred = splits_backward && info.linear_only && info.trainable && info.tie.empty();
      const Key key = info.tie.empty()
                          ? Key{numbers[l],    dtypes.parameter, dtypes.gradient, dtypes.reduction,
                                dtypes.master, info.trainable,   deferred,        ""}
                          : Key{-1, {}, {}, {}, {}, {}, {}, info.tie};  // a tie is one buffer, whoever names it
      const auto [found, fresh] = by_key.try_emplace(key, drafts.size());
      if (fresh) {
        Draft& draft = drafts.emplace_back();
        draft.info.id = static_cast<int>(found->second);
        draft.info.name = name_of(numbers[l], info, deferred);
        draft.info.trainable = info.trainable;
        draft.info.deferred = deferred;
        draft.info.dtypes = dtypes;
      }
      if (!(drafts[found->second].info.dtypes == dtypes))
        throw UserError("tied parameter {} gets other number formats than {}; they are one parameter", info.name,
                        drafts[found->second].info.parameters.front().info.name);
      const auto first_use = tied.find(info.tie);
      const ParameterSpan span{first_use == tied.end() ? info : first_use->second, 0, tensor_rank, tensor_ranks,
                               together};
      add(drafts[found->second], *parameter, span, numbers[l]);
      used.push_back(static_cast<int>(found->second));
    }
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
  }
  for (Draft& draft : drafts) {
    const FlatParameter& flat =
        *layout.flat.emplace_back(std::make_unique<FlatParameter>(std::move(draft.info), device));
    for (const auto& [parameter, index] : draft.users) parameter->tensor = flat.parameters()[index];
  }
  return layout;
}

}  // namespace strata::state
