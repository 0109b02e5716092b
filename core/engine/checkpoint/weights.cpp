#include "checkpoint/weights.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checkpoint/agreement.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/content.hpp"
#include "checkpoint/finite.hpp"
#include "checkpoint/ranges.hpp"
#include "checkpoint/resume_rules.hpp"
#include "group/numbers.hpp"
#include "state/initial_values.hpp"
#include "text/json.hpp"

namespace strata::checkpoint {

NameMap name_map(const Model& model, const std::vector<LayerInfo>& layers) {
  const CheckpointNames names = model.checkpoint_names();
  std::map<std::string, std::vector<std::string>> external;
  for (const auto& [canonical, other] : names.names) external[canonical].push_back(other);
  NameMap map;
  map.ignored = names.ignored;
  map.transposed = names.transposed;
  std::set<std::string> ties;
  for (const LayerInfo& layer : layers) {
    for (const ParameterInfo& parameter : layer.parameters) {
      if (!parameter.tie.empty() && !ties.insert(parameter.tie).second) {
        for (const std::string& other : external[parameter.name])
          map.ignored.push_back(other);  // the tie's second spelling
        continue;
      }
      if (external[parameter.name].empty()) throw Bug("the model gives no checkpoint name for {}", parameter.name);
      map.entries.push_back({parameter.name, parameter.shape, external[parameter.name], parameter.split});
    }
  }
  return map;
}

step::ValueSource initial_values(std::uint64_t seed) {
  return [seed](const ParameterInfo& parameter, std::int64_t begin, std::int64_t, const at::Tensor& destination) {
    state::fill_initial_values(destination, parameter, begin, seed);
  };
}

SavedWeights::SavedWeights(const std::string& init, const std::string& checkpoint)
    : path_(checkpoint.empty() ? init : checkpoint) {
  if (checkpoint.empty()) {
    folder_ = std::make_shared<const HuggingFaceFolder>(init);
    return;
  }
  checkpoint_ = std::make_shared<const TrainingCheckpoint>(read_latest(checkpoint));
}

const std::string& SavedWeights::model_config() const {
  return folder_ ? folder_->config_text() : checkpoint_->model_config;
}

stage::ModelSource SavedWeights::as_source() const {
  return {model_config(), [this](const Model& model, const std::vector<LayerInfo>& layers) { reader(model, layers); }};
}

std::uint64_t SavedWeights::content() const {
  return folder_ ? content_of(*folder_) : content_of(*checkpoint_);
}

void SavedWeights::verify(step::Session& session) const {
  if (!checkpoint_) return;
  Group& world = session.stage().groups.world();
  Verification verification(*checkpoint_, world.rank(), world.size());
  constexpr std::uint64_t round_bytes = std::uint64_t{64} << 20;
  work_in_rounds(world, session.store().device(), [&] { return verification.advance(round_bytes); }).check();
}

void SavedWeights::check_finite(step::Session& session) const {
  work_in_rounds(session.stage().groups.world(), session.store().device(), [&] {
    if (not_finite_->empty()) return false;
    throw UserError(*not_finite_ + not_finite_remedy);
  }).check();
}

SavedWeights::Reader SavedWeights::reader(const Model& model, const std::vector<LayerInfo>& layers) const {
  if (folder_) {
    const auto ranges = std::make_shared<const RangeReader>(folder_, name_map(model, layers));
    return {[ranges](const ParameterInfo& parameter, std::int64_t begin, std::int64_t end,
                     const at::Tensor& destination) { ranges->fill(parameter.name, begin, end, destination); },
            [ranges](const std::string& parameter) { return ranges->origin(parameter); }};
  }
  check_model(*checkpoint_, layers);
  const auto ranges =
      std::make_shared<const RangeSource>(checkpoint_->folder, checkpoint_->files, checkpoint_->parameters);
  return {
      [ranges](const ParameterInfo& parameter, std::int64_t begin, std::int64_t end, const at::Tensor& destination) {
        ranges->read(parameter.name, master_state, begin, end, destination);
      },
      [folder = checkpoint_->folder.string()](const std::string& parameter) {
        return folder + ": parameter " + parameter;
      }};
}

step::ValueSource SavedWeights::source(const Model& model, const std::vector<LayerInfo>& layers) const {
  return [reader = reader(model, layers), found = not_finite_](const ParameterInfo& parameter, std::int64_t begin,
                                                               std::int64_t end, const at::Tensor& destination) {
    reader.values(parameter, begin, end, destination);
    if (found->empty()) *found = not_finite_text(destination, begin, reader.origin(parameter.name));
  };
}

namespace {

constexpr std::int64_t chunk_elements = std::int64_t{1} << 22;  // 16 MiB of fp32 travel at once

// A rank's contribution: the counted range of each piece.
struct Part {
  std::int64_t parameter;    // index in the name map
  std::int64_t tensor_rank;  // whose part of the parameter it lies in
  std::int64_t begin;        // elements of that part
  std::int64_t end;
  BufferRange values;
};

std::vector<Part> own_parts(step::Session& session, const NameMap& map) {
  std::map<std::string, std::int64_t> index;
  for (std::size_t i = 0; i < map.entries.size(); ++i) index[map.entries[i].canonical] = static_cast<std::int64_t>(i);
  std::vector<Part> parts;
  for (const state::OptimizerState::Entry& entry : session.stage().updates.state().entries()) {
    if (entry.counted_begin == entry.counted_end) continue;
    const std::int64_t begin = entry.piece.info.begin;
    parts.push_back({index.at(entry.piece.info.parameter), entry.span->tensor_rank, begin + entry.counted_begin,
                     begin + entry.counted_end, entry.counted(entry.weights())});
  }
  return parts;
}

// Calls `work` for a rank's parts, some elements [begin, begin + length) at a time.
void for_each_chunk(const std::vector<Part>& parts,
                    const std::function<void(const Part& part, std::int64_t begin, std::int64_t length)>& work) {
  for (const Part& part : parts)
    for (std::int64_t begin = part.begin; begin < part.end; begin += chunk_elements)
      work(part, begin, std::min(chunk_elements, part.end - begin));
}

// As fp32 on `device`.
at::Tensor chunk_of(const memory::Buffers& buffers, const Part& part, std::int64_t begin, std::int64_t length,
                    at::Device device) {
  at::Tensor chunk;
  buffers.with({part.values.buffer, part.values.begin + begin - part.begin, length}, memory::Access::Read,
               [&](const at::Tensor& values) {
                 chunk = values.to(at::TensorOptions().dtype(at::kFloat).device(device), false, true);
               });
  return chunk;
}

void send_parts(Group& world, const memory::Buffers& buffers, const std::vector<Part>& parts, at::Device device) {
  if (parts.empty()) return;
  std::vector<std::int64_t> header;
  for (const Part& part : parts) header.insert(header.end(), {part.parameter, part.tensor_rank, part.begin, part.end});
  world.send(at::tensor(header, at::TensorOptions().dtype(at::kLong)).to(device), 0).wait();
  for_each_chunk(parts, [&](const Part& part, std::int64_t begin, std::int64_t length) {
    world.send(chunk_of(buffers, part, begin, length, device), 0).wait();
  });
}

// Another rank's parts; their values follow, chunk by chunk.
std::vector<Part> receive_parts(Group& world, int rank, std::int64_t count, const at::TensorOptions& integers) {
  if (count == 0) return {};
  const at::Tensor header = at::empty({4 * count}, integers);
  world.receive(header, rank).wait();
  const at::Tensor host = header.cpu();
  const auto* const numbers = host.const_data_ptr<std::int64_t>();
  std::vector<Part> parts;
  for (const std::int64_t* part = numbers; part != numbers + 4 * count; part += 4)
    parts.push_back({part[0], part[1], part[2], part[3], {}});
  return parts;
}

// On rank 0: calls `take` for all ranks' parts, some elements from `begin` on at a time. `parts`: its own; `counts`: of
// how many parts each rank has.
void for_each_part(Group& world, const memory::Buffers& buffers, const std::vector<Part>& parts,
                   const std::vector<std::int64_t>& counts, const at::TensorOptions& integers,
                   const std::function<void(const Part& part, std::int64_t begin, const at::Tensor& values)>& take) {
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::vector<Part> theirs =
        rank == 0 ? parts : receive_parts(world, rank, counts[static_cast<std::size_t>(rank)], integers);
    for_each_chunk(theirs, [&](const Part& part, std::int64_t begin, std::int64_t length) {
      if (rank == 0) return take(part, begin, chunk_of(buffers, part, begin, length, at::kCPU));
      const at::Tensor values = at::empty({length}, integers.dtype(at::kFloat));
      world.receive(values, rank).wait();
      take(part, begin, values.cpu());
    });
  }
}

}  // namespace

at::ScalarType export_type(const std::string& name, const std::string& model_config) {
  const auto known = [](const std::string& text) -> std::optional<at::ScalarType> {
    if (text == "float32" || text == "torch.float32") return at::kFloat;
    if (text == "bfloat16" || text == "torch.bfloat16") return at::kBFloat16;
    if (text == "float16" || text == "torch.float16") return at::kHalf;
    return std::nullopt;
  };
  const std::string advice = "; choose float32, bfloat16 or float16 as the type of the exported weights";
  if (name != "source") {
    const std::optional<at::ScalarType> type = known(name);
    if (!type) throw UserError("the type of exported weights is {}{}", name, advice);
    return *type;
  }
  if (model_config.empty())
    throw UserError("the run did not start from a folder of weights, so there is no source type{}", advice);
  const text::JsonDocument config(model_config, {"config.json"});
  for (const char* const key : {"dtype", "torch_dtype"}) {
    const std::optional<text::JsonValue> value = config.object().find(key);
    if (!value) continue;
    const std::optional<at::ScalarType> type = known(value->text());
    if (!type)
      throw UserError("the config.json of the run's initial weights has the {} {}{}", key, text::shown(value->json()),
                      advice);
    return *type;
  }
  throw UserError("the config.json of the run's initial weights has no dtype{}", advice);
}

std::unique_ptr<HuggingFaceExporter> weights_folder(const std::string& folder, const Model& model, const NameMap& names,
                                                    at::ScalarType dtype, const SourceFolder& source) {
  constexpr std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  std::vector<TensorSpec> specs;
  for (const NameMapEntry& entry : names.entries) specs.push_back({entry.external.front(), dtype, entry.shape});
  auto exporter = std::make_unique<HuggingFaceExporter>(folder, model.hugging_face_config(dtype), std::move(specs),
                                                        shard_bytes, names.transposed);
  const std::string lost = exporter->take_along(source);
  if (!lost.empty()) spdlog::warn("{}", lost);
  return exporter;
}

void try_export(step::Session& session, const Model& model, const std::string& folder, at::ScalarType dtype) {
  Group& world = session.stage().groups.world();
  work_in_rounds(world, session.store().device(), [&] {
    name_map(model, session.stage().layers.model());
    const std::string config_text = model.hugging_face_config(dtype);
    if (world.rank() == 0) check_export_folder(folder, &config_text);
    return false;
  }).check();
}

void export_weights(step::Session& session, const Model& model, const std::string& folder, at::ScalarType dtype,
                    const SourceFolder& source) {
  const c10::NoGradGuard no_grad;
  const stage::Stage& stage = session.stage();
  const NameMap map = name_map(model, stage.layers.model());
  const std::vector<Part> parts = own_parts(session, map);
  const at::Device device = session.store().device();
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(device);
  Group& world = stage.groups.world();

  // Rank 0 writes; where it cannot, all ranks say so.
  const auto rank_0_does = [&](const std::function<void()>& work) {
    work_in_rounds(world, device, [&] {
      if (world.rank() == 0) work();
      return false;
    }).check();
  };
  std::unique_ptr<HuggingFaceExporter> exporter;
  rank_0_does([&] { exporter = weights_folder(folder, model, map, dtype, source); });
  const std::vector<std::int64_t> counts =
      group::gather_numbers(world, device, {static_cast<std::int64_t>(parts.size())});
  std::exception_ptr failure;  // after one the rest is received nevertheless, as it is sent
  if (world.rank() != 0) {
    send_parts(world, stage.values.buffers(), parts, device);
  } else {
    std::vector<ParameterCut> cuts;
    for (const NameMapEntry& entry : map.entries)
      cuts.emplace_back(ParameterInfo{.name = entry.canonical, .shape = entry.shape, .split = entry.split},
                        session.mesh().size(Axis::Tensor));
    for_each_part(world, stage.values.buffers(), parts, counts, integers,
                  [&](const Part& part, std::int64_t begin, const at::Tensor& values) {
                    const auto parameter = static_cast<std::size_t>(part.parameter);
                    const ParameterCut& cut = cuts.at(parameter);
                    if (failure != nullptr) return;
                    try {
                      cut.for_each_run(cut.part_of(static_cast<int>(part.tensor_rank)), begin, begin + values.numel(),
                                       [&](const ParameterCut::Run& run) {
                                         exporter->write_range(map.entries[parameter].external.front(), run.whole,
                                                               values.narrow(0, run.in_part - begin, run.elements));
                                       });
                    } catch (const std::exception&) {
                      failure = std::current_exception();
                    }
                  });
  }
  rank_0_does([&] {
    if (failure != nullptr) std::rethrow_exception(failure);
    exporter->finish();
  });
}

}  // namespace strata::checkpoint
