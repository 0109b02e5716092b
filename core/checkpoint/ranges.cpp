#include "checkpoint/ranges.hpp"

#include <algorithm>
#include <charconv>

#include "checkpoint/json_text.hpp"

namespace strata::checkpoint {
namespace {

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::to_string(value) != text || value < 0)
    return std::nullopt;
  return value;
}

// "elements 3 to 9 of the master of NAME"
std::string shown(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end) {
  return "elements " + std::to_string(begin) + " to " + std::to_string(end) + " of the " + printable(state) + " of " +
         printable(parameter);
}

}  // namespace

std::string format_range_name(const RangeName& name) {
  strata_check(!name.state.empty() && name.state.find('|') == std::string::npos,
               "a state's name is not empty and holds no '|'");
  return name.parameter + "|" + name.state + "|" + std::to_string(name.begin) + ":" + std::to_string(name.end);
}

std::optional<RangeName> parse_range_name(const std::string& text) {
  const std::string::size_type last = text.rfind('|');
  if (last == std::string::npos || last == 0) return std::nullopt;
  const std::string::size_type first = text.rfind('|', last - 1);
  const std::string::size_type colon = text.find(':', last);
  if (first == std::string::npos || first == 0 || first + 1 == last || colon == std::string::npos) return std::nullopt;
  const auto begin = parse_count(std::string_view(text).substr(last + 1, colon - last - 1));
  const auto end = parse_count(std::string_view(text).substr(colon + 1));
  if (!begin || !end || *begin > *end) return std::nullopt;
  return RangeName{text.substr(0, first), text.substr(first + 1, last - first - 1), *begin, *end};
}

RangeSource::RangeSource(const std::filesystem::path& folder, const std::vector<SavedFile>& files,
                         const std::vector<SavedParameter>& parameters) {
  for (const SavedFile& file : files) {
    if (!file.name.ends_with(".safetensors")) continue;
    const data::InputFile opened = open_saved(folder / file.name);
    try {
      files_.push_back(std::make_unique<SafetensorsFile>(opened));
    } catch (const UserError& error) {
      throw DamagedCheckpoint(error.what());
    }
    add(*files_.back());
  }
  check(folder, parameters);
}

void RangeSource::add(const SafetensorsFile& file) {
  for (const auto& [text, entry] : file.tensors()) {
    const std::optional<RangeName> name = parse_range_name(text);
    if (!name || entry.shape != std::vector<std::int64_t>{name->end - name->begin})
      throw DamagedCheckpoint(Place{file.path()}, "tensor '" + printable(text) + "' is no range of a parameter");
    Ranges& known = parameters_[name->parameter][name->state];
    if (!known.try_emplace(name->begin, Range{name->end, &file, entry.dtype}).second)
      throw DamagedCheckpoint(
          Place{file.path()},
          "holds " + shown(name->parameter, name->state, name->begin, name->end) + ", which stand elsewhere too");
  }
}

void RangeSource::check(const std::filesystem::path& folder, const std::vector<SavedParameter>& parameters) const {
  const auto fail = [&](const std::string& what) { throw DamagedCheckpoint(Place{folder.string()}, what); };
  for (const SavedParameter& parameter : parameters) {
    const auto found = parameters_.find(parameter.name);
    if (found == parameters_.end() || !found->second.contains(master_state))
      fail("holds no weight of " + printable(parameter.name));
    for (const auto& [state, known] : found->second) {
      const auto whole = parameter.whole_states.find(state);
      const std::int64_t elements =
          whole == parameter.whole_states.end() ? element_count(parameter.shape) : whole->second;
      std::int64_t at = 0;
      for (const auto& [begin, range] : known) {
        if (begin != at)
          fail(shown(parameter.name, state, std::min(at, begin), std::max(at, begin)) +
               (begin > at ? " stand nowhere" : " stand twice"));
        if (range.dtype != known.begin()->second.dtype)
          fail(shown(parameter.name, state, begin, range.end) + " are of another type than the rest");
        at = range.end;
      }
      if (at != elements)
        fail(shown(parameter.name, state, std::min(at, elements), std::max(at, elements)) +
             (at < elements ? " stand nowhere" : " are too many"));
    }
  }
  if (parameters_.size() != parameters.size()) fail("holds parameters that it does not list");
}

std::vector<std::string> RangeSource::states(const std::string& parameter) const {
  std::vector<std::string> names;
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end()) return names;
  for (const auto& [state, known] : found->second) names.push_back(state);
  return names;
}

const RangeSource::Ranges& RangeSource::ranges(const std::string& parameter, const std::string& state) const {
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end() || !found->second.contains(state))
    throw Bug("a checkpoint holds no " + state + " of " + parameter);
  return found->second.at(state);
}

at::ScalarType RangeSource::dtype(const std::string& parameter, const std::string& state) const {
  return ranges(parameter, state).begin()->second.dtype;
}

std::int64_t RangeSource::elements(const std::string& parameter, const std::string& state) const {
  return ranges(parameter, state).rbegin()->second.end;
}

const data::InputFile& RangeSource::opened(const SafetensorsFile& file) const {
  if (read_last_ != &file) {
    open_.emplace(file.open());
    read_last_ = &file;
  }
  return *open_;
}

void RangeSource::read(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end,
                       const at::Tensor& destination) const {
  const Ranges& known = ranges(parameter, state);
  strata_check(destination.dim() == 1 && destination.numel() == end - begin,
               "RangeSource::read: the destination is as long as the range");
  if (begin == end) return;
  auto range = known.upper_bound(begin);
  strata_check(range != known.begin() && begin >= 0, "RangeSource::read: no such range");
  for (--range; begin < end; ++range) {
    strata_check(range != known.end(), "RangeSource::read: no such range");
    const std::int64_t stop = std::min(end, range->second.end);
    const std::int64_t length = stop - begin;
    if (length == 0) continue;  // an empty range in the file
    const at::Tensor target = destination.narrow(0, destination.numel() - (end - begin), length);
    const SafetensorsFile& file = *range->second.file;
    file.read_range(opened(file), format_range_name({parameter, state, range->first, range->second.end}),
                    begin - range->first, stop - range->first, target);
    begin = stop;
  }
}

}  // namespace strata::checkpoint
