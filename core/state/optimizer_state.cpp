#include "state/optimizer_state.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <map>

namespace strata::state {

namespace {

// The parts of a slice, one per parameter it touches: the range within the parameter and where it begins in the slice.
struct Part {
  const ParameterSpan* span;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t offset;
  PieceInfo piece() const { return {span->info.name, span->info.shape, begin, end}; }
};

std::vector<Part> cut(const Slice& slice) {
  std::vector<Part> parts;
  for (const ParameterSpan& span : slice.flat->info().parameters) {
    const std::int64_t begin = std::max(slice.begin, span.offset);
    const std::int64_t end = std::min(slice.end, span.offset + span.elements());
    if (begin < end) parts.push_back({&span, begin - span.offset, end - span.offset, begin - slice.begin});
  }
  return parts;
}

BufferRange range_of(const BufferRange& range, std::int64_t offset, std::int64_t length) {
  return {range.buffer, range.begin + offset, length};
}

Slice range_of(const Slice& slice, std::int64_t begin, std::int64_t end) {
  Slice range = slice;
  range.begin = begin;
  range.end = end;
  range.parameter = range_of(slice.parameter, begin - slice.begin, end - begin);
  range.gradient = range_of(slice.gradient, begin - slice.begin, end - begin);
  return range;
}

// Whether a cut anywhere in a trained slice changes no number: no state and no sum belongs to more than an element.
bool updates_elements(const Optimizer& optimizer, const Slice& slice) {
  if (!slice.flat->info().trainable || optimizer.granularity() != Granularity::Element || optimizer.rounds() != 1)
    return false;
  for (const Part& part : cut(slice)) {
    if (optimizer.sums(part.piece(), 0) != 0) return false;
    for (const StateTensor& state : optimizer.state(part.piece()))
      if (state.whole > 0) return false;
  }
  return true;
}

}  // namespace

OptimizerState::OptimizerState(const std::vector<Slice>& slices, const Optimizer& optimizer, Buffers& buffers,
                               const std::vector<int>& replicas, config::StepPolicy policy,
                               std::int64_t update_elements)
    : buffers_(buffers) {
  std::map<int, int> parts;  // so far, by flat parameter
  for (const Slice& slice : slices) {
    const bool in_parts =
        buffers.moves(Category::Optimizer, slice.flat->info().id) && updates_elements(optimizer, slice);
    const std::int64_t step = in_parts ? update_elements : slice.end - slice.begin;
    std::int64_t begin = slice.begin;
    do {
      const std::int64_t end = slice.end - begin > step ? begin + step : slice.end;
      add_slice(range_of(slice, begin, end), in_parts ? parts[slice.flat->info().id]++ : 0, optimizer, policy);
      begin = end;
    } while (begin < slice.end);
  }
  for (Entry& entry : entries_)
    if (std::ranges::find(replicas, entry.flat->info().id) != replicas.end()) entry.counted_end = entry.counted_begin;
  for (Entry& entry : entries_) by_flat_parameter_[entry.flat->info().id].push_back(&entry);
}

namespace {

std::int64_t length_of(const StateTensor& state, std::int64_t piece) {
  return state.whole > 0 ? state.whole : piece;
}

void check_granularity(const Optimizer& optimizer, const Part& part) {
  const ParameterCut whole = part.span->cut();
  const std::int64_t elements = whole.elements();
  const std::int64_t rows = whole.shape().empty() ? 1 : whole.shape().front();
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

void OptimizerState::add_slice(const Slice& slice, int number, const Optimizer& optimizer, config::StepPolicy policy) {
  const FlatParameterInfo& flat = slice.flat->info();
  const std::int64_t elements = slice.end - slice.begin;
  const auto make = [&](const std::string& name, std::int64_t length, at::ScalarType dtype) {
    return &buffers_.make({Category::Optimizer, flat.id, false, number}, flat.name + ": " + name, length, dtype);
  };
  const std::size_t first = entries_.size();
  const bool own_master =
      flat.trainable && (flat.dtypes.has_master() || buffers_.plan().home_of(Category::Optimizer, flat.id) != nullptr);
  const BufferRange master =
      own_master ? BufferRange{make("master weights", elements, flat.dtypes.master), 0, elements} : slice.parameter;
  const auto save_too = [&](const std::string& name, const BufferRange& now) {
    if (flat.trainable && policy == config::StepPolicy::Speculative)
      saved_[flat.id].push_back({now, {make(name + ", saved", now.elements, buffers_.dtype(now)), 0, now.elements}});
  };
  save_too("master weights", master);
  const bool keeps_gradients = policy == config::StepPolicy::Delayed;
  BufferRange kept;
  if (flat.trainable && keeps_gradients)
    kept = {&buffers_.make({Category::Gradient, flat.id, true}, flat.name + ": kept gradient", elements,
                           buffers_.dtype(slice.gradient)),
            0, elements};
  using Key = std::pair<std::string, at::ScalarType>;  // of a state tensor
  std::map<Key, std::int64_t> lengths;                 // over the slice's pieces
  for (const Part& part : cut(slice)) {
    if (flat.trainable) check_granularity(optimizer, part);
    const std::int64_t length = part.end - part.begin;
    Entry& entry = entries_.emplace_back();
    entry.flat = slice.flat;
    entry.span = part.span;
    entry.trainable = flat.trainable;
    entry.writes_copy = own_master;
    entry.piece.info = part.piece();
    entry.part = number;
    entry.master = range_of(master, part.offset, length);
    entry.parameter = range_of(slice.parameter, part.offset, length);
    const std::int64_t piece_begin = slice.begin + part.offset;
    entry.measured_begin = std::clamp<std::int64_t>(slice.counted_begin - piece_begin, 0, length);
    entry.measured_end = std::clamp<std::int64_t>(slice.counted_end - piece_begin, entry.measured_begin, length);
    const bool everywhere = part.span->cut().parts() == 1;  // every tensor-parallel rank has it whole: one counts it
    entry.counted_begin = entry.measured_begin;
    entry.counted_end = everywhere && part.span->tensor_rank > 0 ? entry.counted_begin : entry.measured_end;
    if (!flat.trainable) continue;
    entry.gradient = range_of(slice.gradient, part.offset, length);
    if (keeps_gradients) entry.kept = range_of(kept, part.offset, length);
    entry.states = optimizer.state(entry.piece.info);
    for (const StateTensor& state : entry.states)
      if (state.name == kept_gradient)
        throw Bug("the optimizer names a state \"" + state.name + "\", as the engine's own is called");
    for (const StateTensor& state : entry.states) lengths[{state.name, state.dtype}] += length_of(state, length);
  }
  std::map<Key, std::pair<Buffer*, std::int64_t>> buffers;  // and what of it is taken
  for (const auto& [key, length] : lengths) {
    buffers[key].first = make(key.first, length, key.second);
    save_too(key.first, {buffers[key].first, 0, length});
  }
  for (std::size_t i = first; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    for (const StateTensor& state : entry.states) {
      auto& [buffer, taken] = buffers[{state.name, state.dtype}];
      const std::int64_t length = length_of(state, entry.piece.info.end - entry.piece.info.begin);
      entry.state.push_back({buffer, taken, length});
      taken += length;
    }
    entry.moves = buffers_.moving_bytes({Category::Optimizer, flat.id, false, number}) > 0 ||
                  buffers_.moving_bytes({Category::Gradient, flat.id}) > 0 ||
                  buffers_.moving_bytes({Category::Parameter, flat.id}) > 0;
  }
}

void OptimizerState::Entry::for_each_run(
    const BufferRange& range, std::int64_t begin, std::int64_t end,
    const std::function<void(std::int64_t whole, const BufferRange& part)>& visit) const {
  const ParameterCut cut = span->cut();
  const std::int64_t first = piece.info.begin;
  cut.for_each_run(cut.part_of(span->tensor_rank), first + begin, first + end, [&](const ParameterCut::Run& run) {
    visit(run.whole, {range.buffer, range.begin + run.in_part - first, run.elements});
  });
}

const std::vector<OptimizerState::Entry*>& OptimizerState::entries_of(int flat_parameter) const {
  static const std::vector<Entry*> none;  // this rank owns nothing of it
  const auto found = by_flat_parameter_.find(flat_parameter);
  return found == by_flat_parameter_.end() ? none : found->second;
}

std::vector<OptimizerState::OwnedGradient> OptimizerState::gradients_of(int flat_parameter) const {
  std::vector<OwnedGradient> owned;
  for (const Entry* const entry : entries_of(flat_parameter)) {
    const std::int64_t begin = entry->span->offset + entry->piece.info.begin;
    const std::int64_t end = entry->span->offset + entry->piece.info.end;
    if (!owned.empty() && owned.back().end == begin && owned.back().gradient.buffer == entry->gradient.buffer &&
        owned.back().gradient.begin + owned.back().gradient.elements == entry->gradient.begin) {
      owned.back().end = end;
      owned.back().gradient.elements += entry->gradient.elements;
    } else {
      owned.push_back({entry->gradient, begin, end});
    }
  }
  return owned;
}

int OptimizerState::update_parts(int flat_parameter) const {
  int parts = 1;
  for (const Entry* const entry : entries_of(flat_parameter)) parts = std::max(parts, entry->part + 1);
  return parts;
}

Piece& OptimizerState::piece_of(Entry& entry, bool kept) {
  entry.piece.gradient = buffers_.for_update(kept ? entry.kept : entry.gradient);
  if (entry.piece.master.defined() && !entry.moves) return entry.piece;
  entry.piece.master = buffers_.for_update(entry.master);
  if (entry.writes_copy) entry.piece.parameter = buffers_.for_update(entry.parameter);
  entry.piece.state.clear();
  for (const BufferRange& range : entry.state) entry.piece.state.push_back(buffers_.for_update(range));
  return entry.piece;
}

Piece OptimizerState::part_of(const Piece& piece, const Entry& entry, std::int64_t begin, std::int64_t end) {
  Piece part = piece;
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

void OptimizerState::save(int flat_parameter) {
  for (const Saved& saved : saved_[flat_parameter])
    buffers_.for_update(saved.copy).copy_(buffers_.for_update(saved.now));
}

void OptimizerState::restore(int flat_parameter) {
  for (const Saved& saved : saved_[flat_parameter])
    buffers_.for_update(saved.now).copy_(buffers_.for_update(saved.copy));
  for (const Entry* const entry : entries_of(flat_parameter))
    if (entry->writes_copy) buffers_.for_update(entry->parameter).copy_(buffers_.for_update(entry->master));
}

void OptimizerState::write_parameter(const Entry& entry) {
  if (!entry.writes_copy) return;
  buffers_.with(entry.master, Access::Read, [&](const at::Tensor& master) {
    buffers_.with(entry.parameter, Access::Write, [&](const at::Tensor& parameter) { parameter.copy_(master); });
  });
}

}  // namespace strata::state
