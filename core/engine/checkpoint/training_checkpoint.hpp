// A checkpoint of a training run is a folder of files:
//   shard-R-of-N.safetensors   ranges that rank R owns: see ranges.hpp
//   index.safetensors          place of each range in the shards: see range_index.hpp
//   plugins.safetensors        plugins' values that are equal on all ranks: see plugin_state.hpp
//   rank-R-of-N.safetensors    plugins' values of rank R alone, if any
//   checkpoint.json            everything else, with size and checksum of every file above; written last
// The shards together hold every element of every parameter and of its optimizer state once, for any layout of the
// ranks, so that any other number of ranks can read it. checkpoint.json is JSON whose first line holds the checksum of
// the rest:
//   {"xxh3": "0123456789abcdef", "checkpoint":
//   { "format": 2, "step": 7, ... }}
// Format 1 had no index, and rank-R-of-N.json of every rank in place of the two files of plugins.
#pragma once
#include <strata/error.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <strata/mesh.hpp>
#include <strata/parameter.hpp>

#include "checkpoint/checksum.hpp"
#include "data/file.hpp"

namespace strata::checkpoint {

// Error of a half-written, truncated or altered checkpoint: another checkpoint of the same run may be whole. A
// checkpoint that does not fit the run or comes from a newer version is a plain UserError.
class DamagedCheckpoint final : public UserError {
 public:
  using UserError::UserError;
  ~DamagedCheckpoint() override;
};

// Opens a file of a checkpoint. A missing file is damage, because checkpoint.json is written last. A file without read
// permission, or that this machine cannot open now, may be whole: this throws another error, so that no run resumes an
// earlier step and overwrites a good one. Throws DamagedCheckpoint, UserError, EnvironmentError.
data::InputFile open_saved(const std::filesystem::path& path);

struct SavedFile {
  std::string name;  // within the folder
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

// Writes a file of this text into the folder, which must not have one of its name.
SavedFile write_saved(const std::filesystem::path& folder, const std::string& name, const std::string& text);

struct SavedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::map<std::string, std::int64_t> whole_states;  // elements of the states that belong to the whole parameter
  Split split;
  std::map<std::string, std::int64_t> block_states;  // block sizes of states with blocks
};

// Layout of the ranks that saved.
struct SavedLayout {
  std::int64_t world_size = 1;
  MeshShape mesh;
  bool operator==(const SavedLayout&) const = default;
};

// Scalars of the pending update (`step_policy: delayed`): learning rate, factor, number of updates, momentum.
struct PendingUpdate {
  double learning_rate = 0.0;
  std::int64_t updates = 0;
  double gradient_factor = 1.0;
  std::optional<double> momentum;
  bool operator==(const PendingUpdate&) const = default;
};

// Facts of the training data that a resumed run must share.
struct RunData {
  std::int64_t samples = 0;
  std::optional<std::uint64_t> content;  // fingerprint of the tokens; empty in checkpoints of earlier versions
};

struct TrainingCheckpoint {
  static constexpr std::int64_t newest_format = 2;

  std::filesystem::path folder;         // folder of the checkpoint; not written
  std::int64_t format = newest_format;  // format that was read; the newest is written
  std::int64_t step = 0;                // steps made; number of the next step
  std::int64_t updates = 0;             // steps that were not skipped, including a pending update
  std::int64_t optimizer_updates = 0;   // optimizer updates; several per step if the schedule updates within it
  std::int64_t samples = 0;             // samples seen so far
  RunData data;
  std::optional<PendingUpdate> pending;  // if set, the shards hold a kept gradient of each trained parameter
  // Name of a value that is NaN or infinite: "the master of NAME", "the loss of step 7"; empty: none. Older versions
  // did not check, and their checkpoints count as finite.
  std::string not_finite;
  SavedLayout layout;
  std::string model_config;                                 // config.json that the model's sizes came from, or empty
  std::vector<std::pair<std::string, std::string>> config;  // resolved config: key, value
  std::vector<SavedParameter> parameters;                   // parameters of the whole model; a tied one once
  std::vector<SavedFile> files;

  bool is_finite() const { return not_finite.empty(); }
  const SavedFile* file(const std::string& name) const;  // or null
  // Returns the value of a config key, or null.
  const std::string* setting(const std::string& key) const;
  // Returns the text of checkpoint.json.
  std::string text() const;
  // Reads FOLDER/checkpoint.json. Throws DamagedCheckpoint, or UserError for a newer format. Does not check the other
  // files.
  static TrainingCheckpoint read(const std::filesystem::path& folder);
};

std::string shard_name(std::int64_t rank, std::int64_t world_size);  // "shard-0-of-2.safetensors"
bool is_shard(const std::string& name);
std::string rank_file_name(std::int64_t rank, std::int64_t world_size);         // "rank-0-of-2.safetensors"
std::string former_rank_file_name(std::int64_t rank, std::int64_t world_size);  // name in format 1
inline constexpr const char* checkpoint_file_name = "checkpoint.json";

// One rank's share of comparing all files with their checksums in checkpoint.json; shares are about equal in bytes.
class Verification {
 public:
  Verification(const TrainingCheckpoint& checkpoint, int rank, int ranks);
  // Verifies files of a folder that were just written, read from the disk or the server instead of this host's
  // cache.
  Verification(std::filesystem::path folder, std::vector<SavedFile> files);
  // Reads up to `bytes` more, and returns true if there are more. Blocks. Throws DamagedCheckpoint when a file is
  // missing or has another size or checksum, EnvironmentError when the disk fails.
  bool advance(std::uint64_t bytes);

 private:
  struct OpenFile {
    SavedFile saved;
    data::InputFile file;
    Checksum checksum;
    std::uint64_t read = 0;
  };
  void open_next();
  std::filesystem::path folder_;
  std::vector<SavedFile> files_;  // files not begun, the last one next
  bool past_cache_ = false;
  std::optional<OpenFile> file_;
};

// Verifies all files, one after the other.
void verify(const TrainingCheckpoint& checkpoint);

}  // namespace strata::checkpoint
