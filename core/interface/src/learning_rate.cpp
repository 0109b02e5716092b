#include <strata/learning_rate.hpp>

namespace strata {

LearningRate::~LearningRate() = default;
std::optional<double> LearningRate::momentum(std::int64_t /*update*/, const TrainingRun& /*run*/) const {
  return std::nullopt;
}
std::vector<std::int64_t> LearningRate::phase_starts(const TrainingRun& /*run*/) const {
  return {};
}

}  // namespace strata
