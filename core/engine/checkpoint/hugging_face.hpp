// Import and export of Hugging Face model folders: config.json with model.safetensors, or with shards and
// model.safetensors.index.json. Independent of the model, which supplies a NameMap: the parameter of each tensor, and
// which tensors files hold transposed.
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
  std::string canonical;              // name in the engine
  std::vector<std::int64_t> shape;    // shape of the whole parameter, for any partitioning
  std::vector<std::string> external;  // possible names of the tensor in a file; an export writes the first
  Split split;
};

struct NameMap {
  std::vector<NameMapEntry> entries;
  std::vector<std::string> ignored;     // external names of tensors that are not parameters; shell globs
  std::vector<std::string> transposed;  // external names of matrices that files hold transposed; shell globs
};

// A folder opened for reading. [any thread]
class HuggingFaceFolder {
 public:
  // Opens model.safetensors or, if there is none, the shards of model.safetensors.index.json; in a shard only the
  // tensors that the index places there. Throws UserError "PATH: ..." for missing or damaged files.
  explicit HuggingFaceFolder(const std::filesystem::path& folder);

  const std::string& path() const { return path_; }
  const std::string& config_text() const { return config_text_; }  // text of config.json

  // Returns the file of each tensor, by external name. The folder owns the files.
  const std::map<std::string, const SafetensorsFile*>& tensors() const { return tensors_; }

 private:
  void add_shards(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::string path_;
  std::string config_text_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  // files by file name
  std::map<std::string, const SafetensorsFile*> tensors_;
};

// Reads elements [begin, end) of a parameter from a folder, for a model that no process holds whole. [any
// thread]
class RangeReader {
 public:
  // Throws UserError that lists the first tensors that are missing, of another shape, or unknown to the model.
  RangeReader(std::shared_ptr<const HuggingFaceFolder> folder, const NameMap& names);

  // Fills the contiguous `destination` of end - begin elements, on any device, converting to its dtype. Blocks. Throws
  // UserError if the folder holds the parameter under several names with different values; Bug for an unknown parameter
  // or range, EnvironmentError when the disk fails.
  void fill(const std::string& canonical, std::int64_t begin, std::int64_t end, const at::Tensor& destination) const;
  // Returns "FILE: tensor 'NAME'", the source of a parameter.
  std::string origin(const std::string& canonical) const;

 private:
  struct Source {
    const SafetensorsFile* file;
    std::string external;
    std::vector<std::int64_t> transposed;  // shape in the file, if transposed
  };
  at::Tensor whole(const Source& source) const;
  void read(const Source& source, std::int64_t begin, std::int64_t end, const at::Tensor& destination) const;

  std::shared_ptr<const HuggingFaceFolder> folder_;
  std::map<std::string, std::vector<Source>> sources_;  // all tensors that hold a parameter, by canonical name
  // The last transposed parameter read, in the model's layout: ranges of one parameter follow each other.
  mutable std::mutex mutex_;
  mutable std::pair<std::string, at::Tensor> last_;
};

// Throws UserError when weights cannot be exported to `folder`: it is a file, is not empty, or cannot be made (tried
// with the temporary folder of an export); or when `config_text`, if given, is not a JSON object. For a check before
// the training whose result is exported.
void check_export_folder(const std::filesystem::path& folder, const std::string* config_text = nullptr);

// Writes a folder that `transformers` opens, under a temporary name until finish(); without finish() it is removed.
// [one thread]
class HuggingFaceExporter {
 public:
  // Starts an export. `tensors` have external names and the shapes of parameters and, in this order, fill shards of
  // at most max_shard_bytes (a larger tensor gets its own); one shard is model.safetensors. Reserves all disk
  // space. Throws UserError when `folder` is a file or not empty, its parent does not exist or `config_text` is not
  // a JSON object; EnvironmentError for a full disk. finish() transposes tensors that `transposed` (shell globs)
  // names.
  HuggingFaceExporter(const std::filesystem::path& folder, std::string config_text, std::vector<TensorSpec> tensors,
                      std::uint64_t max_shard_bytes, const std::vector<std::string>& transposed = {});
  HuggingFaceExporter(const HuggingFaceExporter&) = delete;
  HuggingFaceExporter& operator=(const HuggingFaceExporter&) = delete;

  // Copies the other files of the source folder, and returns a sentence about lost ones: see SourceFolder::copy_into.
  std::string take_along(const SourceFolder& source) { return source.copy_into(temporary_.path); }
  // Writes a range as SafetensorsWriter::write_range. Throws UserError for values not finite, or too large for fp16.
  void write_range(const std::string& external, std::int64_t begin, const at::Tensor& source);
  // Completes the export. Throws Bug for elements never written, UserError if another process filled the folder.
  void finish();

 private:
  void add_shards(const std::vector<TensorSpec>& tensors, std::uint64_t max_shard_bytes);

  struct Temporary {
    ~Temporary();
    std::filesystem::path path;        // path; empty once finished
    std::unique_ptr<FolderLock> lock;  // lock on the folder while this process writes to it
  };

  std::filesystem::path folder_;
  Temporary temporary_;
  std::string config_text_;
  std::string index_text_;  // empty for a single file
  std::vector<std::unique_ptr<SafetensorsWriter>> shards_;
  std::map<std::string, SafetensorsWriter*> writer_of_;  // writers by external name
  std::vector<std::string> transposed_;
  std::set<std::string> in_fp16_;  // names of fp16 tensors
};

}  // namespace strata::checkpoint
