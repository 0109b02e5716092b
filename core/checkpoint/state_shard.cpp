#include "checkpoint/state_shard.hpp"

#include <algorithm>

namespace strata::runtime {

StateShard::StateShard(const std::filesystem::path& folder, const std::string& name, const state::OptimizerState& state,
                       bool pending)
    : name_(name), buffers_(state.buffers()) {
  Specs specs;
  for (const state::OptimizerState::Entry& entry : state.entries()) {
    if (entry.counted_begin == entry.counted_end) continue;
    const PieceInfo& info = entry.piece.info;
    const ParameterCut cut = entry.span->cut();
    const int part = cut.part_of(entry.span->tensor_rank);
    const std::int64_t begin = info.begin + entry.counted_begin, end = info.begin + entry.counted_end;
    add(specs, {info.parameter, checkpoint::master_state, begin, end, part, cut.parts()}, entry.counted(entry.master));
    if (pending && entry.trainable)
      add(specs, {info.parameter, state::OptimizerState::kept_gradient, begin, end, part, cut.parts()},
          entry.counted(entry.kept));
    for (std::size_t i = 0; i < entry.states.size(); ++i) {
      const StateTensor& tensor = entry.states[i];
      if (tensor.whole == 0)
        add(specs,
            {info.parameter, tensor.name, begin / tensor.block, (end + tensor.block - 1) / tensor.block, part,
             cut.parts()},
            entry.state_of(i, entry.counted_begin, entry.counted_end));
      else if (begin == 0 && part == 0)  // one rank writes what all have alike
        add(specs, {info.parameter, tensor.name, 0, tensor.whole}, entry.state[i]);
    }
  }
  writer_.emplace((folder / name).string(), specs, std::map<std::string, std::string>{});
}

void StateShard::add(Specs& specs, const checkpoint::RangeName& range, const BufferRange& values) {
  const std::string name = checkpoint::format_range_name(range);
  specs.push_back({name, buffers_.dtype(values), {values.elements}});
  values_.emplace(name, values);
}

bool StateShard::advance(std::int64_t bytes) {
  const std::vector<std::string>& order = writer_->order();
  while (tensor_ < order.size() && bytes > 0) {
    const BufferRange& values = values_.at(order[tensor_]);
    const auto width = static_cast<std::int64_t>(c10::elementSize(buffers_.dtype(values)));
    const std::int64_t count = std::min(values.elements - element_, std::max<std::int64_t>(bytes / width, 1));
    buffers_.with({values.buffer, values.begin + element_, count}, state::Access::Read,
                  [&](const at::Tensor& some) { writer_->write_range(order[tensor_], element_, some); });
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

std::uint64_t read_entry(const checkpoint::RangeSource& source, state::OptimizerState& state,
                         const state::OptimizerState::Entry& entry, bool pending) {
  const PieceInfo& info = entry.piece.info;
  std::uint64_t bytes = 0;
  const auto read = [&](const std::string& name, std::int64_t begin, const BufferRange& to) {
    state.buffers().with(to, state::Access::Write, [&](const at::Tensor& values) {
      source.read(info.parameter, name, begin, begin + to.elements, values);
      bytes += values.nbytes();
    });
  };
  const auto read_runs = [&](const std::string& name, const BufferRange& to, std::int64_t block = 1) {
    entry.for_each_run(
        to, 0, info.end - info.begin, [&](std::int64_t whole, const BufferRange& part) { read(name, whole, part); },
        block);
  };
  read_runs(checkpoint::master_state, entry.master);
  for (std::size_t i = 0; i < entry.states.size(); ++i)
    if (entry.states[i].whole > 0)
      read(entry.states[i].name, 0, entry.state[i]);
    else
      read_runs(entry.states[i].name, entry.state[i], entry.states[i].block);
  if (pending && entry.trainable) read_runs(state::OptimizerState::kept_gradient, entry.kept);
  state.write_parameter(entry);
  return bytes;
}

}  // namespace strata::runtime
