// A rank's master weights and optimizer state on their way into a training checkpoint's files and back.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/ranges.hpp"
#include "checkpoint/safetensors.hpp"
#include "state/optimizer_state.hpp"

namespace strata::runtime {

// This rank's counted ranges, in the file's order; the kept gradients too where their update is pending. `state` must
// outlive it.
class StateShard {
 public:
  StateShard(const std::filesystem::path& folder, const std::string& name, const state::OptimizerState& state,
             bool pending);

  // Writes up to `bytes` more, to the disk itself; whether there are more.
  bool advance(std::int64_t bytes);
  // Of the whole file.
  checkpoint::SavedFile saved() const { return {name_, writer_->bytes(), writer_->checksum()}; }

 private:
  using Specs = std::vector<checkpoint::TensorSpec>;
  void add(Specs& specs, const checkpoint::RangeName& range, const BufferRange& values);

  std::string name_;
  const state::Buffers& buffers_;
  std::map<std::string, BufferRange> values_;
  std::optional<checkpoint::SafetensorsWriter> writer_;
  std::size_t tensor_ = 0;    // the next to write, in the file's order
  std::int64_t element_ = 0;  // and where in it
};

// Reads what an entry holds, however the run that saved it was cut, and rounds the weights into the parameter. Returns
// the bytes read. `pending`: the kept gradient too.
std::uint64_t read_entry(const checkpoint::RangeSource& source, state::OptimizerState& state,
                         const state::OptimizerState::Entry& entry, bool pending);

}  // namespace strata::runtime
