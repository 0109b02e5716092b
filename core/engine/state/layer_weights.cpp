// The weights of the layers' computation, written from master weights and optimizer state.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "state/optimizer_state.hpp"

namespace strata::state {

// Some at a time, in whole units: values on a disk pass through the host's memory.
void OptimizerState::write_parameter(const Entry& entry) {
  if (!trains_elsewhere() || !entry.trainable) {
    if (entry.writes_copy) copy(entry.master, entry.parameter);
    return;
  }
  const std::int64_t elements = entry.piece.info.end - entry.piece.info.begin, unit = entry.span->unit;
  const std::int64_t some = std::max<std::int64_t>((std::int64_t{1} << 22) / unit, 1) * unit;
  for (std::int64_t begin = 0; begin < elements; begin += some)
    write_trained_part(entry, begin, std::min(begin + some, elements));
}

void OptimizerState::write_trained_part(const Entry& entry, std::int64_t begin, std::int64_t end) {
  Piece part;
  part.info = entry.piece.info;
  part.info.end = part.info.begin + end;
  part.info.begin += begin;
  const auto range = [&](const BufferRange& of) { return BufferRange{of.buffer, of.begin + begin, end - begin}; };
  const std::function<void()> with_states = [&] {
    const std::size_t i = part.state.size();
    if (i == entry.states.size())
      return buffers_.with(range(entry.parameter), memory::Access::Write, [&](const at::Tensor& to) {
        part.parameter = at::empty(to.sizes(), to.options().device(part.master.device()));
        write_trained_(part);
        to.copy_(part.parameter);
      });
    buffers_.with(entry.state_of(i, begin, end), memory::Access::Read, [&](const at::Tensor& values) {
      part.state.push_back(values);
      with_states();
    });
  };
  buffers_.with(range(entry.master), memory::Access::Read, [&](const at::Tensor& values) {
    part.master = values;
    with_states();
  });
}

void OptimizerState::write_evaluated(const Entry& entry) {
  if (entry.writes_copy) copy(entry.weights(), entry.parameter);
}

void OptimizerState::start_at_weights(const Entry& entry) {
  if (entry.common.buffer != nullptr) copy(entry.common, entry.master);
}

void OptimizerState::copy(const BufferRange& from, const BufferRange& to) const {
  buffers_.with(from, memory::Access::Read, [&](const at::Tensor& values) {
    buffers_.with(to, memory::Access::Write, [&](const at::Tensor& copied) { copied.copy_(values); });
  });
}

}  // namespace strata::state
