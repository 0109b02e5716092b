// Writing and reading of a rank's master weights and optimizer state in a training checkpoint's files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/ranges.hpp"
#include "checkpoint/safetensors.hpp"
#include "stage/local_training.hpp"
#include "state/optimizer_state.hpp"

namespace strata::checkpoint {

// Shard of this rank's counted ranges, in the file's order; includes kept gradients with a pending update. With
// local training (`local`): the counted ranges of the weights and the outer momentum, and this group's own
// values after `steps` steps: the optimizer's state, and master weights not averaged since. `state` must outlive
// it.
class StateShard {
 public:
  StateShard(const std::filesystem::path& folder, const std::string& name, const state::OptimizerState& state,
             bool pending, const stage::LocalTraining* local = nullptr, std::int64_t steps = 0);

  // Writes up to `bytes` more to the disk itself; returns true if there are more.
  bool advance(std::int64_t bytes);
  // Returns name, size and checksum of the whole file.
  SavedFile saved() const { return {name_, writer_->bytes(), writer_->checksum()}; }
  const std::string& header() const { return writer_->header(); }
  // Returns the first written state with NaN or infinity, "the master of NAME"; empty: none.
  const std::string& not_finite() const { return not_finite_; }

 private:
  using Specs = std::vector<TensorSpec>;
  void add(Specs& specs, const RangeName& range, const BufferRange& values);
  void add_states(Specs& specs, const state::OptimizerState::Entry& entry, std::int64_t begin, std::int64_t end,
                  const std::function<std::string(const std::string&)>& name);

  std::string name_;
  const memory::Buffers& buffers_;
  std::map<std::string, BufferRange> values_;
  std::optional<SafetensorsWriter> writer_;
  std::size_t tensor_ = 0;    // next tensor to write, in the file's order
  std::int64_t element_ = 0;  // next element in the tensor
  std::string not_finite_;
};

// Returns the checkpoint name of a state of one replica group: "exp_avg of group 2".
std::string name_of_group(const std::string& state, int group);
// Returns the names under which an optimizer state is saved: one per group with local training, otherwise its own.
std::vector<std::string> saved_names(const std::string& state, const std::optional<stage::LocalTraining>& local);
// Checkpoint name of the outer momentum.
inline constexpr const char* outer_momentum = "outer_momentum";

// Reads an entry's values, for any layout of the run that saved them, and rounds the weights into the parameter.
// Returns the bytes read. `pending`: includes the kept gradient. `local`: reads the optimizer state of this rank's
// replica group.
std::uint64_t read_entry(const RangeSource& source, state::OptimizerState& state,
                         const state::OptimizerState::Entry& entry, bool pending,
                         const stage::LocalTraining* local = nullptr);
// Reads the master weights of this rank's replica group, if they differ from the common ones. Returns the bytes read.
std::uint64_t read_master_of_group(const RangeSource& source, state::OptimizerState& state,
                                   const state::OptimizerState::Entry& entry, const stage::LocalTraining& local);

}  // namespace strata::checkpoint
