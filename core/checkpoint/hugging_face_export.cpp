#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "data/file.hpp"
#include "text/json.hpp"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

// model-00002-of-00010.safetensors, or model.safetensors for the only one.
std::string shard_name(std::size_t index, std::size_t count) {
  if (count <= 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

std::vector<std::vector<TensorSpec>> cut_into_shards(const std::vector<TensorSpec>& tensors,
                                                     std::uint64_t max_shard_bytes) {
  std::vector<std::vector<TensorSpec>> shards(1);
  std::uint64_t filled = 0;
  for (const TensorSpec& spec : tensors) {
    if (!shards.back().empty() && filled + bytes_of(spec) > max_shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(spec);
    filled += bytes_of(spec);
  }
  return shards;
}

// Nothing when it is no folder, or another process has it. Where a file system has no locks nobody has any.
std::optional<int> lock_folder(const fs::path& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (handle < 0) return std::nullopt;
  if (::flock(handle, LOCK_EX | LOCK_NB) == 0) return handle;
  ::close(handle);
  return std::nullopt;
}

// What processes left that were killed while they exported to it. Whoever still does, on this host or another, has a
// lock.
void remove_abandoned(const fs::path& folder) {
  const std::string prefix = folder.filename().string() + data::temporary_mark;
  std::vector<fs::path> abandoned;
  std::error_code error;
  for (fs::directory_iterator entry(folder.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || name.size() != prefix.size() + data::temporary_digits) continue;
    if (name.find_first_not_of("0123456789abcdef", prefix.size()) != std::string::npos) continue;
    abandoned.push_back(entry->path());
  }
  for (const fs::path& path : abandoned) {
    const std::optional<int> lock = lock_folder(path);
    if (!lock) continue;
    fs::remove_all(path, error);
    ::close(*lock);
  }
}

}  // namespace

void check_export_folder(const fs::path& folder) {
  const Place place{folder.string()};
  std::error_code error;
  if (fs::exists(folder, error)) {
    if (!fs::is_directory(folder, error)) throw UserError(place, "is a file; a folder to export into is wanted");
    if (fs::exists(folder / checkpoint_file_name, error) || !CheckpointFolder(folder).steps().empty())
      throw UserError(place, "holds checkpoints of a run, which an export does not overwrite; name a new folder");
    if (!fs::is_empty(folder, error)) {
      throw UserError(place, "is not empty and is not overwritten; export into a new folder or remove this one first");
    }
  }
  fs::path parent = fs::absolute(folder);
  if (!parent.has_filename()) parent = parent.parent_path();  // "out/" is "out"
  parent = parent.parent_path();
  if (!fs::is_directory(parent, error)) throw UserError(place, "cannot be made: " + parent.string() + " is no folder");
}

HuggingFaceExporter::HuggingFaceExporter(const fs::path& folder, std::string config_text,
                                         std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes,
                                         const std::vector<std::string>& transposed)
    : folder_(fs::weakly_canonical(fs::absolute(folder))), config_text_(std::move(config_text)) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "out/" is "out"
  check_export_folder(folder_);
  const Place place{folder_.string()};
  text::JsonDocument(config_text_, {(folder_ / "config.json").string()}).object();
  const fs::path temporary = data::temporary_name(folder_.string());
  remove_abandoned(folder_);
  if (::mkdir(temporary.c_str(), 0777) != 0) {
    throw UserError(
        place, "cannot be made in " + folder_.parent_path().string() + ": " + std::generic_category().message(errno));
  }
  temporary_.path = temporary;
  temporary_.lock = lock_folder(temporary).value_or(-1);
  for (TensorSpec& spec : tensors) {
    if (!matches_any(spec.name, transposed)) continue;
    std::reverse(spec.shape.begin(), spec.shape.end());
    transposed_.push_back(spec.name);
  }
  add_shards(tensors, max_shard_bytes);
}

HuggingFaceExporter::Temporary::~Temporary() {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
  if (lock >= 0) ::close(lock);
}

void HuggingFaceExporter::add_shards(const std::vector<TensorSpec>& tensors, std::uint64_t max_shard_bytes) {
  const std::vector<std::vector<TensorSpec>> cut = cut_into_shards(tensors, max_shard_bytes);
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < cut.size(); ++i) {
    const std::string name = shard_name(i, cut.size());
    shards_.push_back(std::make_unique<SafetensorsWriter>((temporary_.path / name).string(), cut[i],
                                                          std::map<std::string, std::string>{{"format", "pt"}}));
    for (const TensorSpec& spec : cut[i]) {
      if (!writer_of_.try_emplace(spec.name, shards_.back().get()).second)
        throw Bug("two tensors of the name " + spec.name);
      weight_map[spec.name] = name;
      total += bytes_of(spec);
    }
  }
  if (cut.size() == 1) return;
  index_text_ =
      nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}}.dump(2) + "\n";
}

void HuggingFaceExporter::write_range(const std::string& external, std::int64_t begin, const at::Tensor& source) {
  const auto writer = writer_of_.find(external);
  if (writer == writer_of_.end()) throw Bug(folder_.string() + ": was not announced to hold a tensor " + external);
  writer->second->write_range(external, begin, source);
}

void HuggingFaceExporter::finish() {
  strata_check(!temporary_.path.empty(), "HuggingFaceExporter::finish called twice");
  for (const std::string& name : transposed_) writer_of_.at(name)->transpose(name);
  for (const auto& shard : shards_) shard->finish();
  write_saved(temporary_.path, "config.json", config_text_);
  if (!index_text_.empty()) write_saved(temporary_.path, "model.safetensors.index.json", index_text_);
  // rename replaces an empty folder, and refuses one that is not.
  if (std::rename(temporary_.path.c_str(), folder_.c_str()) != 0) {
    const int error = errno;
    if (error == ENOTEMPTY || error == EEXIST || error == ENOTDIR) {
      throw UserError(Place{folder_.string()},
                      "was filled by someone else meanwhile and is not overwritten; export into a new folder");
    }
    throw EnvironmentError(folder_.string() + ": cannot be given its name: " + std::generic_category().message(error));
  }
  temporary_.path.clear();
  data::flush_folder(folder_.parent_path().string());
}

}  // namespace strata::checkpoint
