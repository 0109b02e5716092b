#include "stage/forward_sums.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <set>

namespace strata::stage {

namespace {

bool is_word(const std::string& name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

std::int64_t place_of(const std::string& name, const std::vector<std::string>& names) {
  const auto found = std::ranges::find(names, name);
  strata_check(found != names.end(), "a statistic is among those of the model");
  return found - names.begin();
}

}  // namespace

StatisticNames StatisticNames::of(const std::vector<LayerInfo>& layers, const std::string& model) {
  std::set<std::string> sums, maxima;
  for (const LayerInfo& layer : layers)
    for (const StatisticInfo& statistic : layer.statistics) {
      if (!is_word(statistic.name))
        throw Bug("{}: {} has a statistic '{}'; name it with letters a-z, digits and _", model, layer.name,
                  statistic.name);
      const bool is_sum = statistic.kind == StatisticKind::Sum;
      (is_sum ? sums : maxima).insert(statistic.name);
      if ((is_sum ? maxima : sums).contains(statistic.name))
        throw Bug("{}: the statistic {} of {} is a sum in one layer and a maximum in another; give them two names",
                  model, statistic.name, layer.name);
    }
  return {{sums.begin(), sums.end()}, {maxima.begin(), maxima.end()}};
}

ForwardSums ForwardSums::zeros(const StatisticNames& names, at::Device device) {
  const at::TensorOptions options(device);
  return {at::zeros({losses + std::ssize(names.sums)}, options.dtype(at::kDouble)),
          at::full({std::ssize(names.maxima)}, -INFINITY, options.dtype(at::kFloat))};
}

void ForwardSums::add(Loss which, const at::Tensor& value) const {
  const c10::NoGradGuard no_grad;
  sums.select(0, which).add_(value);
}

void ForwardSums::add(const Statistic& statistic, const StatisticNames& names) const {
  const c10::NoGradGuard no_grad;
  const std::string& name = statistic.info.name;
  if (statistic.info.kind == StatisticKind::Sum)
    sums.select(0, losses + place_of(name, names.sums)).add_(statistic.value);
  else
    maxima.select(0, place_of(name, names.maxima)).clamp_min_(statistic.value.to(at::kFloat));
}

ForwardFigures ForwardFigures::of(const ForwardSums& sums, const StatisticNames& names) {
  const double* const numbers = sums.sums.const_data_ptr<double>();
  const double tokens = numbers[ForwardSums::valid_tokens];
  if (tokens == 0.0)
    throw UserError(
        "every target of this step's micro-batches is ignored (-100, or left out by the data's mask), on every rank, "
        "so "
        "the loss is undefined; give each step at least one target: take a larger train.global_batch, or set "
        "data.documents: separate, which leaves out samples without a target");
  ForwardFigures figures{numbers[ForwardSums::loss] / tokens, std::nullopt, static_cast<std::int64_t>(tokens), {}};
  if (numbers[ForwardSums::auxiliary_losses] > 0.0)
    figures.auxiliary_loss = numbers[ForwardSums::auxiliary_loss] / tokens;
  for (std::size_t i = 0; i < names.sums.size(); ++i)
    figures.statistics[names.sums[i]] = numbers[ForwardSums::losses + static_cast<std::int64_t>(i)];
  for (std::size_t i = 0; i < names.maxima.size(); ++i)
    figures.statistics[names.maxima[i]] = sums.maxima.const_data_ptr<float>()[i];
  return figures;
}

}  // namespace strata::stage
