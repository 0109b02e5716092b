// Losses and statistics of forwards, summed over a step or a validation.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/model.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace strata::stage {

// Names of the statistics of a whole model, in the order of their figures: equal on all ranks.
struct StatisticNames {
  std::vector<std::string> sums;
  std::vector<std::string> maxima;

  // Throws Bug, naming the model, for a name that is no word or has both kinds.
  static StatisticNames of(const std::vector<LayerInfo>& layers, const std::string& model);
};

// Sums and maxima over one rank's micro-batches, in tensors on the run's device; copies share the tensors.
struct ForwardSums {
  enum Loss : std::int64_t { loss, auxiliary_loss, auxiliary_losses /* number of them */, valid_tokens, losses };
  at::Tensor sums;    // fp64 [losses + StatisticNames::sums]
  at::Tensor maxima;  // fp32 [StatisticNames::maxima]

  static ForwardSums zeros(const StatisticNames& names, at::Device device);
  void add(Loss which, const at::Tensor& value) const;
  void add(const Statistic& statistic, const StatisticNames& names) const;
};

// Figures of the whole run: means over the valid tokens, and statistics.
struct ForwardFigures {
  double loss = 0.0;
  std::optional<double> auxiliary_loss;  // sum over all layers; empty if none has one
  std::int64_t valid_tokens = 0;
  std::map<std::string, double> statistics;  // by name

  // Computes the figures from ForwardSums over all ranks, on the host. Throws UserError if no token counts.
  static ForwardFigures of(const ForwardSums& sums, const StatisticNames& names);
};

}  // namespace strata::stage
