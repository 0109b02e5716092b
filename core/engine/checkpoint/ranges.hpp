// Reads ranges of parameters' weights and states from the shards of a training checkpoint.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/range_index.hpp"
#include "checkpoint/range_name.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/training_checkpoint.hpp"

namespace strata::checkpoint {

// Reads any range of any parameter's weight or state from the shards that hold it. A shard is opened when it is first
// needed; the last used ones stay open, fewer if the process has reached its limit of open files. [one thread]
class RangeSource {
 public:
  // Opens the index. `files`: all files of the checkpoint. Throws DamagedCheckpoint when a file that describes ranges
  // is missing or malformed, or elements of `parameters` are missing or duplicate; with an index file, read() checks
  // the latter for the parameter that is read.
  RangeSource(const std::filesystem::path& folder, const std::vector<SavedFile>& files,
              const std::vector<SavedParameter>& parameters);

  // Returns the names of a parameter's states, sorted; empty for an unknown parameter.
  std::vector<std::string> states(const std::string& parameter) const { return index_.states(parameter); }
  // Returns dtype or number of elements of a state. Throws UserError for an unknown one.
  at::ScalarType dtype(const std::string& parameter, const std::string& state) const {
    return index_.state(parameter, state).dtype;
  }
  std::int64_t elements(const std::string& parameter, const std::string& state) const {
    return index_.state(parameter, state).whole;
  }
  // Fills the contiguous `destination` of end - begin elements, on any device, converting to its dtype. Blocks. Throws
  // UserError for an unknown state or range, DamagedCheckpoint, EnvironmentError when the disk fails.
  void read(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end,
            const at::Tensor& destination) const;

 private:
  void read_part(const StoredRanges& known, at::ScalarType dtype, std::int64_t begin, std::int64_t end,
                 const at::Tensor& destination) const;
  const data::InputFile& opened(std::int64_t shard) const;

  std::filesystem::path folder_;
  std::vector<SavedFile> shards_;
  RangeIndex index_;
  mutable std::list<std::pair<std::int64_t, data::InputFile>> open_;  // open files by shard, last used first
};

}  // namespace strata::checkpoint
