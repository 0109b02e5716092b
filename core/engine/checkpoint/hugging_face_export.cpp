#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/finite.hpp"
#include "checkpoint/folder_lock.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "data/file.hpp"
#include "interface/src/system_error.hpp"
#include "text/json.hpp"
#include "text/printable.hpp"

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

// Removes the temporary folders of processes that were killed while they exported to `folder`. A process that still
// exports, on this host or another, holds the lock of its folder.
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
    if (!fs::is_directory(fs::symlink_status(path, error))) continue;
    try {
      const FolderLock lock(path);
      if (lock.taken() == FolderLock::Taken::Yes) data::remove_or_warn(path);
    } catch (const Error&) {  // it may not be written to: another user's
    }
  }
}

// The folder's name without links, and without a slash at its end.
fs::path final_name(const fs::path& folder) {
  std::error_code error;
  const fs::path absolute = fs::absolute(folder, error);
  const fs::path name = error ? fs::path() : fs::weakly_canonical(absolute, error);
  if (error) throw_cannot_open(folder.string(), "cannot be made", error.value());
  return name.has_filename() ? name : name.parent_path();  // "out/" is "out"
}

// A new folder next to the one to write, renamed to it at the end.
fs::path make_temporary(const fs::path& folder) {
  const fs::path temporary = data::temporary_name(folder.string());
  if (::mkdir(temporary.c_str(), 0777) == 0) return temporary;
  const int error = errno;
  throw_cannot_open(folder.string(), ("cannot be created in " + folder.parent_path().string()).c_str(), error);
}

bool is_mount_point(const fs::path& folder) {
  struct stat own {
  }, parent{};
  return ::stat(folder.c_str(), &own) == 0 && ::stat((folder / "..").c_str(), &parent) == 0 &&
         own.st_dev != parent.st_dev;
}

}  // namespace

void check_export_folder(const fs::path& folder, const std::string* config_text) {
  const Place place{folder.string()};
  const fs::path name = final_name(folder);
  std::error_code error;
  const fs::file_status status = fs::symlink_status(name, error);
  if (fs::is_symlink(status))
    throw UserError(place, "is a link to a folder that does not exist; give the folder itself");
  if (fs::exists(status)) {
    if (!fs::is_directory(status)) throw UserError(place, "is a file; give a folder to export into");
    if (fs::exists(name / checkpoint_file_name, error) || !CheckpointFolder(name).steps().empty())
      throw UserError(place, "holds checkpoints of a run, which an export does not overwrite; give a new folder");
    const bool empty = fs::is_empty(name, error);
    if (error) throw_cannot_open(folder.string(), "cannot be read", error.value());
    if (!empty) {
      throw UserError(place, "is not empty and is not overwritten; export into a new folder or remove this one first");
    }
    if (is_mount_point(name))
      throw UserError(place, "is a mount point, which cannot be replaced; give a new folder inside it");
  }
  if (!fs::is_directory(name.parent_path(), error))
    throw UserError(place, "cannot be created: {} is not a folder", name.parent_path().string());
  if (config_text != nullptr) text::JsonDocument(*config_text, {(name / "config.json").string()}).object();
  data::remove_or_warn(make_temporary(name));
}

HuggingFaceExporter::HuggingFaceExporter(const fs::path& folder, std::string config_text,
                                         std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes,
                                         const std::vector<std::string>& transposed)
    : folder_(final_name(folder)), config_text_(std::move(config_text)) {
  check_export_folder(folder_, &config_text_);
  remove_abandoned(folder_);
  const fs::path temporary = make_temporary(folder_);
  temporary_.path = temporary;
  temporary_.lock = std::make_unique<FolderLock>(temporary);
  for (TensorSpec& spec : tensors) {
    if (spec.dtype == at::kHalf) in_fp16_.insert(spec.name);
    if (!matches_any(spec.name, transposed)) continue;
    std::reverse(spec.shape.begin(), spec.shape.end());
    transposed_.push_back(spec.name);
  }
  add_shards(tensors, max_shard_bytes);
}

HuggingFaceExporter::Temporary::~Temporary() {
  if (!path.empty()) data::remove_or_warn(path);
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
      if (!writer_of_.try_emplace(spec.name, shards_.back().get()).second) throw Bug("two tensors named {}", spec.name);
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
  if (writer == writer_of_.end()) throw Bug("{}: tensor {} was not declared", folder_.string(), external);
  check_finite(source, begin, Place{folder_.string()}, "tensor '" + external + "'");
  constexpr double largest_fp16 = 65504.0;
  if (in_fp16_.contains(external) && source.numel() > 0 && source.abs().max().item<double>() > largest_fp16)
    throw UserError(Place{folder_.string()},
                    "tensor '{}' has values above 65504, the maximum of fp16; export it in bf16 or fp32",
                    text::one_line(external));
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
                      "was filled by another process in the meantime and is not overwritten; export into a new folder");
    }
    throw EnvironmentError("{}: cannot be renamed: {}", folder_.string(), describe_errno(error));
  }
  temporary_.path.clear();
  temporary_.lock->follow(folder_);
  temporary_.lock.reset();
  data::flush_folder(folder_.parent_path().string());
}

}  // namespace strata::checkpoint
