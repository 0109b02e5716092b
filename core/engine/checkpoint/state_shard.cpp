#include "checkpoint/state_shard.hpp"

#include <strata/format.hpp>

#include <algorithm>

#include "checkpoint/finite.hpp"

namespace strata::checkpoint {

namespace {

// Bytes of a buffer that are in memory at once, where it rests on a disk.
constexpr std::int64_t chunk_bytes = std::int64_t{16} << 20;

}  // namespace

std::string name_of_group(const std::string& state, int group) {
  return format("{} of group {}", state, group);
}

std::vector<std::string> saved_names(const std::string& state, const std::optional<stage::LocalTraining>& local) {
  if (!local) return {state};
  std::vector<std::string> names;
  for (int group = 0; group < local->groups(); ++group) names.push_back(name_of_group(state, group));
  return names;
}

StateShard::StateShard(const std::filesystem::path& folder, const std::string& name, const state::OptimizerState& state,
                       bool pending, const stage::LocalTraining* local, std::int64_t steps)
    : name_(name), buffers_(state.buffers()) {
  Specs specs;
  const auto add_range = [&](const state::OptimizerState::Entry& entry, const std::string& what, const BufferRange& all,
                             std::int64_t begin, std::int64_t end) {
    const PieceInfo& info = entry.piece.info;
    const ParameterCut cut = entry.span->cut();
    add(specs,
        {info.parameter, what, info.begin + begin, info.begin + end, cut.part_of(entry.span->tensor_rank), cut.parts()},
        {all.buffer, all.begin + begin, end - begin});
  };
  for (const state::OptimizerState::Entry& entry : state.entries()) {
    const bool local_entry = local != nullptr && entry.trainable;
    if (entry.counted_begin != entry.counted_end) {
      const auto add_counted = [&](const std::string& what, const BufferRange& all) {
        add_range(entry, what, all, entry.counted_begin, entry.counted_end);
      };
      add_counted(master_state, entry.weights());
      if (local_entry) add_counted(outer_momentum, entry.outer_momentum);
      if (pending && entry.trainable) add_counted(state::OptimizerState::kept_gradient, entry.kept);
      if (!local_entry)
        add_states(specs, entry, entry.counted_begin, entry.counted_end, [](const std::string& one) { return one; });
    }
    if (!local_entry || entry.group_begin == entry.group_end) continue;
    const auto of_group = [&](const std::string& one) { return name_of_group(one, local->group()); };
    add_states(specs, entry, entry.group_begin, entry.group_end, of_group);
    if (!local->is_due(steps, entry.flat->info().id))
      add_range(entry, of_group(master_state), entry.master, entry.group_begin, entry.group_end);
  }
  writer_.emplace((folder / name).string(), specs, std::map<std::string, std::string>{});
}

// The part for elements [begin, end) of the entry's piece.
void StateShard::add_states(Specs& specs, const state::OptimizerState::Entry& entry, std::int64_t begin,
                            std::int64_t end, const std::function<std::string(const std::string&)>& name) {
  const PieceInfo& info = entry.piece.info;
  const ParameterCut cut = entry.span->cut();
  const int part = cut.part_of(entry.span->tensor_rank);
  const std::int64_t first = info.begin + begin, last = info.begin + end;
  for (std::size_t i = 0; i < entry.states.size(); ++i) {
    const StateTensor& tensor = entry.states[i];
    if (tensor.whole == 0)
      add(specs,
          {info.parameter, name(tensor.name), first / tensor.block, (last + tensor.block - 1) / tensor.block, part,
           cut.parts()},
          entry.state_of(i, begin, end));
    else if (first == 0 && part == 0)  // one rank writes what all have alike
      add(specs, {info.parameter, name(tensor.name), 0, tensor.whole}, entry.state[i]);
  }
}

void StateShard::add(Specs& specs, const RangeName& range, const BufferRange& values) {
  const std::string name = format_range_name(range);
  specs.push_back({name, buffers_.dtype(values), {values.elements}});
  values_.emplace(name, values);
}

bool StateShard::advance(std::int64_t bytes) {
  const std::vector<std::string>& order = writer_->order();
  while (tensor_ < order.size() && bytes > 0) {
    const BufferRange& values = values_.at(order[tensor_]);
    const auto width = static_cast<std::int64_t>(c10::elementSize(buffers_.dtype(values)));
    const std::int64_t some_bytes = std::min(bytes, chunk_bytes);
    const std::int64_t count = std::min(values.elements - element_, std::max<std::int64_t>(some_bytes / width, 1));
    buffers_.with({values.buffer, values.begin + element_, count}, memory::Access::Read, [&](const at::Tensor& some) {
      if (not_finite_.empty() && !is_finite(some)) {
        const RangeName name = parse_range_name(order[tensor_]).value();
        not_finite_ = "the " + name.state + " of " + name.parameter;
      }
      writer_->write_range(order[tensor_], element_, some);
    });
    bytes -= count * width;
    element_ += count;
    if (element_ < values.elements) continue;
    element_ = 0;
    ++tensor_;
  }
  if (tensor_ < order.size()) {
    writer_->flush();
    return true;
  }
  writer_->finish();
  return false;
}

namespace {

// Reads ranges of one entry, and counts the bytes.
class EntryReader {
 public:
  EntryReader(const RangeSource& source, const state::OptimizerState& state, const state::OptimizerState::Entry& entry)
      : source_(source), state_(state), entry_(entry) {}

  void read(const std::string& name, std::int64_t begin, const BufferRange& to) {
    const auto width = static_cast<std::int64_t>(c10::elementSize(state_.buffers().dtype(to)));
    for (std::int64_t at = 0; at < to.elements; at += chunk_bytes / width) {
      const std::int64_t count = std::min(chunk_bytes / width, to.elements - at);
      state_.buffers().with({to.buffer, to.begin + at, count}, memory::Access::Write, [&](const at::Tensor& values) {
        source_.read(entry_.piece.info.parameter, name, begin + at, begin + at + count, values);
        bytes_ += values.nbytes();
      });
    }
  }
  void read_runs(const std::string& name, const BufferRange& to, std::int64_t block = 1) {
    const PieceInfo& info = entry_.piece.info;
    entry_.for_each_run(
        to, 0, info.end - info.begin, [&](std::int64_t whole, const BufferRange& part) { read(name, whole, part); },
        block);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const RangeSource& source_;
  const state::OptimizerState& state_;
  const state::OptimizerState::Entry& entry_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::uint64_t read_entry(const RangeSource& source, state::OptimizerState& state,
                         const state::OptimizerState::Entry& entry, bool pending, const stage::LocalTraining* local) {
  EntryReader reader(source, state, entry);
  reader.read_runs(master_state, entry.weights());
  state.start_at_weights(entry);
  if (local != nullptr && entry.trainable) reader.read_runs(outer_momentum, entry.outer_momentum);
  for (std::size_t i = 0; i < entry.states.size(); ++i) {
    const StateTensor& tensor = entry.states[i];
    const std::string name = local != nullptr ? name_of_group(tensor.name, local->group()) : tensor.name;
    if (tensor.whole > 0)
      reader.read(name, 0, entry.state[i]);
    else
      reader.read_runs(name, entry.state[i], tensor.block);
  }
  if (pending && entry.trainable) reader.read_runs(state::OptimizerState::kept_gradient, entry.kept);
  state.write_parameter(entry);
  return reader.bytes();
}

std::uint64_t read_master_of_group(const RangeSource& source, state::OptimizerState& state,
                                   const state::OptimizerState::Entry& entry, const stage::LocalTraining& local) {
  const std::string name = name_of_group(master_state, local.group());
  const std::vector<std::string> there = source.states(entry.piece.info.parameter);
  if (std::ranges::find(there, name) == there.end()) return 0;
  EntryReader reader(source, state, entry);
  reader.read_runs(name, entry.master);
  state.write_parameter(entry);
  return reader.bytes();
}

}  // namespace strata::checkpoint
