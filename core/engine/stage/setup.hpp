// What the parts of a stage are built from.
#pragma once
#include <strata/mesh.hpp>
#include <strata/model.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "group/group_provider.hpp"
#include "stage/layer_time.hpp"
#include "stage/plugin_set.hpp"

namespace strata::stage {

// Number of this process among the processes of the run.
struct RankNumbers {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
};

// Purpose of a session. Evaluation: every parameter is frozen, so there is no gradient and no optimizer state; only
// Session::evaluate() works.
enum class Purpose { Training, Evaluation };

// Source of a model's sizes (config.json) and weights (files).
struct ModelSource {
  std::string config = {};  // text of a Hugging Face config.json; empty: the config has the sizes
  // Check before memory is allocated. Throws UserError, on all ranks alike, if the files hold another model's weights.
  std::function<void(const Model& model, const std::vector<LayerInfo>& layers)> check_layers = {};
};

// Place of a rank in the run's mesh, and the shape of its micro-batches.
struct RankPlace {
  RankPlace(const RankNumbers& numbers, const config::RunConfig& config, const PluginSet& plugins);

  int rank;
  int local_rank;
  MeshShape mesh;
  MeshPlace coordinates;
  BatchShape batch;

  int stage() const { return coordinates.at(Axis::Pipeline); }
  int tensor_ranks() const { return mesh.size(Axis::Tensor); }
  // Returns the valid tokens that this rank counts for the run, out of those it read: several ranks read the same ones.
  std::int64_t counted(std::int64_t valid_tokens) const {
    return std::ranges::all_of(axes_where(&AxisInfo::same_tokens), [&](Axis axis) { return coordinates.at(axis) == 0; })
               ? valid_tokens
               : 0;
  }
};

struct Setup {
  const config::RunConfig& config;
  PluginSet& plugins;
  group::GroupProvider& groups;
  const RankPlace place;
  const ModelSource& source;
  Purpose purpose;
  // Times of the layers, if known; otherwise a run whose config cuts by time measures them, and a dry run counts
  // operations.
  const std::vector<LayerTime>& measured;
  bool dry_run;  // tensors are on meta, and groups only count

  bool trains() const { return purpose == Purpose::Training; }
};

// Shuts plugins down before the objects that they use are destroyed, also when a later constructor throws. The last
// member of what owns such objects.
class PluginsStop {
 public:
  // `first`: shuts down this plugin and those created after it; null: all.
  explicit PluginsStop(const Setup& setup, const Plugin* first = nullptr)
      : plugins_(setup.plugins), groups_(setup.groups), first_(first) {}
  ~PluginsStop();
  PluginsStop(const PluginsStop&) = delete;
  PluginsStop& operator=(const PluginsStop&) = delete;

 private:
  PluginSet& plugins_;
  group::GroupProvider& groups_;
  const Plugin* first_;
};

}  // namespace strata::stage
