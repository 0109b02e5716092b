// All features that conflicts.cpp combines; a new feature is defined here.
#pragma once
#include <fmt/format.h>

#include <string>

#include "config/features.hpp"

namespace strata::config::features {
inline std::string found_if(bool found, const std::string& text) {
  return found ? text : "";
}

inline bool recomputes(const RunConfig& config) {
  return config.recompute.all || !config.recompute.layers.empty();
}

inline std::string policy_is(const Facts& facts, StepPolicy policy) {
  return found_if(facts.config.step_policy == policy,
                  "step_policy is " + choice_name(STRATA_STEP_POLICIES, static_cast<int>(policy)));
}

// A property that a plugin reports: "optimizer/lamb needs sums".
inline std::string answer(const Facts& facts, const PluginChoice RunConfig::*plugin, bool Answers::*answers,
                          const char* text, bool expected = true) {
  const bool found = facts.answers != nullptr && facts.answers->*answers == expected;
  return found_if(found, (facts.config.*plugin).full_name() + text);
}

inline const Feature automatic_offload{
    "offload: auto", "offload.automatic",
    [](const Facts& facts) { return found_if(facts.config.offload.automatic, "offload is automatic"); },
    "leave offload: auto out"};

inline const Feature offload_activations{"offload.activations", "offload.activations.plugin",
                                         [](const Facts& facts) {
                                           return found_if(facts.config.offload.activations.has_value(),
                                                           "offload.activations is set");
                                         },
                                         "leave offload.activations out"};

inline const Feature offload_optimizer{
    "offload.optimizer", "offload.optimizer.plugin",
    [](const Facts& facts) { return found_if(facts.config.offload.optimizer.has_value(), "offload.optimizer is set"); },
    "leave offload.optimizer out"};

inline const Feature offload_parameters{"offload.parameters", "offload.parameters.plugin",
                                        [](const Facts& facts) {
                                          return found_if(facts.config.offload.parameters.has_value(),
                                                          "offload.parameters is set");
                                        },
                                        "leave offload.parameters out"};

inline const Feature speculative{"step_policy: speculative", "step_policy",
                                 [](const Facts& facts) { return policy_is(facts, StepPolicy::Speculative); },
                                 "set step_policy: plain or delayed"};

inline const Feature local{"step_policy: local", "step_policy",
                           [](const Facts& facts) { return policy_is(facts, StepPolicy::Local); },
                           "set step_policy: plain"};

inline const Feature policy_other_than_plain{"step_policy: delayed, speculative or local", "step_policy",
                                             [](const Facts& facts) {
                                               return found_if(facts.config.step_policy != StepPolicy::Plain,
                                                               "step_policy is not plain");
                                             },
                                             "set step_policy: plain"};

inline const Feature measured_cut{
    "parallel.cut: measured, with several stages", "parallel.cut",
    [](const Facts& facts) {
      const RunConfig& config = facts.config;
      return found_if(config.cut == "measured" && config.parallel.size(Axis::Pipeline) > 1, "parallel.cut is measured");
    },
    "set parallel.cut: flops or parameters, or give parallel.layers_per_chunk"};

inline const Feature no_tensor_axis{
    "parallel.tensor: 1", "parallel.tensor",
    [](const Facts& facts) { return found_if(facts.config.parallel.size(Axis::Tensor) == 1, "parallel.tensor is 1"); },
    "set parallel.tensor to at least 2"};

inline const Feature tensor_parallel{"parallel.tensor above 1", "parallel.tensor",
                                     [](const Facts& facts) {
                                       const std::int64_t size = facts.config.parallel.size(Axis::Tensor);
                                       return found_if(size > 1, fmt::format("parallel.tensor is {}", size));
                                     },
                                     "set parallel.tensor: 1"};

inline const Feature sequence_parallel{
    "parallel.sequence", "parallel.sequence",
    [](const Facts& facts) { return found_if(facts.config.sequence_parallel, "parallel.sequence is true"); },
    "leave parallel.sequence out"};

inline const Feature no_recomputation{
    "activations.checkpoint: none", "activations.checkpoint",
    [](const Facts& facts) { return found_if(!recomputes(facts.config), "activations.checkpoint is none"); },
    "set activations.checkpoint: all, or name layers"};

inline const Feature partitioned_inputs{
    "activations.partition", "activations.partition",
    [](const Facts& facts) { return found_if(facts.config.partitions_inputs, "activations.partition is true"); },
    "leave activations.partition out"};

inline const Feature own_order{
    "data.order: own", "data.order",
    [](const Facts& facts) { return found_if(facts.config.data.order == DataOrder::Own, "data.order is own"); },
    "set data.order: sequential or shuffled"};

inline const Feature no_own_order{"a data plugin without own_order", "data.plugin",
                                  [](const Facts& facts) {
                                    const PluginChoice& plugin = facts.config.data.plugin;
                                    return found_if(!plugin.can(Capability::OwnOrder),
                                                    plugin.full_name() + " has no order of its own");
                                  },
                                  "choose a data plugin that declares own_order"};

inline const Feature separate_documents{"data.documents: separate", "data.documents",
                                        [](const Facts& facts) {
                                          return found_if(facts.config.data.document_end.has_value(),
                                                          "data.documents is separate");
                                        },
                                        "set data.documents: packed"};

inline const Feature clipping{"train.clip above 0", "train.clip",
                              [](const Facts& facts) {
                                const double clip = facts.config.train.clip;
                                return found_if(clip > 0.0, fmt::format("train.clip is {:g}", clip));
                              },
                              "set train.clip: 0"};

inline const Feature loss_scale_search{"a precision policy that searches for its loss scale", "precision.plugin",
                                       [](const Facts& facts) {
                                         return answer(facts, &RunConfig::precision, &Answers::searches_scale,
                                                       " finds its loss scale by skipping steps that overflow");
                                       },
                                       "set a static loss scale or choose a precision without one"};

inline const Feature measured_precision{"a precision policy that measures", "precision.plugin",
                                        [](const Facts& facts) {
                                          return answer(facts, &RunConfig::precision, &Answers::measures,
                                                        " uses measurements of the previous step");
                                        },
                                        "choose precision options without measurements"};

inline const Feature split_backward{
    "a scheduler with splits_backward", "scheduler.plugin",
    [](const Facts& facts) {
      const PluginChoice& plugin = facts.config.scheduler;
      return found_if(plugin.can(Capability::SplitsBackward),
                      plugin.full_name() + " computes the gradients of inputs and of weights separately");
    },
    "choose a scheduler that does not split the backward"};

inline const Feature whole_backward{"a model without splittable_backward", "model.plugin",
                                    [](const Facts& facts) {
                                      const PluginChoice& plugin = facts.config.model.plugin;
                                      return found_if(!plugin.can(Capability::SplittableBackward),
                                                      plugin.full_name() + " does not declare splittable_backward");
                                    },
                                    "choose a model whose weights are linear_only"};

inline const Feature layers_not_shared{"a model without tensor_parallel", "model.plugin",
                                       [](const Facts& facts) {
                                         const PluginChoice& plugin = facts.config.model.plugin;
                                         return found_if(!plugin.can(Capability::TensorParallel),
                                                         plugin.full_name() + " does not share its layers over ranks");
                                       },
                                       "choose a model that declares tensor_parallel"};

inline const Feature keeps_parameters{"a partitioner without releases_parameters", "partitioner.plugin",
                                      [](const Facts& facts) {
                                        const PluginChoice& plugin = facts.config.partitioner;
                                        return found_if(!plugin.can(Capability::ReleasesParameters),
                                                        plugin.full_name() + " keeps parameters on the device");
                                      },
                                      "choose a partitioner that declares releases_parameters"};

inline const Feature releases_parameters{
    "a partitioner that releases parameters", "partitioner.plugin",
    [](const Facts& facts) {
      return answer(facts, &RunConfig::partitioner, &Answers::releases_parameters,
                    " releases parameters between two uses");
    },
    "choose a partitioner that keeps parameters whole (ZeRO stage 1 or 2, or plain data parallelism)"};

inline const Feature no_replicas{
    "a partitioner without replicas", "partitioner.plugin",
    [](const Facts& facts) {
      return found_if(
          facts.answers != nullptr && facts.answers->replica_groups == std::optional(0),
          "with its options, " + facts.config.partitioner.full_name() + " has no two ranks that own the same slices");
    },
    "choose a partitioner that shards inside groups and replicates across them"};

inline const Feature one_replica{
    "one group of data-parallel ranks", "partitioner.plugin",
    [](const Facts& facts) {
      return found_if(facts.answers != nullptr && facts.answers->replica_groups == std::optional(1),
                      fmt::format("{} makes one group of the {} data-parallel ranks",
                                  facts.config.partitioner.full_name(), facts.config.parallel.mesh.data_parallel()));
    },
    "use smaller groups or more ranks"};

inline const Feature sums_gradients{"a partitioner that cannot leave each rank its own gradient", "partitioner.plugin",
                                    [](const Facts& facts) {
                                      return answer(facts, &RunConfig::partitioner, &Answers::leaves_gradients,
                                                    " cannot leave gradients unreduced", false);
                                    },
                                    "choose a partitioner that can leave gradients unreduced"};

inline const Feature cuts_state{"a partitioner that shards optimizer state", "partitioner.plugin",
                                [](const Facts& facts) {
                                  return answer(facts, &RunConfig::partitioner, &Answers::owns_all,
                                                " shards optimizer state", false);
                                },
                                "choose a partitioner in which every rank owns every element"};

inline const Feature needs_sums{"an optimizer that needs sums", "optimizer.plugin",
                                [](const Facts& facts) {
                                  return answer(facts, &RunConfig::optimizer, &Answers::needs_sums,
                                                " needs sums over the ranks of a stage");
                                },
                                "choose an optimizer that updates each piece independently"};

inline const Feature trains_elsewhere{"an optimizer that trains at other weights than its masters", "optimizer.plugin",
                                      [](const Facts& facts) {
                                        return answer(facts, &RunConfig::optimizer, &Answers::trains_elsewhere,
                                                      " trains at other weights than its masters");
                                      },
                                      "choose an optimizer that trains at its masters"};

inline const Feature own_exchange{"an optimizer that does its own communication", "optimizer.plugin",
                                  [](const Facts& facts) {
                                    return answer(facts, &RunConfig::optimizer, &Answers::exchanges,
                                                  " does its own communication");
                                  },
                                  "choose another optimizer"};

inline const Feature separate_own_exchange{
    "an optimizer that does its own communication and trains at other weights than its masters", "optimizer.plugin",
    [](const Facts& facts) {
      return trains_elsewhere.found(facts).empty() ? std::string() : own_exchange.found(facts);
    },
    "choose another optimizer"};

inline const Feature split_units{
    "an optimizer with units that span parts of the tensor group", "optimizer.plugin",
    [](const Facts& facts) {
      const bool found = facts.answers != nullptr && !facts.answers->split_unit.empty();
      return found_if(found, found ? facts.config.optimizer.full_name() + " " + facts.answers->split_unit : "");
    },
    "choose an optimizer that updates each element by itself"};

inline const Feature one_host{"a communicator with one_host", "communicator.plugin",
                              [](const Facts& facts) {
                                const PluginChoice& communicator = facts.config.communicator.plugin;
                                return found_if(communicator.can(Capability::OneHost),
                                                communicator.full_name() + " connects ranks of one host only");
                              },
                              "leave communicator.plugin out, or choose one that connects hosts"};

inline const Feature several_hosts{"ranks on several hosts", "communicator.plugin",
                                   [](const Facts& facts) {
                                     return found_if(!facts.config.several_hosts.empty(),
                                                     fmt::format("this run's {} ranks ({}) are on several",
                                                                 facts.config.world_size, facts.config.several_hosts));
                                   },
                                   "start all ranks on one host"};

inline const Feature updates_within_step{"a scheduler that updates within the step", "scheduler.plugin",
                                         [](const Facts& facts) {
                                           return answer(facts, &RunConfig::scheduler, &Answers::updates_within_step,
                                                         " updates within the step");
                                         },
                                         "choose another scheduler"};

inline const Feature shared_over_chunks{
    "a trained parameter that layers of several chunks use", "parallel.pipeline",
    [](const Facts& facts) {
      const bool found = facts.answers != nullptr && !facts.answers->shared_over_chunks.empty();
      return found_if(found, found ? fmt::format("the parameter {} is used by layers of several chunks",
                                                 facts.answers->shared_over_chunks)
                                   : "");
    },
    "freeze it or untie it, or set parallel.pipeline: 1"};

}  // namespace strata::config::features
