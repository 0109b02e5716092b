#include "config/conflicts.hpp"

#include <fmt/format.h>
#include <strata/error.hpp>

namespace strata::config {
namespace {

using namespace features;

// Conflicts that the config and the manifests decide come first: they are found before anything is loaded.
constexpr Conflict table[]{
    {sequence_parallel, no_tensor_axis, "the ranks of a tensor group share the tokens"},
    {partitioned_inputs, no_tensor_axis, "saved inputs are sharded over the ranks of a tensor group"},
    {partitioned_inputs, sequence_parallel, "each rank has only its part of the layers' inputs already"},
    {partitioned_inputs, no_recomputation, "only the saved inputs of recomputed layers are sharded"},
    {offload_activations, no_recomputation, "only the inputs of recomputed layers leave the device"},
    {own_order, no_own_order, "only a data plugin can have another order than the engine's"},
    {separate_documents, own_order, "the data plugin's own order makes its samples itself"},
    {automatic_offload, speculative, "a speculative step keeps everything on the device"},
    {automatic_offload, local, "weights and optimizer state stay on the device, where weights are averaged"},
    {automatic_offload, measured_cut, "every start would cut the stages anew, and the homes were chosen for others"},
    {split_backward, whole_backward, "the gradients of most weights could not wait"},
    {offload_parameters, keeps_parameters, "parameters can rest elsewhere only between their uses"},
    {tensor_parallel, layers_not_shared, "the ranks of a tensor group compute each layer together"},

    {offload_optimizer, speculative,
     "a speculative step keeps two copies of its state on the device; with plain, updates by state on a disk are made "
     "in "
     "the next step, without speculation",
     true},
    {offload_parameters, speculative, "a speculative step keeps two copies of its state on the device", true},
    {offload_activations, speculative, "a speculative step keeps the inputs of the next one on the device", true},
    {measured_precision, speculative, "a speculative step does not wait for the end of the one before", true},

    {no_replicas, local, "local training needs groups of ranks that together hold one full copy of the weights", true},
    {one_replica, local, "weights are averaged over two groups or more", true},
    {needs_sums, local, "the ranks of a stage belong to several groups, which train independently", true},
    {trains_elsewhere, local, "local training averages the master weights", true},
    {offload_parameters, local, "weights are averaged on the device", true},
    {offload_optimizer, local, "weights are averaged on the device", true},

    {policy_other_than_plain, updates_within_step, "no update is left for the end of the step or the next one", true},
    {clipping, updates_within_step, "no stage knows the norm of the whole gradient before its update", true},
    {loss_scale_search, updates_within_step, "an update is made before any stage knows of an overflow on another",
     true},
    {releases_parameters, updates_within_step, "micro-batches in flight compute with copies of whole parameters", true},
    {offload_parameters, updates_within_step, "gradients and state would travel for every update", true},
    {offload_optimizer, updates_within_step, "gradients and state would travel for every update", true},
    {separate_documents, updates_within_step, "each update takes the mean over its tokens, so every token must count",
     true},
    {shared_over_chunks, updates_within_step,
     "its gradient would have to be summed over stages that do not wait for each other", true},

    {cuts_state, separate_own_exchange, "every rank trains at weights of its own, and needs every element", true},
    {sums_gradients, own_exchange, "every rank needs its own gradient of every element", true},
    {clipping, own_exchange, "without a sum of gradients the norm of the whole gradient is unknown", true},
    {policy_other_than_plain, own_exchange, "an update follows its own gradient", true},
    {updates_within_step, own_exchange, "the number of updates decides for a whole step what is sent", true},
    {offload_optimizer, own_exchange, "ranks update the same pieces at the same time, from the device", true},
};

// True if the config alone decides this conflict, which is then checked when the config is read. A run changes its
// config later: offload.automatic may set offload.activations without recomputation.
bool is_decided_by_config(const Conflict& conflict, const Facts& facts) {
  return !conflict.in_training_only && !refusal(conflict, {facts.config}).empty();
}

}  // namespace

std::span<const Conflict> conflicts() {
  return table;
}

std::string refusal(const Conflict& conflict, const Facts& facts) {
  if (conflict.in_training_only && facts.answers == nullptr) return "";
  const std::string first = conflict.first.found(facts), second = conflict.second.found(facts);
  if (first.empty() || second.empty()) return "";
  return fmt::format("{}, and {}: {}; {}, or {}", first, second, conflict.reason, conflict.first.remedy,
                     conflict.second.remedy);
}

void check_conflicts(const Facts& facts, const std::function<Place(std::string_view key)>& place_of) {
  for (const Conflict& conflict : table) {
    if (facts.answers != nullptr && is_decided_by_config(conflict, facts)) continue;
    const std::string text = refusal(conflict, facts);
    if (text.empty()) continue;
    Place place = place_of ? place_of(conflict.first.key) : Place();
    if (place_of && place.file.empty()) place = place_of(conflict.second.key);
    throw UserError(place, text);
  }
}

}  // namespace strata::config
