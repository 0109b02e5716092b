// Hugging Face model folders in and out: config.json beside model.safetensors, or beside shards and
// model.safetensors.index.json. Nothing here knows a model: which tensor is which parameter is a NameMap that the model
// gives, and which tensors files hold transposed.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.hpp"
#include "checkpoint/source_folder.hpp"

namespace strata::checkpoint {

class FolderLock;

struct NameMapEntry {
  std::string canonical;              // the parameter's name in the engine
  std::vector<std::int64_t> shape;    // of the whole parameter, whatever its partitioning
  std::vector<std::string> external;  // the names its tensor may have in a file; an export writes the first
  Split split;
};

struct NameMap {
  std::vector<NameMapEntry> entries;
  std::vector<std::string> ignored;     // external names of tensors that are no parameters; shell globs
  std::vector<std::string> transposed;  // external names of matrices that files hold transposed; shell globs
};

// A folder opened for reading. [any thread]
class HuggingFaceFolder {
 public:
  // Takes model.safetensors and, where there is none, the shards of model.safetensors.index.json; of a shard only the
  // tensors that the index places there. Throws UserError "PATH: ..." for whatever is missing or damaged.
  explicit HuggingFaceFolder(const std::filesystem::path& folder);

  const std::string& path() const { return path_; }
  const std::string& config_text() const { return config_text_; }  // of config.json

  // By external name. The file stays with the folder.
  const std::map<std::string, const SafetensorsFile*>& tensors() const { return tensors_; }

 private:
  void add_shards(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::string path_;
  std::string config_text_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  // by file name
  std::map<std::string, const SafetensorsFile*> tensors_;
};

// Answers "elements [begin, end) of this parameter" from a folder, for a model that no process holds whole. [any
// thread]
class RangeReader {
 public:
  // Throws UserError that lists the first tensors that are missing, of another shape, or unknown to the model.
  RangeReader(std::shared_ptr<const HuggingFaceFolder> folder, const NameMap& names);

  // Fills the contiguous `destination` of end - begin elements, on any device, converting to its dtype. Blocks. Throws
  // UserError where the folder holds the parameter under several names with different values; Bug for an unknown
  // parameter or range, EnvironmentError when the disk fails.
  void fill(const std::string& canonical, std::int64_t begin, std::int64_t end, const at::Tensor& destination) const;
  // "FILE: tensor 'NAME'", from which a parameter is read.
  std::string origin(const std::string& canonical) const;

 private:
  struct Source {
    const SafetensorsFile* file;
    std::string external;
    std::vector<std::int64_t> transposed;  // the shape in the file, where that is transposed
  };
  at::Tensor whole(const Source& source) const;
  void read(const Source& source, std::int64_t begin, std::int64_t end, const at::Tensor& destination) const;

  std::shared_ptr<const HuggingFaceFolder> folder_;
  std::map<std::string, std::vector<Source>> sources_;  // by canonical name; all tensors that hold the parameter
  // The last transposed one that was read, as the model has it: ranges of one parameter follow each other.
  mutable std::mutex mutex_;
  mutable std::pair<std::string, at::Tensor> last_;
};

// Throws UserError when weights cannot be exported to `folder`: it is a file, holds anything, or cannot be made, which
// is tried with the temporary folder of an export; or when the text of its config.json, where it is given, is no JSON
// object. For a check before the training whose result is exported.
void check_export_folder(const std::filesystem::path& folder, const std::string* config_text = nullptr);

// Writes a folder that `transformers` opens, under a temporary name until finish(); without finish() it is removed.
// [one thread]
class HuggingFaceExporter {
 public:
  // `tensors` carry external names and the shapes of parameters and, in this order, fill shards of at most
  // max_shard_bytes (a larger tensor gets its own); one shard is model.safetensors. Takes all the space from the disk.
  // Throws UserError when `folder` is a file or holds anything, its parent does not exist or `config_text` is no JSON
  // object; EnvironmentError for a full disk. Those that `transposed` (shell globs) names are turned around by
  // finish().
  HuggingFaceExporter(const std::filesystem::path& folder, std::string config_text, std::vector<TensorSpec> tensors,
                      std::uint64_t max_shard_bytes, const std::vector<std::string>& transposed = {});
  HuggingFaceExporter(const HuggingFaceExporter&) = delete;
  HuggingFaceExporter& operator=(const HuggingFaceExporter&) = delete;

  // Copies what the run's first folder holds beside its weights, and returns what is lost: see SourceFolder::copy_into.
  std::string take_along(const SourceFolder& source) { return source.copy_into(temporary_.path); }
  // See SafetensorsWriter::write_range. Throws UserError for values that are not finite, or too large for fp16.
  void write_range(const std::string& external, std::int64_t begin, const at::Tensor& source);
  // Throws Bug when elements were never written, UserError when the folder was filled by someone else meanwhile.
  void finish();

 private:
  void add_shards(const std::vector<TensorSpec>& tensors, std::uint64_t max_shard_bytes);

  struct Temporary {
    ~Temporary();
    std::filesystem::path path;        // empty once finished
    std::unique_ptr<FolderLock> lock;  // on it, while this process writes to it
  };

  std::filesystem::path folder_;
  Temporary temporary_;
  std::string config_text_;
  std::string index_text_;  // empty for a single file
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, SafetensorsWriter*> writer_of_;  // by external name
  std::vector<std::string> transposed_;
  std::set<std::string> in_fp16_;  // names of tensors
};

}  // namespace strata::checkpoint
