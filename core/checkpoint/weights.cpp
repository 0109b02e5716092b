#include "checkpoint/weights.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "checkpoint/agreement.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/ranges.hpp"
#include "checkpoint/resume_rules.hpp"
#include "plugin_host/plugin_call.hpp"
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
        for (const std::string& other : external[parameter.name])
          map.ignored.push_back(other);  // the tie's second spelling
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
  return [reader = std::move(reader)](const ParameterInfo& parameter, std::int64_t begin, std::int64_t end,
                                      const at::Tensor& destination) {
    reader->fill(parameter.name, begin, end, destination);
  };
}

SavedWeights::SavedWeights(const std::string& init, const std::string& checkpoint) {
  if (checkpoint.empty()) {
    folder_ = checkpoint::HuggingFaceFolder::open(init);
    return;
  }
  std::error_code error;
  if (!std::filesystem::is_directory(checkpoint, error))
    throw UserError(checkpoint + ": there is no such folder; a checkpoint, or a folder of them, is wanted here");
  const checkpoint::CheckpointFolder folder(checkpoint);
  const std::optional<std::int64_t> latest = folder.latest();
  checkpoint_ = std::make_shared<const checkpoint::TrainingCheckpoint>(
      checkpoint::TrainingCheckpoint::read(latest ? folder.of_step(*latest) : std::filesystem::path(checkpoint)));
}

const std::string& SavedWeights::model_config() const {
  return folder_ ? folder_->config_text() : checkpoint_->model_config;
}

void SavedWeights::verify(Session& session) const {
  if (!checkpoint_) return;
  Group& world = *session.stage().world;
  checkpoint::Verification verification(*checkpoint_, world.rank(), world.size());
  constexpr std::uint64_t round_bytes = std::uint64_t{64} << 20;
  work_in_rounds(world, session.store().device(), [&] { return verification.advance(round_bytes); }).check();
}

ValueSource SavedWeights::source(const Model& model, const std::vector<LayerInfo>& layers) const {
  if (folder_) return values_from(std::make_shared<checkpoint::RangeReader>(folder_, name_map(model, layers)));
  check_model(*checkpoint_, layers);
  const auto ranges =
      std::make_shared<const checkpoint::RangeSource>(checkpoint_->folder, checkpoint_->files, checkpoint_->parameters);
  return [ranges](const ParameterInfo& parameter, std::int64_t begin, std::int64_t end, const at::Tensor& destination) {
    ranges->read(parameter.name, checkpoint::master_state, begin, end, destination);
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
    parts.push_back({index.at(entry.piece.info.parameter), begin, begin + length,
                     entry.piece.master.narrow(0, entry.counted_begin, length)});
  }
  return parts;
}

// Walks over one rank's parts, a chunk at a time.
class Cursor {
 public:
  // `header`: parameter, begin, end of each part.
  Cursor(int rank, std::vector<std::int64_t> header) : rank_(rank), header_(std::move(header)) {
    if (!done()) at_ = header_[1];
  }
  int rank() const { return rank_; }
  bool done() const { return 3 * part_ == header_.size(); }
  std::size_t part() const { return part_; }
  std::int64_t parameter() const { return header_[3 * part_]; }
  std::int64_t offset() const { return at_ - header_[3 * part_ + 1]; }  // elements into the part
  std::int64_t at() const { return at_; }                               // and into the parameter
  std::int64_t length() const { return std::min(chunk_elements, header_[3 * part_ + 2] - at_); }
  void advance() {
    at_ += length();
    if (at_ < header_[3 * part_ + 2]) return;
    ++part_;
    if (!done()) at_ = header_[3 * part_ + 1];
  }

 private:
  int rank_;
  std::vector<std::int64_t> header_;
  std::size_t part_ = 0;
  std::int64_t at_ = 0;
};

std::vector<std::int64_t> header_of(const std::vector<Part>& parts) {
  std::vector<std::int64_t> header;
  for (const Part& part : parts) header.insert(header.end(), {part.parameter, part.begin, part.end});
  return header;
}

// The chunk under the cursor as fp32 on `device`.
at::Tensor chunk_of(const std::vector<Part>& parts, const Cursor& cursor, at::Device device) {
  const at::Tensor chunk = parts[cursor.part()].values.narrow(0, cursor.offset(), cursor.length());
  return chunk.to(at::TensorOptions().dtype(at::kFloat).device(device)).contiguous();
}

void send_parts(Group& world, const std::vector<Part>& parts, at::Device device) {
  if (parts.empty()) return;
  const std::vector<std::int64_t> header = header_of(parts);
  world.send(at::tensor(header, at::TensorOptions().dtype(at::kLong)).to(device), 0).wait();
  for (Cursor cursor(world.rank(), header); !cursor.done(); cursor.advance())
    world.send(chunk_of(parts, cursor, device), 0).wait();
}

// A cursor for every other rank that has something to send.
std::vector<Cursor> receive_headers(Group& world, const at::Tensor& counts, const at::TensorOptions& integers) {
  std::vector<Cursor> cursors;
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::int64_t count = counts.const_data_ptr<std::int64_t>()[rank];
    if (count == 0) continue;
    const at::Tensor header = at::empty({3 * count}, integers);
    world.receive(header, rank).wait();
    const at::Tensor host = header.cpu();
    const std::int64_t* numbers = host.const_data_ptr<std::int64_t>();
    cursors.emplace_back(rank, std::vector<std::int64_t>(numbers, numbers + 3 * count));
  }
  return cursors;
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

  const at::Tensor count =
      at::tensor({static_cast<std::int64_t>(parts.size())}, at::TensorOptions().dtype(at::kLong)).to(device);
  const at::Tensor counts = at::empty({world.size()}, integers);
  world.all_gather(counts, count).wait();
  if (world.rank() != 0) return send_parts(world, parts, device);

  std::vector<checkpoint::TensorSpec> specs;
  for (const checkpoint::NameMapEntry& entry : map.entries)
    specs.push_back({entry.external.front(), at::kFloat, entry.shape});
  constexpr std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  checkpoint::HuggingFaceExporter exporter(folder, model.hugging_face_config(at::kFloat), specs, shard_bytes);
  const auto name_of = [&](std::int64_t parameter) {
    return map.entries.at(static_cast<std::size_t>(parameter)).external.front();
  };
  // One chunk of each rank in turn: a sender's deadline runs while it waits, so nobody waits for another's whole share.
  std::vector<Cursor> cursors = receive_headers(world, counts.cpu(), integers);
  cursors.emplace_back(0, header_of(parts));
  std::erase_if(cursors, [](const Cursor& cursor) { return cursor.done(); });
  while (!cursors.empty()) {
    for (Cursor& cursor : cursors) {
      at::Tensor values;
      if (cursor.rank() == 0) {
        values = chunk_of(parts, cursor, at::kCPU);
      } else {
        values = at::empty({cursor.length()}, integers.dtype(at::kFloat));
        world.receive(values, cursor.rank()).wait();
      }
      exporter.write_range(name_of(cursor.parameter()), cursor.at(), values.cpu());
      cursor.advance();
    }
    std::erase_if(cursors, [](const Cursor& cursor) { return cursor.done(); });
  }
  exporter.finish();
}

}  // namespace strata::runtime
