#include "state/optimizer_state.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <map>

namespace strata::state {

PieceInfo piece_info(const ParameterSpan& span, std::int64_t begin, std::int64_t end) {
  PieceInfo info = PieceInfo::whole(span.info);
  info.begin = begin;
  info.end = end;
  info.places = span.cut().places(span.cut().part_of(span.tensor_rank));
  return info;
}

namespace {

// The parts of a slice, one per parameter it touches: the range within the parameter and where it begins in the slice.
struct Part {
  const ParameterSpan* span;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t offset;
  PieceInfo piece() const { return piece_info(*span, begin, end); }
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

// Whether a cut of a trained slice, where one is allowed, changes no number: nothing is summed over a parameter, so
// that a state of a whole one can only follow from the step's scalars.
bool updates_in_parts(const Optimizer& optimizer, const Slice& slice) {
  if (!slice.flat->info().trainable || optimizer.rounds() != 1) return false;
  return std::ranges::none_of(cut(slice), [&](const Part& part) { return optimizer.sums(part.piece(), 0) != 0; });
}

}  // namespace

void check_ranges(const std::vector<Slice>& slices, const std::string& partitioner) {
  std::map<const FlatParameter*, std::map<std::int64_t, std::int64_t>> ends;  // by flat parameter and begin
  const auto text = [](std::int64_t begin, std::int64_t end) { return format("[{}, {})", begin, end); };
  for (const Slice& slice : slices) {
    if (slice.flat == nullptr) throw Bug("{}: owned() gives a slice of no flat parameter", partitioner);
    const FlatParameterInfo& flat = slice.flat->info();
    const std::string what = format("{}: owned() gives elements {} of {}, which has {}", partitioner,
                                    text(slice.begin, slice.end), flat.name, flat.elements);
    if (slice.begin < 0 || slice.end < slice.begin || slice.end > flat.elements)
      throw Bug("{}; a slice is a range of them", what);
    if (slice.counted_begin < slice.begin || slice.counted_end < slice.counted_begin || slice.counted_end > slice.end)
      throw Bug("{}, and counts {}; it counts a part of it", what, text(slice.counted_begin, slice.counted_end));
    if (slice.begin == slice.end) continue;
    for (const auto& [begin, end] : ends[slice.flat])
      if (begin < slice.end && slice.begin < end)
        throw Bug("{}, and {} too; slices of one rank have no element in common, for both would update it", what,
                  text(begin, end));
    ends[slice.flat][slice.begin] = slice.end;
  }
}

void check_cuts(const std::vector<Slice>& slices, const std::string& optimizer, const std::string& partitioner) {
  for (const Slice& slice : slices)
    for (const Part& part : cut(slice))
      for (const std::int64_t at : {part.begin, part.end}) {
        const std::int64_t place = part.span->offset + at;
        if (slice.flat->info().cut_up_to(place) == place) continue;
        throw UserError(
            "{} updates {} neighbouring elements of {} together, and {} cuts it at element {}; use a partitioner that "
            "cuts where the optimizer allows it (FlatParameterInfo::cut_up_to), such as one of Strata, or an optimizer "
            "that updates each element independently",
            optimizer, part.span->unit, part.span->info.name, partitioner, at);
      }
}

OptimizerState::OptimizerState(const std::vector<Slice>& slices, const Optimizer& optimizer, memory::Buffers& buffers,
                               const std::vector<int>& replicas, config::StepPolicy policy,
                               std::int64_t update_elements, WriteTrained write_trained)
    : buffers_(buffers), write_trained_(std::move(write_trained)), local_(policy == config::StepPolicy::Local) {
  std::map<int, int> parts;  // so far, by flat parameter
  for (const Slice& slice : slices) {
    const bool in_parts =
        buffers.moves(Category::Optimizer, slice.flat->info().id) && updates_in_parts(optimizer, slice);
    const std::int64_t step = in_parts ? update_elements : slice.end - slice.begin;
    std::int64_t begin = slice.begin;
    do {
      std::int64_t end = slice.end;
      if (end - begin > step) {
        end = slice.flat->info().cut_up_to(begin + step);
        if (end == begin) end = slice.flat->info().cut_behind(begin);
      }
      add_slice(range_of(slice, begin, end), in_parts ? parts[slice.flat->info().id]++ : 0, optimizer, policy);
      begin = end;
    } while (begin < slice.end);
  }
  for (Entry& entry : entries_)
    if (std::ranges::find(replicas, entry.flat->info().id) != replicas.end()) {
      entry.counted_end = entry.counted_begin;
      entry.group_end = entry.group_begin;
    }
  for (Entry& entry : entries_) by_flat_parameter_[entry.flat->info().id].push_back(&entry);
}

namespace {

// Of a state, the elements of a part of its piece. A part begins at a multiple of the optimizer's unit.
BufferRange part_of_state(const StateTensor& state, const BufferRange& range, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = begin / state.block;
  return {range.buffer, range.begin + first, (end + state.block - 1) / state.block - first};
}

// Border `at` of a piece, or the start of the unit that it falls in.
std::int64_t unit_start(const Part& part, std::int64_t at) {
  return at == part.end - part.begin ? at : at - at % part.span->unit;
}

}  // namespace

void OptimizerState::add_slice(const Slice& slice, int number, const Optimizer& optimizer, config::StepPolicy policy) {
  const FlatParameterInfo& flat = slice.flat->info();
  const std::int64_t elements = slice.end - slice.begin;
  const auto make = [&](const std::string& name, std::int64_t length, at::ScalarType dtype) {
    return &buffers_.make({Category::Optimizer, flat.id, false, number}, flat.name + ": " + name, length, dtype);
  };
  const std::size_t first = entries_.size();
  const bool own_master = flat.trainable && (flat.dtypes.has_master() || evaluates_elsewhere() ||
                                             buffers_.plan().home_of(Category::Optimizer, flat.id) != nullptr);
  const BufferRange master =
      own_master ? BufferRange{make("master weights", elements, flat.dtypes.master), 0, elements} : slice.parameter;
  const auto save_too = [&](const std::string& name, const BufferRange& now) {
    if (flat.trainable && policy == config::StepPolicy::Speculative)
      saved_[flat.id].push_back({now, {make(name + ", saved", now.elements, buffers_.dtype(now)), 0, now.elements}});
  };
  save_too("master weights", master);
  BufferRange common, outer_momentum;
  if (flat.trainable && local_) {
    common = {make("common weights", elements, at::kFloat), 0, elements};
    outer_momentum = {make("outer momentum", elements, at::kFloat), 0, elements};
  }
  const bool keeps_gradients = policy == config::StepPolicy::Delayed;
  BufferRange kept;
  if (flat.trainable && keeps_gradients)
    kept = {&buffers_.make({Category::Gradient, flat.id, true}, flat.name + ": kept gradient", elements,
                           buffers_.dtype(slice.gradient)),
            0, elements};
  using Key = std::pair<std::string, at::ScalarType>;  // of a state tensor
  std::map<Key, std::int64_t> lengths;                 // over the slice's pieces
  for (const Part& part : cut(slice)) {
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
    entry.measured_begin = unit_start(part, std::clamp<std::int64_t>(slice.counted_begin - piece_begin, 0, length));
    entry.measured_end = std::max(
        entry.measured_begin, unit_start(part, std::clamp<std::int64_t>(slice.counted_end - piece_begin, 0, length)));
    const bool everywhere = part.span->cut().parts() == 1;  // every tensor-parallel rank has it whole: one counts it
    if (everywhere && part.span->tensor_rank > 0) entry.measured_end = entry.measured_begin;
    entry.counted_begin = entry.measured_begin;
    entry.counted_end = entry.measured_end;
    entry.group_begin = local_ ? 0 : entry.counted_begin;
    entry.group_end = !local_ ? entry.counted_end : everywhere && part.span->tensor_rank > 0 ? 0 : length;
    if (!flat.trainable) continue;
    if (local_) {
      entry.common = range_of(common, part.offset, length);
      entry.outer_momentum = range_of(outer_momentum, part.offset, length);
    }
    entry.gradient = range_of(slice.gradient, part.offset, length);
    if (keeps_gradients) entry.kept = range_of(kept, part.offset, length);
    entry.states = optimizer.state(entry.piece.info);
    for (const StateTensor& state : entry.states) {
      if (state.name == kept_gradient)
        throw Bug("the optimizer names a state \"{}\", as the engine's own is called", state.name);
      if (state.block < 1 || (part.span->unit % state.block != 0 && part.span->unit < part.span->elements()))
        throw Bug(
            "the optimizer's state \"{}\" has blocks of {} elements, of which its unit of {} for {} is no multiple",
            state.name, state.block, part.span->unit, part.span->info.name);
      lengths[{state.name, state.dtype}] += state.elements(entry.piece.info);
    }
  }
  std::map<Key, std::pair<Buffer*, std::int64_t>> buffers;  // and the number of elements in use
  for (const auto& [key, length] : lengths) {
    buffers[key].first = make(key.first, length, key.second);
    save_too(key.first, {buffers[key].first, 0, length});
  }
  for (std::size_t i = first; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    for (const StateTensor& state : entry.states) {
      auto& [buffer, taken] = buffers[{state.name, state.dtype}];
      const std::int64_t length = state.elements(entry.piece.info);
      entry.state.push_back({buffer, taken, length});
      taken += length;
    }
    entry.moves = buffers_.moving_bytes({Category::Optimizer, flat.id, false, number}) > 0 ||
                  buffers_.moving_bytes({Category::Gradient, flat.id}) > 0 ||
                  buffers_.moving_bytes({Category::Parameter, flat.id}) > 0;
  }
}

BufferRange OptimizerState::Entry::state_of(std::size_t number, std::int64_t begin, std::int64_t end) const {
  return states[number].whole > 0 ? state[number] : part_of_state(states[number], state[number], begin, end);
}

void OptimizerState::Entry::for_each_run(const BufferRange& range, std::int64_t begin, std::int64_t end,
                                         const std::function<void(std::int64_t whole, const BufferRange& part)>& visit,
                                         std::int64_t block) const {
  const ParameterCut cut = span->cut();
  const std::int64_t first = piece.info.begin;
  cut.for_each_run(cut.part_of(span->tensor_rank), first + begin, first + end, [&](const ParameterCut::Run& run) {
    visit(run.whole / block,
          {range.buffer, range.begin + (run.in_part - first) / block, (run.elements + block - 1) / block});
  });
}

const std::vector<OptimizerState::Entry*>& OptimizerState::entries_of(int flat_parameter) const {
  static const std::vector<Entry*> none;  // this rank owns nothing of it
  const auto found = by_flat_parameter_.find(flat_parameter);
  return found == by_flat_parameter_.end() ? none : found->second;
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
  for (std::size_t i = 0; i < entry.states.size(); ++i) {
    if (entry.states[i].whole > 0) continue;
    const BufferRange range = part_of_state(entry.states[i], {}, begin, end);
    part.state[i] = part.state[i].narrow(0, range.begin, range.elements);
  }
  return part;
}

void OptimizerState::save(int flat_parameter) {
  for (const Saved& saved : saved_[flat_parameter])
    buffers_.for_update(saved.copy).copy_(buffers_.for_update(saved.now));
}

void OptimizerState::restore(int flat_parameter) {
  for (const Saved& saved : saved_[flat_parameter])
    buffers_.for_update(saved.now).copy_(buffers_.for_update(saved.copy));
  for (Entry* const entry : entries_of(flat_parameter))
    if (trains_elsewhere())
      write_trained_(piece_of(*entry));
    else if (entry->writes_copy)
      buffers_.for_update(entry->parameter).copy_(buffers_.for_update(entry->master));
}

}  // namespace strata::state
