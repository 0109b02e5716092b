// Saves the values of a run's plugins: plugins.safetensors for those that all ranks have alike, which rank 0 writes,
// and a file of each rank for the rest.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/plugin_state.hpp"
#include "step/plugin_set.hpp"
#include "step/stage.hpp"

namespace strata::runtime {

// What each plugin saves, without the bytes, in the set's order. Calls save() of each.
std::vector<checkpoint::MeasuredState> measure_plugins(const PluginSet& plugins, int rank);

// By plugin: whether all ranks saved the same values, rank_bytes aside. [collective] over `world`
std::vector<bool> alike_on_all_ranks(const std::vector<checkpoint::MeasuredState>& states, Group& world,
                                     at::Device device);

// One rank's files, written plugin by plugin.
class PluginFiles {
 public:
  // `states` and `alike`: of the two functions above. `plugins` outlives it. Throws EnvironmentError.
  PluginFiles(const std::filesystem::path& folder, const PluginSet& plugins, const StageState& stage,
              const std::vector<checkpoint::MeasuredState>& states, const std::vector<bool>& alike);

  // Writes one plugin's bytes. True if there are more. Throws EnvironmentError.
  bool advance();

  // After the last: the files, which have no bytes where there is none.
  const checkpoint::SavedFile& shared() const { return shared_saved_; }
  const checkpoint::SavedFile& own() const { return own_saved_; }

 private:
  const PluginSet& plugins_;
  int rank_;
  std::optional<checkpoint::PluginFileWriter> shared_, own_;
  std::vector<bool> of_all_;
  std::size_t next_ = 0;
  checkpoint::SavedFile shared_saved_, own_saved_;
};

}  // namespace strata::runtime
