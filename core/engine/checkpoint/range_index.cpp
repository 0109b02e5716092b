#include "checkpoint/range_index.hpp"
#include "text/printable.hpp"

#include <strata/format.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace strata::checkpoint {
namespace {

// "elements 3 to 9 of the master of NAME"
std::string shown(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end) {
  return format("elements {} to {} of the {} of {}", begin, end, text::one_line(state), text::one_line(parameter));
}

constexpr std::int64_t columns = 4;
static_assert(sizeof(StoredRange) == columns * sizeof(std::int64_t));

struct TensorName {
  std::string parameter;
  std::string state;
  at::ScalarType dtype = at::kFloat;
  int part = 0;
  int parts = 1;
};

std::optional<int> parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// PARAMETER|STATE|DTYPE|PART/PARTS; a parameter's name may hold '|'.
std::optional<TensorName> parse_tensor_name(const std::string& text) {
  std::string_view rest = text;
  const auto take_last = [&] {
    const std::size_t bar = rest.rfind('|');
    if (bar == std::string_view::npos) return std::string_view();
    const std::string_view last = rest.substr(bar + 1);
    rest = rest.substr(0, bar);
    return last;
  };
  const std::string_view numbers = take_last();
  const std::optional<at::ScalarType> dtype = parse_dtype(take_last());
  const std::string state(take_last());
  const std::size_t slash = numbers.find('/');
  if (slash == std::string_view::npos || !dtype || state.empty() || rest.empty()) return std::nullopt;
  const std::optional<int> part = parse_number(numbers.substr(0, slash)),
                           parts = parse_number(numbers.substr(slash + 1));
  if (!part || !parts || *part >= *parts || *parts > most_parts) return std::nullopt;
  return TensorName{std::string(rest), state, *dtype, *part, *parts};
}

}  // namespace

RangeIndex::RangeIndex(const std::filesystem::path& folder, const std::vector<SafetensorsFile>& shards,
                       const std::vector<SavedParameter>& parameters)
    : folder_(folder) {
  for (const SafetensorsFile& shard : shards) {
    add(shard, static_cast<std::int64_t>(shard_paths_.size()));
    shard_paths_.push_back(shard.path());
    shard_bytes_.push_back(shard.size());
  }
  for (auto& [key, ranges] : known_) {
    std::ranges::sort(ranges, {}, &StoredRange::begin);
    const auto twice = std::ranges::adjacent_find(ranges, {}, &StoredRange::begin);
    if (twice != ranges.end())
      throw DamagedCheckpoint(
          Place{shard_paths_[static_cast<std::size_t>((twice + 1)->shard)]},
          "holds " + shown(key.parameter, key.state, twice->begin, twice->end) + ", which are stored twice");
  }
  settle(parameters);
  for (const auto& [key, ranges] : known_) check(key, ranges);
}

void RangeIndex::add(const SafetensorsFile& shard, std::int64_t number) {
  for (const auto& [text, entry] : shard.tensors()) {
    const std::optional<RangeName> name = parse_range_name(text);
    if (!name || entry.shape != std::vector<std::int64_t>{name->end - name->begin})
      throw DamagedCheckpoint(Place{shard.path()},
                              "tensor '" + text::one_line(text) + "' is not a range of a parameter");
    const auto [found, is_new] = parameters_[name->parameter].try_emplace(name->state);
    State& state = found->second;
    if (is_new) {
      state.dtype = entry.dtype;
      state.parts = name->parts;
    }
    if (state.parts != name->parts)
      throw DamagedCheckpoint(Place{shard.path()},
                              "'" + text::one_line(text) + "' is one of " + std::to_string(name->parts) +
                                  " parts, and other ranges of its parameter are of " + std::to_string(state.parts));
    if (state.dtype != entry.dtype)
      throw DamagedCheckpoint(Place{shard.path()}, shown(name->parameter, name->state, name->begin, name->end) +
                                                       " are of another type than the rest");
    known_[{name->parameter, name->state, name->part}].push_back(
        {name->begin, name->end, number, static_cast<std::int64_t>(entry.offset)});
  }
}

RangeIndex::RangeIndex(const std::filesystem::path& folder, std::vector<std::uint64_t> shard_bytes,
                       const std::vector<SavedParameter>& parameters)
    : folder_(folder), shard_bytes_(std::move(shard_bytes)) {
  const data::InputFile opened = open_saved(folder / index_file_name);
  try {
    file_.emplace(opened);
  } catch (const UserError& error) {
    throw DamagedCheckpoint(error.what());
  }
  for (const auto& [text, entry] : file_->tensors()) {
    const std::optional<TensorName> name = parse_tensor_name(text);
    if (!name || entry.dtype != at::kLong || entry.shape.size() != 2 || entry.shape[1] != columns)
      throw DamagedCheckpoint(Place{file_->path()}, "tensor '" + text::one_line(text) + "' is not a table of ranges");
    const auto [found, is_new] = parameters_[name->parameter].try_emplace(name->state);
    State& state = found->second;
    if (is_new) {
      state.dtype = name->dtype;
      state.parts = name->parts;
    }
    if (state.dtype != name->dtype || state.parts != name->parts)
      throw DamagedCheckpoint(Place{file_->path()},
                              "'" + text::one_line(text) + "' is unlike other parts of its parameter");
  }
  settle(parameters);
}

void RangeIndex::fail(const std::string& what) const {
  throw DamagedCheckpoint(Place{folder_.string()}, what);
}

// The facts of each state that follow from its parameter.
void RangeIndex::settle(const std::vector<SavedParameter>& parameters) {
  for (const SavedParameter& parameter : parameters) {
    const auto found = parameters_.find(parameter.name);
    if (found == parameters_.end() || !found->second.contains(master_state))
      fail("holds no weight of " + text::one_line(parameter.name));
    for (auto& [name, state] : found->second) {
      const auto whole = parameter.whole_states.find(name), block = parameter.block_states.find(name);
      if (block != parameter.block_states.end()) state.block = block->second;
      const auto blocks_of = [block = state.block](std::int64_t elements) { return (elements + block - 1) / block; };
      state.whole = blocks_of(element_count(parameter.shape));
      if (whole != parameter.whole_states.end()) state.whole = whole->second;
      state.length = state.whole;
      if (state.parts == 1) continue;
      try {
        state.cut.emplace(ParameterInfo{.name = parameter.name, .shape = parameter.shape, .split = parameter.split},
                          state.parts);
      } catch (const Error& error) {
        fail(error.what());
      }
      if (state.cut->parts() != state.parts) fail(text::one_line(parameter.name) + " is cut, and has no split");
      if (!state.cut->keeps_together(state.block))
        fail(text::one_line(parameter.name) + " is cut within the blocks of its " + text::one_line(name));
      state.length = blocks_of(state.cut->elements());
    }
  }
  if (parameters_.size() != parameters.size()) fail("holds parameters that it does not list");
  for (const auto& [parameter, states] : parameters_)
    for (const auto& [name, state] : states)
      for (int part = 0; part < state.parts; ++part) {
        const Key key{parameter, name, part};
        if (file_ ? !file_->tensors().contains(tensor_name(key)) : !known_.contains(key))
          fail(shown(parameter, name, 0, state.length) + " stand nowhere");
      }
}

void RangeIndex::check(const Key& key, const StoredRanges& ranges) const {
  const State& state = parameters_.at(key.parameter).at(key.state);
  const auto show = [&](std::int64_t one, std::int64_t other) {
    return shown(key.parameter, key.state, std::min(one, other), std::max(one, other));
  };
  const auto width = static_cast<std::int64_t>(c10::elementSize(state.dtype));
  std::int64_t at = 0;
  for (const StoredRange& range : ranges) {
    if (range.begin != at) fail(show(at, range.begin) + (range.begin > at ? " stand nowhere" : " stand twice"));
    if (range.end < range.begin || range.end > state.length) fail(show(range.begin, range.end) + " are too many");
    const auto shard = static_cast<std::uint64_t>(range.shard);
    if (range.shard < 0 || shard >= shard_bytes_.size() || range.offset < 0 ||
        static_cast<std::uint64_t>(range.offset) > shard_bytes_[shard] ||
        shard_bytes_[shard] - static_cast<std::uint64_t>(range.offset) <
            static_cast<std::uint64_t>((range.end - range.begin) * width))
      fail(show(range.begin, range.end) + " lie outside their shard");
    at = range.end;
  }
  if (at != state.length) fail(show(at, state.length) + " stand nowhere");
}

std::string RangeIndex::tensor_name(const Key& key) const {
  const State& state = parameters_.at(key.parameter).at(key.state);
  return format("{}|{}|{}|{}/{}", key.parameter, key.state, format_dtype(state.dtype), key.part, state.parts);
}

SavedFile RangeIndex::save() const {
  std::vector<TensorSpec> specs;
  std::map<std::string, const StoredRanges*> tables;
  for (const auto& [key, ranges] : known_) {
    const std::string name = tensor_name(key);
    specs.push_back({name, at::kLong, {static_cast<std::int64_t>(ranges.size()), columns}});
    tables[name] = &ranges;
  }
  SafetensorsWriter writer((folder_ / index_file_name).string(), specs, {});
  for (const std::string& name : writer.order()) {
    const StoredRanges& ranges = *tables.at(name);
    const at::Tensor rows = at::empty({static_cast<std::int64_t>(ranges.size()), columns}, at::kLong);
    std::memcpy(rows.mutable_data_ptr(), ranges.data(), rows.nbytes());
    writer.write_range(name, 0, rows);
  }
  writer.finish();
  return {index_file_name, writer.bytes(), writer.checksum()};
}

std::vector<std::string> RangeIndex::states(const std::string& parameter) const {
  std::vector<std::string> names;
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end()) return names;
  for (const auto& [state, stored] : found->second) names.push_back(state);
  return names;
}

const RangeIndex::State& RangeIndex::state(const std::string& parameter, const std::string& state) const {
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end() || !found->second.contains(state))
    throw UserError("the checkpoint holds no {} of {}; another version of its plugins saved it", text::one_line(state),
                    text::one_line(parameter));
  return found->second.at(state);
}

StoredRanges RangeIndex::load(const Key& key) const {
  const TensorEntry& entry = file_->tensors().at(tensor_name(key));
  StoredRanges ranges(static_cast<std::size_t>(entry.shape[0]));
  if (!open_) open_.emplace(file_->open());
  open_->read_at(entry.offset, ranges.data(), ranges.size() * sizeof(StoredRange));
  check(key, ranges);
  return ranges;
}

const StoredRanges& RangeIndex::ranges(const std::string& parameter, const std::string& state, int part) const {
  const Key key{parameter, state, part};
  if (!file_) return known_.at(key);
  const auto found = loaded_.find(key);
  if (found != loaded_.end()) return found->second;
  if (!loaded_.empty() && (loaded_.begin()->first.parameter != parameter || loaded_.begin()->first.state != state))
    loaded_.clear();
  return loaded_.emplace(key, load(key)).first->second;
}

}  // namespace strata::checkpoint
