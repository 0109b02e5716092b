#include "checkpoint/training_checkpoint.hpp"

#include <strata/format.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.hpp"
#include "interface/src/system_error.hpp"
#include "text/json.hpp"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t text_limit = std::uint64_t{256} << 20;
constexpr std::size_t text_values = std::size_t{1} << 24;  // of a million parameters

// The first line, which is the same for every checkpoint but for its checksum.
std::string first_line(std::uint64_t checksum) {
  return "{\"xxh3\": \"" + format_checksum(checksum) + "\", \"checkpoint\":\n";
}

[[noreturn]] void damaged(const fs::path& path, const std::string& what) {
  throw DamagedCheckpoint(Place{path.string()}, what);
}

std::string read_text(const fs::path& path) {
  const data::InputFile file = open_saved(path);
  if (file.size() > text_limit)
    damaged(path, "has " + std::to_string(file.size()) + " bytes, too many for a file of this kind");
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void check_text(const fs::path& path, const std::string& text) {
  const std::string::size_type end = text.find('\n');
  const std::string_view rest = end == std::string::npos ? std::string_view() : std::string_view(text).substr(end + 1);
  if (end == std::string::npos || text.substr(0, end + 1) != first_line(checksum_of(rest)))
    damaged(path, "does not match its own checksum; it was truncated, altered or never finished");
}

std::uint64_t read_checksum(const text::JsonValue& value) {
  const std::string digits = value.text();
  std::uint64_t checksum = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), checksum, 16);
  value.check(error == std::errc() && format_checksum(checksum) == digits, "it must have 16 hexadecimal digits");
  return checksum;
}

std::string file_name(const text::JsonValue& value) {
  const std::string name = value.text();
  const bool plain =
      !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  value.check(plain, "it must be the name of a file of this folder");
  return name;
}

std::int64_t count_or(const text::JsonValue& object, std::string_view key, std::int64_t otherwise) {
  const std::optional<text::JsonValue> value = object.find(key);
  return value ? value->count() : otherwise;
}

Split read_split(const text::JsonValue& split, const std::vector<std::int64_t>& shape) {
  const std::int64_t dimension = split["dimension"].count();
  split["dimension"].check(dimension < std::ssize(shape), "it must be a dimension of the shape");
  for (const char* part : {"blocks", "unit"}) split[part].check(split[part].count() > 0, "it must be at least 1");
  const std::optional<text::JsonValue> padded = split.find("padded");
  return {static_cast<int>(dimension), split["blocks"].count(), split["unit"].count(), padded && padded->flag()};
}

SavedParameter read_parameter(const text::JsonValue& entry) {
  SavedParameter parameter;
  parameter.name = entry["name"].text();
  parameter.shape = entry["shape"].shape();
  if (const auto split = entry.find("split")) parameter.split = read_split(*split, parameter.shape);
  for (const auto& [key, states] :
       {std::pair{"whole_states", &parameter.whole_states}, std::pair{"block_states", &parameter.block_states}})
    if (const auto saved = entry.find(key))
      for (const auto& [state, elements] : saved->members()) {
        elements.check(elements.count() > 0, "it must be at least 1");
        (*states)[state] = elements.count();
      }
  return parameter;
}

void read_body(const text::JsonValue& body, TrainingCheckpoint& checkpoint) {
  checkpoint.step = body["step"].count();
  checkpoint.updates = body["updates"].count();
  checkpoint.optimizer_updates = count_or(body, "optimizer_updates", checkpoint.updates);
  checkpoint.samples = body["samples"].count();
  checkpoint.data.samples = body["data_samples"].count();
  if (const auto content = body.find("data_xxh3")) checkpoint.data.content = read_checksum(*content);
  if (const auto what = body.find("not_finite")) checkpoint.not_finite = what->text();
  if (const auto pending = body.find("pending")) {
    checkpoint.pending.emplace(PendingUpdate{(*pending)["learning_rate"].number(), (*pending)["updates"].count(),
                                             (*pending)["gradient_factor"].number(), std::nullopt});
    if (const auto momentum = pending->find("momentum")) checkpoint.pending->momentum = momentum->number();
  }
  const text::JsonValue layout = body["layout"];
  checkpoint.layout.world_size = layout["world_size"].count();
  for (const Axis axis : axes) {
    const std::int64_t size = count_or(layout, name_of(axis), 1);  // 1 in checkpoints that are older than the axis
    layout.check(size >= 1 && size <= checkpoint.layout.world_size, "an axis has 1 to world_size ranks");
    checkpoint.layout.mesh.set(axis, static_cast<int>(size));
  }
  checkpoint.model_config = body["model_config"].text();
  if (!checkpoint.model_config.empty())
    text::JsonDocument(checkpoint.model_config, {body.file(), "model_config"}).object();
  for (const auto& [key, value] : body["config"].members()) checkpoint.config.emplace_back(key, value.text());
  std::int64_t elements = 0;
  for (const text::JsonValue& entry : body["parameters"].elements()) {
    checkpoint.parameters.push_back(read_parameter(entry));
    elements += element_count(checkpoint.parameters.back().shape);
    entry.check(elements <= text::largest_count, "the parameters up to this one have more elements than memory");
  }
  for (const text::JsonValue& entry : body["files"].elements())
    checkpoint.files.push_back(
        {file_name(entry["name"]), static_cast<std::uint64_t>(entry["bytes"].count()), read_checksum(entry["xxh3"])});
}

}  // namespace

DamagedCheckpoint::~DamagedCheckpoint() = default;

data::InputFile open_saved(const fs::path& path) {
  try {
    return data::InputFile(path.string());
  } catch (const data::MissingFile& error) {
    throw DamagedCheckpoint(error.what());
  }
}

SavedFile write_saved(const fs::path& folder, const std::string& name, const std::string& text) {
  data::OutputFile file((folder / name).string());
  file.write_at(0, text.data(), text.size());
  file.finish();
  return {name, text.size(), checksum_of(text)};
}

std::string shard_name(std::int64_t rank, std::int64_t world_size) {
  return format("shard-{}-of-{}.safetensors", rank, world_size);
}

std::string rank_file_name(std::int64_t rank, std::int64_t world_size) {
  return format("rank-{}-of-{}.safetensors", rank, world_size);
}

std::string former_rank_file_name(std::int64_t rank, std::int64_t world_size) {
  return format("rank-{}-of-{}.json", rank, world_size);
}

bool is_shard(const std::string& name) {
  return name.starts_with("shard-") && name.ends_with(".safetensors");
}

const SavedFile* TrainingCheckpoint::file(const std::string& name) const {
  const auto found = std::ranges::find(files, name, &SavedFile::name);
  return found == files.end() ? nullptr : &*found;
}

const std::string* TrainingCheckpoint::setting(const std::string& key) const {
  const auto found = std::find_if(config.begin(), config.end(), [&](const auto& entry) { return entry.first == key; });
  return found == config.end() ? nullptr : &found->second;
}

std::string TrainingCheckpoint::text() const {
  ordered_json body = {{"format", newest_format},      {"step", step},
                       {"updates", updates},           {"samples", samples},
                       {"data_samples", data.samples}, {"layout", {{"world_size", layout.world_size}}},
                       {"model_config", model_config}};
  for (const Axis axis : axes) body["layout"][name_of(axis)] = layout.mesh.size(axis);
  if (data.content) body["data_xxh3"] = format_checksum(*data.content);
  if (!is_finite()) body["not_finite"] = not_finite;
  if (optimizer_updates != updates) body["optimizer_updates"] = optimizer_updates;
  if (pending) {
    body["pending"] = {{"learning_rate", pending->learning_rate},
                       {"updates", pending->updates},
                       {"gradient_factor", pending->gradient_factor}};
    if (pending->momentum) body["pending"]["momentum"] = *pending->momentum;
  }
  body["config"] = ordered_json::object();
  for (const auto& [key, value] : config) body["config"][key] = value;
  for (const char* list : {"parameters", "files"}) body[list] = ordered_json::array();
  for (const SavedParameter& parameter : parameters) {
    body["parameters"].push_back({{"name", parameter.name}, {"shape", parameter.shape}});
    const Split& split = parameter.split;
    if (split.dimension >= 0)
      body["parameters"].back()["split"] = {
          {"dimension", split.dimension}, {"blocks", split.blocks}, {"unit", split.unit}, {"padded", split.padded}};
    if (!parameter.whole_states.empty()) body["parameters"].back()["whole_states"] = parameter.whole_states;
    if (!parameter.block_states.empty()) body["parameters"].back()["block_states"] = parameter.block_states;
  }
  for (const SavedFile& file : files)
    body["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", format_checksum(file.checksum)}});
  const std::string rest = body.dump(1, ' ', false, json::error_handler_t::replace) + "}\n";
  return first_line(checksum_of(rest)) + rest;
}

TrainingCheckpoint TrainingCheckpoint::read(const fs::path& folder) {
  const fs::path path = folder / checkpoint_file_name;
  std::error_code problem;
  const fs::file_status status = fs::status(folder, problem);
  if (!fs::status_known(status))
    throw EnvironmentError("{}: cannot be read: {}", folder.string(), describe_errno(problem.value()));
  if (!fs::is_directory(status)) damaged(folder, "is not a folder; a checkpoint is a folder");
  const std::string content = read_text(path);
  check_text(path, content);
  TrainingCheckpoint checkpoint;
  checkpoint.folder = folder;
  std::int64_t& format = checkpoint.format;
  try {
    const text::JsonDocument whole(content, {path.string()}, {text_limit, text_values});
    const text::JsonValue body = whole.object()["checkpoint"];
    format = body["format"].count();
    if (format >= 1 && format <= newest_format) read_body(body, checkpoint);
  } catch (const UserError& error) {  // its checksum is right, its content is not
    throw DamagedCheckpoint(std::string(error.what()) + "; the file was not written by Strata");
  }
  if (format < 1 || format > newest_format)
    throw UserError(Place{path.string()},
                    "is of format {}, and this version of Strata reads formats 1 to {}; use the version that wrote it, "
                    "or a newer one",
                    format, newest_format);
  return checkpoint;
}

// The largest files first, each to the rank that has the fewest bytes so far.
Verification::Verification(const TrainingCheckpoint& checkpoint, int rank, int ranks) : folder_(checkpoint.folder) {
  std::vector<SavedFile> files = checkpoint.files;
  std::ranges::stable_sort(files, [](const SavedFile& one, const SavedFile& other) { return one.bytes > other.bytes; });
  std::vector<std::uint64_t> taken(static_cast<std::size_t>(ranks));
  for (const SavedFile& file : files) {
    const auto least = std::min_element(taken.begin(), taken.end());
    *least += static_cast<std::uint64_t>(file.bytes) + 1;
    if (least - taken.begin() == rank) files_.push_back(file);
  }
}

Verification::Verification(fs::path folder, std::vector<SavedFile> files)
    : folder_(std::move(folder)), files_(std::move(files)), past_cache_(true) {}

void Verification::open_next() {
  SavedFile saved = std::move(files_.back());
  files_.pop_back();
  if (past_cache_) data::forget_cached((folder_ / saved.name).string());
  data::InputFile file = open_saved(folder_ / saved.name);
  if (file.size() != saved.bytes)
    damaged(file.path(),
            "has " + std::to_string(file.size()) + " bytes; it was written with " + std::to_string(saved.bytes));
  file_.emplace(OpenFile{std::move(saved), std::move(file), {}});
}

bool Verification::advance(std::uint64_t bytes) {
  if (!file_ && files_.empty()) return false;
  if (!file_) open_next();
  auto& [saved, file, checksum, read] = *file_;
  std::vector<char> buffer(
      static_cast<std::size_t>(std::min<std::uint64_t>({bytes, saved.bytes, std::uint64_t{4} << 20})));
  for (std::uint64_t left = std::min(bytes, saved.bytes - read); left > 0;) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size()));
    file.read_at(read, buffer.data(), part);
    checksum.add(buffer.data(), part);
    read += part;
    left -= part;
  }
  if (read < saved.bytes) return true;
  if (checksum.value() != saved.checksum)
    damaged(file.path(), "has the checksum " + format_checksum(checksum.value()) + "; it was written with " +
                             format_checksum(saved.checksum) + ", so its content was altered");
  file_.reset();
  return !files_.empty();
}

void verify(const TrainingCheckpoint& checkpoint) {
  Verification verification(checkpoint, 0, 1);
  while (verification.advance(std::numeric_limits<std::uint64_t>::max())) {
  }
}

}  // namespace strata::checkpoint
