#include <strata/error.hpp>
#include <strata/toolbox/step_by_clock.hpp>

#include <algorithm>

namespace strata::toolbox {

namespace {
constexpr std::size_t kinds = 4;  // of ComputeKind
}

StepByClock::StepByClock(const PipelineShape& shape, const std::vector<int>& stage_of_chunk)
    : shape_(shape),
      stage_of_chunk_(stage_of_chunk),
      done_(kinds * static_cast<std::size_t>(shape.chunks())),
      ends_(kinds * static_cast<std::size_t>(shape.chunks())),
      clock_(static_cast<std::size_t>(shape.stages)),
      candidates_(static_cast<std::size_t>(shape.stages)),
      orders_(static_cast<std::size_t>(shape.stages)) {}

std::int64_t StepByClock::end_of(ComputeKind kind, int chunk, int micro_batch) const {
  const std::vector<std::int64_t>& ends = ends_[index(kind, chunk)];
  return micro_batch < static_cast<int>(ends.size()) ? ends[static_cast<std::size_t>(micro_batch)] : never;
}

std::int64_t StepByClock::begin_of(const ComputeAction& action, int stage) const {
  const int chunk = action.chunk, number = action.micro_batch;
  std::int64_t begin = clock_[static_cast<std::size_t>(stage)];
  const auto needs = [&](ComputeKind kind, int of) { begin = std::max(begin, end_of(kind, of, number)); };
  switch (action.kind) {
    case ComputeKind::Forward:
      if (chunk > 0) needs(ComputeKind::Forward, chunk - 1);
      break;
    case ComputeKind::BackwardInput:
      needs(ComputeKind::Forward, chunk);
      if (chunk + 1 < shape_.chunks()) needs(ComputeKind::BackwardInput, chunk + 1);
      break;
    case ComputeKind::BackwardWeight:
      needs(ComputeKind::BackwardInput, chunk);
      break;
    case ComputeKind::Backward:
    case ComputeKind::Update:
      throw Bug("StepByClock supports split backwards only, and no updates");
  }
  return begin;
}

bool StepByClock::carry_out_first() {
  const auto first = std::ranges::min_element(candidates_, {}, &Candidate::begin);
  if (first->begin == never) return false;
  const auto stage = static_cast<std::size_t>(first - candidates_.begin());
  last_ = first->action;
  clock_[stage] = first->begin + shape_.cost_of(last_.kind, last_.chunk);
  ends_[index(last_.kind, last_.chunk)].push_back(clock_[stage]);
  ++done_[index(last_.kind, last_.chunk)];
  orders_[stage].push_back(last_);
  return true;
}

std::int64_t StepByClock::end() const {
  for (const ComputeKind kind : {ComputeKind::Forward, ComputeKind::BackwardInput, ComputeKind::BackwardWeight})
    for (int chunk = 0; chunk < shape_.chunks(); ++chunk)
      if (done(kind, chunk) < shape_.micro_batches) return never;
  return *std::ranges::max_element(clock_);
}

}  // namespace strata::toolbox
