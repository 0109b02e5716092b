#include "checkpoint/ranges.hpp"

#include <algorithm>
#include <charconv>

#include "text/printable.hpp"

namespace strata::checkpoint {
namespace {

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::to_string(value) != text || value < 0)
    return std::nullopt;
  return value;
}

constexpr std::int64_t most_parts = 1 << 20;  // tensor-parallel ranks

// "elements 3 to 9 of the master of NAME"
std::string shown(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end) {
  return "elements " + std::to_string(begin) + " to " + std::to_string(end) + " of the " + text::one_line(state) +
         " of " + text::one_line(parameter);
}

}  // namespace

std::string format_range_name(const RangeName& name) {
  strata_check(!name.state.empty() && name.state.find('|') == std::string::npos,
               "a state's name is not empty and holds no '|'");
  return name.parameter + "|" + name.state + "|" + std::to_string(name.begin) + ":" + std::to_string(name.end) +
         (name.parts == 1 ? "" : "|" + std::to_string(name.part) + "/" + std::to_string(name.parts));
}

std::optional<RangeName> parse_range_name(const std::string& text) {
  std::string_view rest = text;
  const auto take_last = [&] {  // what follows the last '|'
    const std::size_t bar = rest.rfind('|');
    const std::string_view last = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
    rest = rest.substr(0, bar == std::string_view::npos ? 0 : bar);
    return last;
  };
  const auto pair = [](std::string_view two, char between) -> std::optional<std::pair<std::int64_t, std::int64_t>> {
    const std::size_t middle = two.find(between);
    if (middle == std::string_view::npos) return std::nullopt;
    const auto first = parse_count(two.substr(0, middle)), second = parse_count(two.substr(middle + 1));
    return first && second ? std::optional(std::pair(*first, *second)) : std::nullopt;
  };
  std::string_view last = take_last();
  std::pair<std::int64_t, std::int64_t> part{0, 1};
  if (const auto cut = pair(last, '/')) {
    if (cut->first >= cut->second || cut->second < 2 || cut->second > most_parts) return std::nullopt;
    part = *cut;
    last = take_last();
  }
  const auto range = pair(last, ':');
  const std::string state(take_last());
  if (!range || range->first > range->second || state.empty() || rest.empty()) return std::nullopt;
  return RangeName{std::string(rest),
                   state,
                   range->first,
                   range->second,
                   static_cast<int>(part.first),
                   static_cast<int>(part.second)};
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
      throw DamagedCheckpoint(Place{file.path()}, "tensor '" + text::one_line(text) + "' is no range of a parameter");
    State& state = parameters_[name->parameter][name->state];
    if (!state.parts.empty() && state.count != name->parts)
      throw DamagedCheckpoint(Place{file.path()},
                              "'" + text::one_line(text) + "' is one of " + std::to_string(name->parts) +
                                  " parts, and others of its parameter are of " + std::to_string(state.count));
    state.count = name->parts;
    if (!state.parts[name->part].try_emplace(name->begin, Range{name->end, &file, entry.dtype}).second)
      throw DamagedCheckpoint(
          Place{file.path()},
          "holds " + shown(name->parameter, name->state, name->begin, name->end) + ", which stand elsewhere too");
  }
}

void RangeSource::check(const std::filesystem::path& folder, const std::vector<SavedParameter>& parameters) {
  const auto fail = [&](const std::string& what) { throw DamagedCheckpoint(Place{folder.string()}, what); };
  for (const SavedParameter& parameter : parameters) {
    const auto found = parameters_.find(parameter.name);
    if (found == parameters_.end() || !found->second.contains(master_state))
      fail("holds no weight of " + text::one_line(parameter.name));
    for (auto& [state, stored] : found->second) {
      const auto whole = parameter.whole_states.find(state), block = parameter.block_states.find(state);
      if (block != parameter.block_states.end()) stored.block = block->second;
      const auto blocks_of = [&](std::int64_t elements) { return (elements + stored.block - 1) / stored.block; };
      std::int64_t elements = blocks_of(element_count(parameter.shape));
      if (whole != parameter.whole_states.end()) elements = whole->second;
      stored.whole = elements;
      if (stored.count > 1) {
        try {
          stored.cut.emplace(ParameterInfo{.name = parameter.name, .shape = parameter.shape, .split = parameter.split},
                             stored.count);
        } catch (const Error& error) {
          fail(error.what());
        }
        if (stored.cut->parts() != stored.count) fail(text::one_line(parameter.name) + " is cut, and has no split");
        if (!stored.cut->keeps_together(stored.block))
          fail(text::one_line(parameter.name) + " is cut within the blocks of its " + text::one_line(state));
        elements = blocks_of(stored.cut->elements());
      }
      std::optional<at::ScalarType> dtype;
      for (int part = 0; part < stored.count; ++part) {
        std::int64_t at = 0;
        for (const auto& [begin, range] : stored.parts[part]) {
          if (begin != at)
            fail(shown(parameter.name, state, std::min(at, begin), std::max(at, begin)) +
                 (begin > at ? " stand nowhere" : " stand twice"));
          if (range.dtype != dtype.value_or(range.dtype))
            fail(shown(parameter.name, state, begin, range.end) + " are of another type than the rest");
          at = range.end;
          dtype = range.dtype;
        }
        if (at != elements)
          fail(shown(parameter.name, state, std::min(at, elements), std::max(at, elements)) +
               (at < elements ? " stand nowhere" : " are too many"));
      }
    }
  }
  if (parameters_.size() != parameters.size()) fail("holds parameters that it does not list");
}

std::vector<std::string> RangeSource::states(const std::string& parameter) const {
  std::vector<std::string> names;
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end()) return names;
  for (const auto& [state, stored] : found->second) names.push_back(state);
  return names;
}

const RangeSource::State& RangeSource::state_of(const std::string& parameter, const std::string& state) const {
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end() || !found->second.contains(state))
    throw UserError("the checkpoint holds no " + text::one_line(state) + " of " + text::one_line(parameter) +
                    "; another version of its plugins saved it");
  return found->second.at(state);
}

at::ScalarType RangeSource::dtype(const std::string& parameter, const std::string& state) const {
  return state_of(parameter, state).parts.at(0).begin()->second.dtype;
}

std::int64_t RangeSource::elements(const std::string& parameter, const std::string& state) const {
  return state_of(parameter, state).whole;
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
  const State& stored = state_of(parameter, state);
  strata_check(destination.dim() == 1 && destination.numel() == end - begin,
               "RangeSource::read: the destination is as long as the range");
  if (!stored.cut) return read_part({parameter, state, begin, end}, stored.parts.at(0), destination);
  const std::int64_t block = stored.block;
  stored.cut->for_each_run_of_whole(
      begin * block, std::min(end * block, stored.cut->whole_elements()), [&](const ParameterCut::Run& run) {
        const std::int64_t first = run.in_part / block, count = (run.elements + block - 1) / block;
        read_part({parameter, state, first, first + count, run.part, stored.count}, stored.parts.at(run.part),
                  destination.narrow(0, run.whole / block - begin, count));
      });
}

void RangeSource::read_part(const RangeName& name, const Ranges& known, const at::Tensor& destination) const {
  std::int64_t begin = name.begin;
  const std::int64_t end = name.end;
  if (begin == end) return;
  auto range = known.upper_bound(begin);
  const auto check = [&](bool holds) {
    if (!holds)
      throw UserError("the checkpoint does not hold " + shown(name.parameter, name.state, name.begin, name.end) +
                      "; another version of its plugins saved it");
  };
  check(range != known.begin() && begin >= 0);
  for (--range; begin < end; ++range) {
    check(range != known.end());
    const std::int64_t stop = std::min(end, range->second.end);
    const std::int64_t length = stop - begin;
    if (length == 0) continue;  // an empty range in the file
    const at::Tensor target = destination.narrow(0, destination.numel() - (end - begin), length);
    const SafetensorsFile& file = *range->second.file;
    RangeName stored = name;
    stored.begin = range->first;
    stored.end = range->second.end;
    file.read_range(opened(file), format_range_name(stored), begin - range->first, stop - range->first, target);
    begin = stop;
  }
}

}  // namespace strata::checkpoint
