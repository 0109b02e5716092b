#include "state/host_copies.hpp"

#include <algorithm>
#include <map>

namespace strata::state {

namespace {
// Each copy begins where a tensor of the host would.
std::int64_t room_for(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}
}  // namespace

std::int64_t HostCopies::bytes_for(const OptimizerState& state) {
  std::map<int, std::int64_t> bytes;  // by flat parameter
  std::int64_t most = 0;
  for (const OptimizerState::Entry& entry : state.entries())
    if (entry.writes_copy && state.buffers().moving_bytes({Category::Parameter, entry.flat->info().id}) == 0) {
      const std::size_t width = c10::elementSize(state.buffers().dtype(entry.parameter));
      std::int64_t& sum = bytes[entry.flat->info().id];
      sum += room_for(entry.parameter.elements * static_cast<std::int64_t>(width));
      most = std::max(most, sum);
    }
  return most;
}

HostCopies::HostCopies(std::int64_t bytes, StateStore& store, Device& device) : store_(store), bytes_(bytes) {
  if (!store.dry_run()) buffer_ = device.host_buffer(bytes_);
  store_.count(Category::Staging, Tier::Host, bytes_);
}

HostCopies::~HostCopies() {
  store_.count(Category::Staging, Tier::Host, -bytes_);
}

void HostCopies::step(std::span<Piece* const> pieces, const std::function<void()>& step) {
  std::vector<at::Tensor> on_device(pieces.size());
  std::int64_t taken = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Piece& piece = *pieces[i];
    if (piece.sums.defined()) piece.sums = piece.sums.cpu();
    if (!piece.parameter.defined() || piece.parameter.is_cpu()) continue;
    const auto bytes = static_cast<std::int64_t>(piece.parameter.nbytes());
    on_device[i] = piece.parameter;
    piece.parameter = buffer_.narrow(0, taken, bytes).view(on_device[i].scalar_type());
    taken += room_for(bytes);
  }
  step();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (on_device[i].defined()) {
      on_device[i].copy_(pieces[i]->parameter);
      pieces[i]->parameter = on_device[i];
    }
}

}  // namespace strata::state
