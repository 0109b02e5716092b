#include "config/conflicts.hpp"

#include <fmt/format.h>
#include <strata/error.hpp>

#include "config/feature_list.hpp"

namespace strata::config {
namespace {

using namespace features;

// Conflicts that the config and the manifests decide come first: they are found before anything is loaded.
constexpr Conflict table[]{
    {sequence_parallel, no_tensor_axis, "the ranks of a tensor group share the tokens"},
    {partitioned_inputs, no_tensor_axis, "saved inputs are sharded over the ranks of a tensor group"},
    {partitioned_inputs, sequence_parallel, "the layers' inputs are already sharded over the tensor group"},
    {partitioned_inputs, no_recomputation, "only the saved inputs of recomputed layers are sharded"},
    {offload_activations, no_recomputation, "only the inputs of recomputed layers leave the device"},
    {one_host, several_hosts, "ranks on different hosts would have no connection"},
    {own_order, no_own_order, "this order is defined by a data plugin"},
    {separate_documents, own_order, "the plugin's own order decides which tokens a sample holds"},
    {automatic_offload, speculative, "a speculative step keeps everything on the device"},
    {automatic_offload, local, "weights and optimizer state stay on the device, where weights are averaged"},
    {automatic_offload, measured_cut,
     "every start measures and cuts the stages again, and the placement was chosen for other stages"},
    {split_backward, whole_backward, "such a model computes the gradients of inputs and weights together"},
    {offload_parameters, keeps_parameters, "only parameters that are released between their uses can be offloaded"},
    {tensor_parallel, layers_not_shared, "the ranks of a tensor group compute each layer together"},

    {offload_optimizer, speculative,
     "a speculative step keeps two copies of its state on the device; with plain, updates of offloaded state overlap "
     "with the next step without speculation",
     true},
    {offload_parameters, speculative, "a speculative step keeps two copies of its state on the device", true},
    {offload_activations, speculative, "a speculative step keeps the inputs of the next one on the device", true},
    {measured_precision, speculative,
     "a speculative step starts before the measurements of the previous step are complete", true},

    {no_replicas, local, "local training needs groups of ranks that together hold one full copy of the weights", true},
    {one_replica, local, "weights are averaged over two groups or more", true},
    {needs_sums, local, "the ranks of a stage belong to several groups, which train independently", true},
    {trains_elsewhere, local, "local training averages the master weights", true},
    {offload_parameters, local, "weights are averaged on the device", true},
    {offload_optimizer, local, "weights are averaged on the device", true},

    {policy_other_than_plain, updates_within_step, "all updates are made within the step", true},
    {clipping, updates_within_step, "the norm of the whole gradient is known only after the updates", true},
    {loss_scale_search, updates_within_step, "a stage makes its update before an overflow on another stage is known",
     true},
    {releases_parameters, updates_within_step, "micro-batches in flight compute with copies of whole parameters", true},
    {offload_parameters, updates_within_step, "gradients and state would be transferred for every update", true},
    {offload_optimizer, updates_within_step, "gradients and state would be transferred for every update", true},
    {separate_documents, updates_within_step, "each update uses the mean over its tokens, so every token must count",
     true},
    {shared_over_chunks, updates_within_step,
     "its gradient would have to be summed over stages that do not wait for each other", true},

    {cuts_state, separate_own_exchange, "each rank trains at its own weights and needs all elements", true},
    {sums_gradients, own_exchange, "each rank needs its own, unreduced gradient of all elements", true},
    {clipping, own_exchange, "gradients are not summed, so the norm of the whole gradient is unknown", true},
    {policy_other_than_plain, own_exchange, "each update uses the gradient of its own step", true},
    {updates_within_step, own_exchange, "the kind of exchange is chosen once per step", true},
    {offload_optimizer, own_exchange, "all ranks update the same pieces at the same time, on the device", true},

    {tensor_parallel, split_units, "no rank would have all elements of such a unit", true},
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
