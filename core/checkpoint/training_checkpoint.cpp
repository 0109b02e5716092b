#include "checkpoint/training_checkpoint.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/json_text.hpp"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t text_limit = std::uint64_t{256} << 20;

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
    damaged(path, "has " + std::to_string(file.size()) + " bytes, too many for what it should be");
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void check_text(const fs::path& path, const std::string& text) {
  const std::string::size_type end = text.find('\n');
  const std::string_view rest = end == std::string::npos ? std::string_view() : std::string_view(text).substr(end + 1);
  if (end == std::string::npos || text.substr(0, end + 1) != first_line(checksum_of(rest)))
    damaged(path, "does not match its own checksum; it was cut, altered or never finished");
}

std::int64_t count(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0)
    throw std::runtime_error(std::string(key) + " is no count");
  return value.get<std::int64_t>();
}

std::uint64_t read_checksum(const std::string& text) {
  const std::uint64_t value = std::stoull(text, nullptr, 16);
  if (format_checksum(value) != text) throw std::runtime_error("a checksum is not of 16 hexadecimal digits");
  return value;
}

std::string file_name(const json& value) {
  const std::string name = value.get<std::string>();
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos)
    throw std::runtime_error("a file's name is none: " + printable(name));
  return name;
}

void read_body(const json& body, TrainingCheckpoint& checkpoint) {
  checkpoint.step = count(body, "step");
  checkpoint.updates = count(body, "updates");
  checkpoint.optimizer_updates =
      body.contains("optimizer_updates") ? count(body, "optimizer_updates") : checkpoint.updates;
  checkpoint.samples = count(body, "samples");
  checkpoint.data.samples = count(body, "data_samples");
  if (body.contains("data_xxh3")) checkpoint.data.content = read_checksum(body.at("data_xxh3").get<std::string>());
  if (body.contains("not_finite")) checkpoint.not_finite = body.at("not_finite").get<std::string>();
  if (body.contains("pending")) {
    const json& pending = body.at("pending");
    checkpoint.pending.emplace(PendingUpdate{pending.at("learning_rate").get<double>(), count(pending, "updates"),
                                             pending.at("gradient_factor").get<double>(), std::nullopt});
    if (pending.contains("momentum")) checkpoint.pending->momentum = pending.at("momentum").get<double>();
  }
  const json& layout = body.at("layout");
  checkpoint.layout = {count(layout, "world_size"), count(layout, "pipeline"), count(layout, "data"),
                       count(layout, "tensor")};
  checkpoint.model_config = body.at("model_config").get<std::string>();
  for (const auto& [key, value] : body.at("config").items())
    checkpoint.config.emplace_back(key, value.get<std::string>());
  for (const json& entry : body.at("parameters")) {
    SavedParameter& parameter = checkpoint.parameters.emplace_back();
    parameter.name = entry.at("name").get<std::string>();
    parameter.shape = entry.at("shape").get<std::vector<std::int64_t>>();
    if (entry.contains("split")) {
      const json& split = entry.at("split");
      parameter.split = {static_cast<int>(count(split, "dimension")), count(split, "blocks"), count(split, "unit"),
                         split.value("padded", false)};
    }
    for (const auto& [key, states] :
         {std::pair{"whole_states", &parameter.whole_states}, std::pair{"block_states", &parameter.block_states}})
      if (entry.contains(key))
        for (const auto& [state, number] : entry.at(key).items())
          if (((*states)[state] = count(entry.at(key), state.c_str())) == 0)
            throw std::runtime_error(std::string(key) + " has a 0");
  }
  for (const json& entry : body.at("files"))
    checkpoint.files.push_back({file_name(entry.at("name")), static_cast<std::uint64_t>(count(entry, "bytes")),
                                read_checksum(entry.at("xxh3").get<std::string>())});
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
  return "shard-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + ".safetensors";
}

std::string rank_file_name(std::int64_t rank, std::int64_t world_size) {
  return "rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + ".safetensors";
}

std::string former_rank_file_name(std::int64_t rank, std::int64_t world_size) {
  return "rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + ".json";
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
  ordered_json body = {{"format", newest_format},
                       {"step", step},
                       {"updates", updates},
                       {"samples", samples},
                       {"data_samples", data.samples},
                       {"layout",
                        {{"world_size", layout.world_size},
                         {"pipeline", layout.pipeline},
                         {"data", layout.data},
                         {"tensor", layout.tensor}}},
                       {"model_config", model_config}};
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
    throw EnvironmentError(folder.string() + ": cannot be looked at: " + problem.message());
  if (!fs::is_directory(status)) damaged(folder, "is no folder; a checkpoint is one");
  const std::string text = read_text(path);
  check_text(path, text);
  TrainingCheckpoint checkpoint;
  checkpoint.folder = folder;
  std::int64_t& format = checkpoint.format;
  try {
    const json whole = parse_json(text, path.string());
    const json& body = whole.at("checkpoint");
    format = count(body, "format");
    if (format >= 1 && format <= newest_format) read_body(body, checkpoint);
  } catch (const std::exception& error) {  // the library's as well: its checksum is right, its content is not
    damaged(path, std::string("is not what Strata writes: ") + error.what());
  }
  if (format < 1 || format > newest_format)
    throw UserError(Place{path.string()},
                    "is of format " + std::to_string(format) + ", and this version of Strata reads formats 1 to " +
                        std::to_string(newest_format) + "; use the version that wrote it, or a newer one");
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
            "has " + std::to_string(file.size()) + " bytes and was written with " + std::to_string(saved.bytes));
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
    damaged(file.path(), "has the checksum " + format_checksum(checksum.value()) + " and was written with " +
                             format_checksum(saved.checksum) + "; its content was altered");
  file_.reset();
  return !files_.empty();
}

void verify(const TrainingCheckpoint& checkpoint) {
  Verification verification(checkpoint, 0, 1);
  while (verification.advance(std::numeric_limits<std::uint64_t>::max())) {
  }
}

}  // namespace strata::checkpoint
