// Index of a checkpoint: the places in its shards of each parameter's weight and states. Rank 0 writes it once, when
// the checkpoint is saved, as the safetensors file index.safetensors; a reader parses only its header and then reads
// the rows of the states that it needs. For a checkpoint of format 1, which has no such file, the index is made from
// the headers of all shards.
//   tensor PARAMETER|STATE|DTYPE|PART/PARTS   I64 [ranges, 4]: begin, end, shard, byte of the first element in its file
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter_cut.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/range_name.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/training_checkpoint.hpp"

namespace strata::checkpoint {

inline constexpr const char* index_file_name = "index.safetensors";

// Elements [begin, end) of a part of a state.
struct StoredRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t shard = 0;   // file number, in rank order
  std::int64_t offset = 0;  // byte of the first element in the file
};
using StoredRanges = std::vector<StoredRange>;  // sorted by begin

// Index of all states of a checkpoint. [one thread]
class RangeIndex {
 public:
  struct State {
    at::ScalarType dtype = at::kFloat;
    int parts = 1;            // number of parts; 1: the parameter is not cut
    std::int64_t whole = 0;   // elements of the whole, without padding of parts
    std::int64_t block = 1;   // elements of the parameter per element of the state, if cut
    std::int64_t length = 0;  // elements of each part
    std::optional<ParameterCut> cut;
  };

  // Makes one from headers of shards. Throws DamagedCheckpoint if elements of `parameters` are missing or duplicate.
  RangeIndex(const std::filesystem::path& folder, const std::vector<SafetensorsFile>& shards,
             const std::vector<SavedParameter>& parameters);
  // Opens the index file of `folder`, whose shards have these sizes. Throws DamagedCheckpoint.
  RangeIndex(const std::filesystem::path& folder, std::vector<std::uint64_t> shard_bytes,
             const std::vector<SavedParameter>& parameters);

  // Writes the index file into the folder, which must have none.
  SavedFile save() const;

  // Returns the names of a parameter's states, sorted; empty for an unknown parameter.
  std::vector<std::string> states(const std::string& parameter) const;
  // Returns a state. Throws Bug for an unknown one.
  const State& state(const std::string& parameter, const std::string& state) const;
  // Returns a part's ranges, valid until a call for another state. Throws DamagedCheckpoint for gaps or overlaps.
  const StoredRanges& ranges(const std::string& parameter, const std::string& state, int part) const;

 private:
  struct Key {
    std::string parameter;
    std::string state;
    int part = 0;
    auto operator<=>(const Key&) const = default;
  };

  void add(const SafetensorsFile& shard, std::int64_t number);
  void settle(const std::vector<SavedParameter>& parameters);
  StoredRanges load(const Key& key) const;
  void check(const Key& key, const StoredRanges& ranges) const;
  std::string tensor_name(const Key& key) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path folder_;
  std::vector<std::string> shard_paths_;  // paths of shards with known headers, for messages
  std::vector<std::uint64_t> shard_bytes_;
  std::map<std::string, std::map<std::string, State>> parameters_;  // states by parameter and name
  std::map<Key, StoredRanges> known_;                               // all ranges, if made from headers
  std::optional<SafetensorsFile> file_;                             // index file
  mutable std::optional<data::InputFile> open_;
  mutable std::map<Key, StoredRanges> loaded_;  // ranges read from the index: parts of the last requested state
};

}  // namespace strata::checkpoint
