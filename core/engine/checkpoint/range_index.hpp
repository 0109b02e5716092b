// Where the elements of each parameter's weight and states lie in the shards of a checkpoint. Rank 0 writes it once,
// when the checkpoint is saved, as the safetensors file index.safetensors; a reader parses its header alone and then
// reads the rows of the states that it needs. Of a checkpoint of format 1, which has no such file, the same is put
// together from the headers of all shards.
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
  std::int64_t shard = 0;   // number of the file, in rank order
  std::int64_t offset = 0;  // byte of the first element in it
};
using StoredRanges = std::vector<StoredRange>;  // by begin

// [one thread]
class RangeIndex {
 public:
  struct State {
    at::ScalarType dtype = at::kFloat;
    int parts = 1;            // 1: the parameter is not cut
    std::int64_t whole = 0;   // elements, without padding of parts
    std::int64_t block = 1;   // elements of the parameter for each, if it is cut
    std::int64_t length = 0;  // elements of each part
    std::optional<ParameterCut> cut;
  };

  // Of shards with these headers. Throws DamagedCheckpoint when elements of one of `parameters` stand nowhere or twice.
  RangeIndex(const std::filesystem::path& folder, const std::vector<SafetensorsFile>& shards,
             const std::vector<SavedParameter>& parameters);
  // Of the index file of `folder`, whose shards have these sizes. Throws DamagedCheckpoint.
  RangeIndex(const std::filesystem::path& folder, std::vector<std::uint64_t> shard_bytes,
             const std::vector<SavedParameter>& parameters);

  // Writes the index file into the folder, which has none.
  SavedFile save() const;

  // The names of a parameter's states, sorted; empty for one that is unknown.
  std::vector<std::string> states(const std::string& parameter) const;
  // Throws Bug for one that is unknown.
  const State& state(const std::string& parameter, const std::string& state) const;
  // Valid until a call for another state. Throws DamagedCheckpoint when elements of the part stand nowhere or twice.
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
  std::vector<std::string> shard_paths_;  // of known headers, for messages
  std::vector<std::uint64_t> shard_bytes_;
  std::map<std::string, std::map<std::string, State>> parameters_;  // by parameter, by state
  std::map<Key, StoredRanges> known_;                               // from headers: all of them
  std::optional<SafetensorsFile> file_;                             // the index
  mutable std::optional<data::InputFile> open_;
  mutable std::map<Key, StoredRanges> loaded_;  // from the index: parts of the state asked for last
};

}  // namespace strata::checkpoint
