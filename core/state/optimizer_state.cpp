#include "state/optimizer_state.hpp"

#include <ATen/ops/from_blob.h>
#include <strata/error.hpp>

#include <algorithm>
#include <map>

namespace strata::state {

OptimizerState::OptimizerState(const std::vector<Slice>& slices, const Optimizer& optimizer, StateStore& store,
                               OffloadDevice* offload, const std::vector<int>& replicas)
    : store_(store), offload_(offload) {
  for (const Slice& slice : slices) add_slice(slice, optimizer);
  for (Entry& entry : entries_)
    if (std::ranges::find(replicas, entry.flat->info().id) != replicas.end()) entry.counted_end = entry.counted_begin;
  for (Entry& entry : entries_) by_flat_parameter_[entry.flat->info().id].push_back(&entry);
}

OptimizerState::~OptimizerState() {
  entries_.clear();
  for (const Region region : regions_) {
    store_.count(Category::Optimizer, offload_->tier(), -static_cast<std::int64_t>(region.bytes));
    offload_->free(region);
  }
}

at::Tensor OptimizerState::allocate(const std::string& owner, std::int64_t elements, at::ScalarType dtype) {
  if (offload_ == nullptr) return store_.allocate(Category::Optimizer, Tier::Device, owner, elements, dtype);
  if (store_.dry_run()) return store_.allocate(Category::Optimizer, offload_->tier(), owner, elements, dtype);
  const Region region = offload_->reserve(static_cast<std::size_t>(elements) * c10::elementSize(dtype));
  const std::optional<Span> memory = offload_->map(region);
  if (!memory) {
    offload_->free(region);
    throw UserError(
        "offload.optimizer: this device holds bytes that the host cannot address, and the optimizer updates in place; "
        "use an "
        "offload plugin whose regions can be mapped");
  }
  regions_.push_back(region);
  store_.count(Category::Optimizer, offload_->tier(), static_cast<std::int64_t>(region.bytes));
  return at::from_blob(memory->data, {elements}, at::TensorOptions().dtype(dtype));
}

namespace {

// The parts of a slice, one per parameter it touches: the range within the parameter and where it begins in the slice.
struct Part {
  const ParameterSpan* span;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t offset;
};

std::vector<Part> cut(const Slice& slice) {
  std::vector<Part> parts;
  for (const ParameterSpan& span : slice.flat->info().parameters) {
    const std::int64_t begin = std::max(slice.begin, span.offset);
    const std::int64_t end = std::min(slice.end, span.offset + span.info.elements());
    if (begin < end) parts.push_back({&span, begin - span.offset, end - span.offset, begin - slice.begin});
  }
  return parts;
}

std::int64_t length_of(const StateTensor& state, std::int64_t piece) {
  return state.whole > 0 ? state.whole : piece;
}

void check_granularity(const Optimizer& optimizer, const Part& part) {
  const std::int64_t elements = part.span->info.elements();
  const std::int64_t rows = part.span->info.shape.empty() ? 1 : part.span->info.shape.front();
  const std::int64_t unit = optimizer.granularity() == Granularity::Element ? 1
                            : optimizer.granularity() == Granularity::Matrix
                                ? elements
                                : elements / std::max<std::int64_t>(rows, 1);
  if (part.begin % unit == 0 && part.end % unit == 0) return;
  throw UserError("the optimizer needs " +
                  std::string(optimizer.granularity() == Granularity::Matrix ? "whole parameters" : "whole rows") +
                  ", and the partitioner cuts " + part.span->info.name + " at elements " + std::to_string(part.begin) +
                  " and " + std::to_string(part.end) +
                  "; use a partitioner that keeps them whole, or an element-wise optimizer");
}

}  // namespace

void OptimizerState::add_slice(const Slice& slice, const Optimizer& optimizer) {
  const FlatParameterInfo& flat = slice.flat->info();
  const std::int64_t elements = slice.end - slice.begin;
  const std::size_t first = entries_.size();
  const bool own_master = flat.trainable && (flat.dtypes.has_master() || offload_ != nullptr);
  const at::Tensor master =
      own_master ? allocate(flat.name + ": master weights", elements, flat.dtypes.master) : slice.parameter;
  using Key = std::pair<std::string, at::ScalarType>;  // of a state tensor
  std::map<Key, std::int64_t> lengths;                 // over the slice's pieces
  for (const Part& part : cut(slice)) {
    if (flat.trainable) check_granularity(optimizer, part);
    const std::int64_t length = part.end - part.begin;
    Entry& entry = entries_.emplace_back();
    entry.flat = slice.flat;
    entry.trainable = flat.trainable;
    entry.writes_copy = own_master;
    entry.piece.info = {part.span->info.name, part.span->info.shape, part.begin, part.end};
    entry.piece.master = master.narrow(0, part.offset, length);
    if (own_master) entry.piece.parameter = slice.parameter.narrow(0, part.offset, length);
    const std::int64_t piece_begin = slice.begin + part.offset;
    entry.measured_begin = std::clamp<std::int64_t>(slice.counted_begin - piece_begin, 0, length);
    entry.measured_end = std::clamp<std::int64_t>(slice.counted_end - piece_begin, entry.measured_begin, length);
    entry.counted_begin = entry.measured_begin;
    entry.counted_end = entry.measured_end;
    if (!flat.trainable) continue;
    entry.piece.gradient = slice.gradient.narrow(0, part.offset, length);
    entry.states = optimizer.state(entry.piece.info);
    for (const StateTensor& state : entry.states) lengths[{state.name, state.dtype}] += length_of(state, length);
  }
  std::map<Key, std::pair<at::Tensor, std::int64_t>> buffers;  // and what of it is taken
  for (const auto& [key, length] : lengths)
    buffers[key].first = allocate(flat.name + ": " + key.first, length, key.second);
  for (std::size_t i = first; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    for (const StateTensor& state : entry.states) {
      auto& [buffer, taken] = buffers[{state.name, state.dtype}];
      const std::int64_t length = length_of(state, entry.piece.info.end - entry.piece.info.begin);
      entry.piece.state.push_back(buffer.narrow(0, taken, length));
      taken += length;
    }
  }
}

const std::vector<OptimizerState::Entry*>& OptimizerState::entries_of(int flat_parameter) const {
  static const std::vector<Entry*> none;  // this rank owns nothing of it
  const auto found = by_flat_parameter_.find(flat_parameter);
  return found == by_flat_parameter_.end() ? none : found->second;
}

Piece OptimizerState::part_of(const Entry& entry, std::int64_t begin, std::int64_t end) {
  Piece part = entry.piece;
  part.info.end = part.info.begin + end;
  part.info.begin += begin;
  const auto cut = [&](at::Tensor& tensor) { tensor = tensor.narrow(0, begin, end - begin); };
  cut(part.master);
  if (part.gradient.defined()) cut(part.gradient);
  if (part.parameter.defined()) cut(part.parameter);
  for (std::size_t i = 0; i < entry.states.size(); ++i)
    if (entry.states[i].whole == 0) cut(part.state[i]);
  return part;
}

void OptimizerState::write_parameter(Entry& entry) {
  if (entry.writes_copy) entry.piece.parameter.copy_(entry.piece.master);
}

}  // namespace strata::state
