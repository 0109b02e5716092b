// A config with every question answered:
// typed, complete, no `auto` left.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/batch.hpp"
#include "config/plugin_source.hpp"
#include "config/schema.hpp"
#include "config/tree.hpp"

namespace strata::config {

// A plugin that the config names, with its options: all of them, defaults filled in.
struct PluginChoice {
  std::string slot;    // where it is named: "partitioner", "offload.optimizer"
  std::string kind;    // "partitioner", "offload"
  std::string plugin;  // as written: a name or the absolute path of a library
  std::string name;    // from its manifest
  OptionValues options;
  Place place;
  Place options_place = {};  // of the first option that is given, else `place`: what the plugin refuses stands there
  std::vector<std::string> given = {};  // the options that the config says; the others are at their defaults
};

struct ModelConfig {
  PluginChoice plugin;
  std::string init;  // a folder; empty: random initial weights
  std::int64_t seq_len = 0;
};

enum class DataOrder { Sequential, Shuffled, Own };  // Own: the data plugin's

struct DataConfig {
  PluginChoice plugin;
  std::string path;  // empty: no data, and no plugin is made
  DataOrder order = DataOrder::Sequential;
};

// Tokens that a training is measured on.
struct ValidationConfig {
  DataConfig data;           // without a path there is no validation; always sequential
  std::int64_t every = 0;    // steps; 0: at the end only
  std::int64_t samples = 0;  // at most; 0: all
};

struct TrainConfig {
  std::int64_t steps = 0;
  std::int64_t micro_batch = 0;   // samples
  std::int64_t accumulation = 0;  // micro-batches per step
  std::int64_t global_batch = 0;  // samples: micro_batch x accumulation x parallel.data
  double clip = 0;                // 0: no clipping
  std::int64_t seed = 0;
  std::int64_t log_every = 0;
};

// Which layers keep only their input and compute their activations again in backward.
struct RecomputedLayers {
  bool all = false;
  std::vector<std::int64_t>
      layers;  // sorted; not compared with the model's number of layers, which the config does not know
  bool covers(std::int64_t layer) const;
};

struct OffloadConfig {
  std::optional<PluginChoice> optimizer;  // optimizer state and master weights
};

// Saved states of the run.
struct CheckpointConfig {
  std::string path;        // a folder; empty: none are saved
  std::int64_t every = 0;  // steps; 0: only at the end and when the run is stopped
  std::int64_t keep = 0;   // 0: all
};

struct LearningRateConfig {
  PluginChoice plugin;
  std::optional<double> base;  // nothing where the config does not give it
  std::int64_t warmup = 0;     // steps
  Place place;                 // of what the config says of the plugin, else the config's: what it refuses stands there
};

// How the parameters with these names are trained; empty: as the config says of all, or an earlier rule of them.
struct ParameterRule {
  std::vector<std::string> match;  // shell globs
  std::optional<bool> trainable;
  std::optional<double> learning_rate_factor;  // a learning rate of its own is one too: its part of learning_rate.base
  std::optional<double> weight_decay;
  std::string path;  // "parameters[0]"
  Place place;
};

struct CommunicatorConfig {
  PluginChoice plugin;
  double timeout_s = 0;
};

// One line of `strata config show`.
struct Resolved {
  std::string path;
  std::string value;
  std::string origin;
};

struct RunConfig {
  std::int64_t world_size = 1;
  std::string plugin_path;
  PluginChoice device;
  ModelConfig model;
  DataConfig data;
  ValidationConfig validation;
  TrainConfig train;
  LearningRateConfig learning_rate;
  ParallelSizes parallel;
  PluginChoice partitioner;
  PluginChoice precision;
  PluginChoice scheduler;
  PluginChoice optimizer;
  std::vector<ParameterRule> parameters;
  RecomputedLayers recompute;
  OffloadConfig offload;
  CommunicatorConfig communicator;
  CheckpointConfig checkpoint;
  std::string export_path;  // empty: none
  std::string metrics_csv;  // a folder; empty: none
  std::vector<Resolved> listing;

  std::vector<const PluginChoice*> plugins() const;  // all that are named, the device first
};

struct World {
  std::int64_t size = 1;
  std::string origin = "one process";  // "--nproc", "torchrun"
  std::optional<bool> one_host;        // whether all ranks are on one; nothing when the launcher does not say
  bool starts_ranks = false;           // this process starts or plans for them all, and decides for them by free memory

  // Of `strata train --nproc` and its like.
  static World started_here(std::int64_t ranks) { return {ranks, "--nproc", true, true}; }
  bool on_one_host() const { return size == 1 || one_host.value_or(false); }
};

// The trees to resolve, the weakest first: defaults.yaml, the file, all `--set` arguments as one.
std::vector<Node> read_layers(const std::string& file, const std::vector<std::string>& settings);

// All `--set` arguments as one tree; the later of two for one key wins. Throws UserError.
Node read_settings(const std::vector<std::string>& settings);

// What the layers say about plugin_path: needed before there can be a PluginSource.
std::string plugin_path(const std::vector<Node>& layers);

// Merges the layers, later ones winning, and types, derives and checks everything. A plugin's options may stand beside
// `plugin:` (the short form) or in a section of the plugin's name; sections of plugins that are not chosen are checked
// and have no effect, so the choice can be changed with one --set. `NAME` alone is short for `{plugin: NAME}`. With
// DataSection::Optional the config may leave data.path out, and data.path is then empty. Throws UserError with place,
// path, value, rule.
enum class DataSection { Required, Optional };
RunConfig resolve(std::vector<Node> layers, const World& world, const PluginSource& plugins,
                  DataSection data = DataSection::Required);

}  // namespace strata::config
