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

// Gives any range of any parameter's weight or state from whatever shards hold it. A shard is opened when it is first
// needed; those used last stay open, and fewer where the process may open no more files. [one thread]
class RangeSource {
 public:
  // `files`: all of the checkpoint. Throws DamagedCheckpoint when one that describes the ranges is missing or not what
  // Strata writes, or elements of one of `parameters` stand nowhere or twice; where there is an index, read() finds
  // that for the parameter that is read.
  RangeSource(const std::filesystem::path& folder, const std::vector<SavedFile>& files,
              const std::vector<SavedParameter>& parameters);

  // The names of a parameter's states, sorted; empty for one that is unknown.
  std::vector<std::string> states(const std::string& parameter) const { return index_.states(parameter); }
  // Throw UserError for one that is unknown.
  at::ScalarType dtype(const std::string& parameter, const std::string& state) const {
    return index_.state(parameter, state).dtype;
  }
  std::int64_t elements(const std::string& parameter, const std::string& state) const {
    return index_.state(parameter, state).whole;
  }
  // Fills the contiguous `destination` of end - begin elements, on any device, converting to its dtype. Blocks. Throws
  // UserError for what is unknown or outside, DamagedCheckpoint, EnvironmentError when the disk fails.
  void read(const std::string& parameter, const std::string& state, std::int64_t begin, std::int64_t end,
            const at::Tensor& destination) const;

 private:
  void read_part(const StoredRanges& known, at::ScalarType dtype, std::int64_t begin, std::int64_t end,
                 const at::Tensor& destination) const;
  const data::InputFile& opened(std::int64_t shard) const;

  std::filesystem::path folder_;
  std::vector<SavedFile> shards_;
  RangeIndex index_;
  mutable std::list<std::pair<std::int64_t, data::InputFile>> open_;  // by shard, the one used last first
};

}  // namespace strata::checkpoint
