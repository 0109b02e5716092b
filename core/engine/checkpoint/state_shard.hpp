// A rank's master weights and optimizer state on their way into a training checkpoint's files and back.
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
#include "state/optimizer_state.hpp"
#include "step/local_training.hpp"

namespace strata::runtime {

// This rank's counted ranges, in the file's order; the kept gradients too where their update is pending. Where replica
// groups train by themselves (`local`), of the weights and the outer momentum the counted ranges, and of what each
// group has for itself after so many `steps`, the optimizer's state and the master weights that have not been averaged
// since, this group's. `state` must outlive it.
class StateShard {
 public:
  StateShard(const std::filesystem::path& folder, const std::string& name, const state::OptimizerState& state,
             bool pending, const LocalTraining* local = nullptr, std::int64_t steps = 0);

  // Writes up to `bytes` more, to the disk itself; whether there are more.
  bool advance(std::int64_t bytes);
  // Of the whole file.
  checkpoint::SavedFile saved() const { return {name_, writer_->bytes(), writer_->checksum()}; }
  const std::string& header() const { return writer_->header(); }
  // The first state written that holds NaN or infinity, "the master of NAME"; empty: none does.
  const std::string& not_finite() const { return not_finite_; }

 private:
  using Specs = std::vector<checkpoint::TensorSpec>;
  void add(Specs& specs, const checkpoint::RangeName& range, const BufferRange& values);
  void add_states(Specs& specs, const state::OptimizerState::Entry& entry, std::int64_t begin, std::int64_t end,
                  const std::function<std::string(const std::string&)>& name);

  std::string name_;
  const state::Buffers& buffers_;
  std::map<std::string, BufferRange> values_;
  std::optional<checkpoint::SafetensorsWriter> writer_;
  std::size_t tensor_ = 0;    // the next to write, in the file's order
  std::int64_t element_ = 0;  // and where in it
  std::string not_finite_;
};

// The name in checkpoints of what only one of several replica groups has: "exp_avg of group 2".
std::string name_of_group(const std::string& state, int group);
// Under which a state of the optimizer is saved: every group's, or its own where groups do not train by themselves.
std::vector<std::string> saved_names(const std::string& state, const std::optional<LocalTraining>& local);
// Checkpoint name of the outer momentum.
inline constexpr const char* outer_momentum = "outer_momentum";

// Reads what an entry holds, however the run that saved it was cut, and rounds the weights into the parameter. Returns
// the bytes read. `pending`: the kept gradient too. `local`: the optimizer's state is that of this rank's replica
// group.
std::uint64_t read_entry(const checkpoint::RangeSource& source, state::OptimizerState& state,
                         const state::OptimizerState::Entry& entry, bool pending, const LocalTraining* local = nullptr);
// Reads the master weights of this rank's replica group, where they are not the common ones. Returns the bytes read.
std::uint64_t read_master_of_group(const checkpoint::RangeSource& source, state::OptimizerState& state,
                                   const state::OptimizerState::Entry& entry, const LocalTraining& local);

}  // namespace strata::runtime
