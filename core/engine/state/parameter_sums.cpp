#include "state/parameter_sums.hpp"

#include <algorithm>

namespace strata::state {

namespace {
std::int64_t sums_of(const ParameterInfo& parameter, const Optimizer& optimizer, int round) {
  return optimizer.sums(PieceInfo::whole(parameter), round);
}
}  // namespace

ParameterSums::ParameterSums(const std::vector<std::unique_ptr<FlatParameter>>& flat, const Optimizer& optimizer,
                             StateStore& store)
    : rounds_(static_cast<std::size_t>(optimizer.rounds())) {
  std::int64_t longest = 0;
  for (int number = 0; number < rounds(); ++number) {
    Round& round = rounds_[static_cast<std::size_t>(number)];
    for (const auto& one : flat) {
      if (!one->info().trainable) continue;
      for (const ParameterSpan& span : one->info().parameters) {
        const std::int64_t count = sums_of(span.info, optimizer, number);
        round.parts[span.info.name] = {round.count, count};
        round.count += count;
      }
    }
    longest = std::max(longest, round.count);
  }
  if (longest > 0)
    buffer_ = store.allocate(Category::Optimizer, Tier::Device, "sums over parameters", longest, at::kDouble);
}

at::Tensor ParameterSums::of_round(int round) const {
  const std::int64_t count = rounds_.at(static_cast<std::size_t>(round)).count;
  return count == 0 ? at::Tensor() : buffer_.narrow(0, 0, count);
}

at::Tensor ParameterSums::of(const std::string& parameter, int round) const {
  const Part& part = rounds_.at(static_cast<std::size_t>(round)).parts.at(parameter);
  return part.count == 0 ? at::Tensor() : buffer_.narrow(0, part.begin, part.count);
}

std::vector<bool> sums_of_round(const std::vector<ParameterInfo>& parameters, const Optimizer& optimizer) {
  std::vector<bool> found(static_cast<std::size_t>(optimizer.rounds()), false);
  for (std::size_t round = 0; round < found.size(); ++round)
    found[round] = std::any_of(parameters.begin(), parameters.end(), [&](const ParameterInfo& parameter) {
      return parameter.trainable && sums_of(parameter, optimizer, static_cast<int>(round)) > 0;
    });
  return found;
}

}  // namespace strata::state
