// Saves the values of a run's plugins: values equal on all ranks in plugins.safetensors, written by rank 0, and the
// rest in a file of each rank.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/plugin_state.hpp"
#include "stage/plugin_set.hpp"
#include "stage/stage.hpp"

namespace strata::checkpoint {

// Returns each plugin's saved values, without the bytes, in the set's order. Calls save() of each.
std::vector<MeasuredState> measure_plugins(const stage::PluginSet& plugins, int rank);

// Returns by plugin true if all ranks saved equal values, except rank_bytes. [collective] over `world`
std::vector<bool> alike_on_all_ranks(const std::vector<MeasuredState>& states, Group& world, at::Device device);

// The files of one rank, written plugin by plugin.
class PluginFiles {
 public:
  // Opens the files. `states` and `alike`: see the functions above. `plugins` outlives it. Throws EnvironmentError.
  PluginFiles(const std::filesystem::path& folder, const stage::PluginSet& plugins, const stage::Stage& stage,
              const std::vector<MeasuredState>& states, const std::vector<bool>& alike);

  // Writes one plugin's bytes. True if there are more. Throws EnvironmentError.
  bool advance();

  // Returns the files, after the last advance(); 0 bytes: no file.
  const SavedFile& shared() const { return shared_saved_; }
  const SavedFile& own() const { return own_saved_; }

 private:
  const stage::PluginSet& plugins_;
  int rank_;
  std::optional<PluginFileWriter> shared_, own_;
  std::vector<bool> of_all_;
  std::size_t next_ = 0;
  SavedFile shared_saved_, own_saved_;
};

}  // namespace strata::checkpoint
