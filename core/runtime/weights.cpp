#include "runtime/weights.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/plugin_call.hpp"
#include "state/initial_values.hpp"

namespace strata::runtime {

checkpoint::NameMap name_map(const Model& model, const std::vector<LayerInfo>& layers) {
  const CheckpointNames names = model.checkpoint_names();
  std::map<std::string, std::vector<std::string>> external;
  for (const auto& [canonical, other] : names.names) external[canonical].push_back(other);
  checkpoint::NameMap map;
  map.ignored = names.ignored;
  std::set<std::string> ties;
  for (const LayerInfo& layer : layers) {
    for (const ParameterInfo& parameter : layer.parameters) {
      if (!parameter.tie.empty() && !ties.insert(parameter.tie).second) {
        for (const std::string& other : external[parameter.name]) map.ignored.push_back(other);  // the tie's second spelling
        continue;
      }
      if (external[parameter.name].empty()) throw Bug("the model gives no checkpoint name for " + parameter.name);
      map.entries.push_back({parameter.name, parameter.shape, external[parameter.name]});
    }
  }
  return map;
}

ValueSource initial_values(std::uint64_t seed) {
  return [seed](const ParameterInfo& parameter, std::int64_t begin, std::int64_t, const at::Tensor& destination) {
    state::fill_initial_values(destination, parameter, begin, seed);
  };
}

ValueSource values_from(std::shared_ptr<const checkpoint::RangeReader> reader) {
  return [reader = std::move(reader)](const ParameterInfo& parameter, std::int64_t begin, std::int64_t end, const at::Tensor& destination) {
    reader->fill(parameter.name, begin, end, destination);
  };
}

namespace {

constexpr std::int64_t chunk_elements = std::int64_t{1} << 22;  // 16 MiB of fp32 travel at once

// What a rank contributes: its counted part of each piece.
struct Part {
  std::int64_t parameter;  // index in the name map
  std::int64_t begin;
  std::int64_t end;
  at::Tensor values;
};

std::vector<Part> own_parts(Session& session, const checkpoint::NameMap& map) {
  std::map<std::string, std::int64_t> index;
  for (std::size_t i = 0; i < map.entries.size(); ++i) index[map.entries[i].canonical] = static_cast<std::int64_t>(i);
  std::vector<Part> parts;
  for (const state::OptimizerState::Entry& entry : session.stage().optimizer_state->entries()) {
    const std::int64_t length = entry.counted_end - entry.counted_begin;
    if (length == 0) continue;
    const std::int64_t begin = entry.piece.info.begin + entry.counted_begin;
    parts.push_back({index.at(entry.piece.info.parameter), begin, begin + length, entry.piece.master.narrow(0, entry.counted_begin, length)});
  }
  return parts;
}

// The part's values as fp32 on the run's device, one chunk at a time.
template <typename Visit>
void in_chunks(const Part& part, at::Device device, Visit&& visit) {
  for (std::int64_t at = part.begin; at < part.end; at += chunk_elements) {
    const std::int64_t length = std::min(chunk_elements, part.end - at);
    visit(at, part.values.narrow(0, at - part.begin, length).to(at::TensorOptions().dtype(at::kFloat).device(device)).contiguous());
  }
}

}  // namespace

void export_weights(Session& session, const Model& model, const std::string& folder) {
  const c10::NoGradGuard no_grad;
  const StageState& stage = session.stage();
  const checkpoint::NameMap map = name_map(model, stage.model_layers);
  const std::vector<Part> parts = own_parts(session, map);
  const at::Device device = session.store().device();
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(device);
  Group& world = *stage.world;

  const at::Tensor count = at::tensor({static_cast<std::int64_t>(parts.size())}, at::TensorOptions().dtype(at::kLong)).to(device);
  const at::Tensor counts = at::empty({world.size()}, integers);
  world.all_gather(counts, count).wait();
  if (world.rank() != 0) {
    std::vector<std::int64_t> header;
    for (const Part& part : parts) header.insert(header.end(), {part.parameter, part.begin, part.end});
    if (header.empty()) return;
    world.send(at::tensor(header, at::TensorOptions().dtype(at::kLong)).to(device), 0).wait();
    for (const Part& part : parts) in_chunks(part, device, [&](std::int64_t, const at::Tensor& values) { world.send(values, 0).wait(); });
    return;
  }

  std::vector<checkpoint::TensorSpec> specs;
  for (const checkpoint::NameMapEntry& entry : map.entries) specs.push_back({entry.external.front(), at::kFloat, entry.shape});
  constexpr std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  checkpoint::HuggingFaceExporter exporter(folder, model.hugging_face_config(at::kFloat), specs, shard_bytes);
  const auto name_of = [&](std::int64_t parameter) { return map.entries.at(static_cast<std::size_t>(parameter)).external.front(); };
  for (const Part& part : parts)
    in_chunks(part, at::kCPU, [&](std::int64_t at, const at::Tensor& values) { exporter.write_range(name_of(part.parameter), at, values); });
  const at::Tensor host_counts = counts.cpu();
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::int64_t their_count = host_counts.const_data_ptr<std::int64_t>()[rank];
    if (their_count == 0) continue;
    const at::Tensor header = at::empty({3 * their_count}, integers);
    world.receive(header, rank).wait();
    const at::Tensor host_header = header.cpu();
    const std::int64_t* numbers = host_header.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < their_count; ++i) {
      for (std::int64_t at = numbers[3 * i + 1]; at < numbers[3 * i + 2]; at += chunk_elements) {
        const at::Tensor values = at::empty({std::min(chunk_elements, numbers[3 * i + 2] - at)}, integers.dtype(at::kFloat));
        world.receive(values, rank).wait();
        exporter.write_range(name_of(numbers[3 * i]), at, values.cpu());
      }
    }
  }
  exporter.finish();
}

}  // namespace strata::runtime
