// The resolved config: typed, complete, without `auto`.
//
// A key of the engine is described here, once, in the list of its section:
//   KEY(type, member, path, default, limits, unit, effect, documentation)
// becomes the member of the section's struct and, in keys.cpp, everything else about a key (see keys.hpp). To add a
// key, add a row and use the member. Types and limits are those of a plugin's options, <strata/options.hpp>; default
// and effect those of keys.hpp.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/batch.hpp"
#include "config/keys.hpp"
#include "config/plugin_source.hpp"
#include "config/schema.hpp"
#include "config/tree.hpp"

namespace strata::config {

// A plugin that the config names, with all its options, defaults filled in.
struct PluginChoice {
  std::string slot;    // slot that names it: "partitioner", "offload.optimizer"
  std::string kind;    // "partitioner", "offload"
  std::string plugin;  // as written: a name or the absolute path of a library
  std::string name;    // name in its manifest
  OptionValues options;
  Place place;
  Place options_place = {};  // place of the first given option, otherwise `place`; errors of the plugin name it
  std::vector<std::string> given = {};        // names of the options that the config sets
  std::vector<Capability> capabilities = {};  // of its manifest
  bool can(Capability capability) const;
  std::string full_name() const { return kind + "/" + name; }  // "partitioner/zero3", as messages name it
};

// Member made from a row of a list.
#define STRATA_KEY_MEMBER(type, member, path, value, limits, unit, effect, documentation) \
  STRATA_OPTION_TYPE_##type member{};

#define STRATA_MODEL_KEYS(KEY)                                                                                         \
  KEY(text, init, "model.init", "", "", "", same_content(Affects::Files),                                              \
      "folder of initial weights in Hugging Face format (config.json, model.safetensors); empty: random weights from " \
      "train.seed")                                                                                                    \
  KEY(integer, seq_len, "model.seq_len", required, "min=1,max=1e9", "tokens", Affects::Samples, "tokens per sample")

struct ModelConfig {
  PluginChoice plugin;
  STRATA_MODEL_KEYS(STRATA_KEY_MEMBER)
};

#define STRATA_DATA_ORDERS "sequential|shuffled|own"
enum class DataOrder { Sequential, Shuffled, Own };  // Own: the order of the data plugin

struct DataConfig {
  PluginChoice plugin;
  std::string path;  // empty: no data, and no plugin is made
  DataOrder order = DataOrder::Sequential;
  // Token that ends a document, with documents: separate, where each sample holds tokens of one document; empty with
  // packed.
  std::optional<std::int64_t> document_end = {};
};

// Keys of validation, on tokens that are not trained on.
#define STRATA_VALIDATION_KEYS(KEY)                                                                            \
  KEY(integer, every, "validation.every", "0", "min=0,max=1e12", "steps", Affects::Nothing,                    \
      "steps between validations; 0: only at the end")                                                         \
  KEY(integer, samples, "validation.samples", automatic("all"), "min=1,max=1e15", "samples", Affects::Nothing, \
      "number of samples to evaluate, from the start of the file")

struct ValidationConfig {
  DataConfig data;                           // validation data; no path: no validation; always sequential
  STRATA_VALIDATION_KEYS(STRATA_KEY_MEMBER)  // samples 0: all samples
};

// Keys of training. A missing one of the three batch sizes is derived from the others: batch.hpp.
#define STRATA_TRAIN_KEYS(KEY)                                                                                     \
  KEY(integer, steps, "train.steps", required, "min=1,max=1e12", "steps", Affects::Numbers,                        \
      "total number of optimizer steps")                                                                           \
  KEY(integer, micro_batch, "train.micro_batch", automatic("global_batch / (accumulation x data-parallel ranks)"), \
      "min=1,max=1e9", "samples", Affects::Numbers, "samples per forward pass of one rank")                        \
  KEY(integer, accumulation, "train.accumulation",                                                                 \
      automatic("global_batch / (micro_batch x data-parallel ranks); 1 if only one of the two is given"),          \
      "min=1,max=1e9", "micro-batches", Affects::Numbers, "micro-batches per optimizer step")                      \
  KEY(integer, global_batch, "train.global_batch", automatic("micro_batch x accumulation x data-parallel ranks"),  \
      "min=1,max=1e12", "samples", Affects::Samples, "samples per optimizer step over all ranks")                  \
  KEY(number, clip, "train.clip", "1.0", "min=0", "", Affects::Numbers,                                            \
      "maximum gradient norm; gradients with a larger norm are scaled down to it. 0: no clipping")                 \
  KEY(integer, seed, "train.seed", "1", "min=0", "", Affects::Samples,                                             \
      "random seed of initial weights, dropout and sample order")                                                  \
  KEY(integer, log_every, "train.log_every", "1", "min=0", "steps", Affects::Nothing,                              \
      "steps between progress lines; at least one line is printed every 10 s. 0: no lines")

struct TrainConfig {
  STRATA_TRAIN_KEYS(STRATA_KEY_MEMBER)
};

// Layers that save only their input and recompute their activations in backward.
struct RecomputedLayers {
  bool all = false;
  std::vector<std::int64_t> layers;  // sorted; may name layers that the model lacks, which is unknown to the config
  bool covers(std::int64_t layer) const;
};

#define STRATA_ACTIVATION_KEYS(KEY)                                                                                   \
  KEY(boolean, partitions_inputs, "activations.partition", "false", "", "", Affects::Nothing,                         \
      "sharding of the saved inputs of recomputed layers over the tensor group, with an all-gather in the backward. " \
      "Needs parallel.tensor of at least 2. Not with parallel.sequence, which already shards them")

#define STRATA_OFFLOAD_KEYS(KEY)                                                                                       \
  KEY(boolean, automatic, "offload.automatic", "false", "", "", Affects::Nothing,                                      \
      "automatic choice of those tiers, offload ratios, recomputation and scheduler that the config leaves open: a "   \
      "few steps are measured, and the fastest choice within memory_budget and device_budget is used. It does not "    \
      "change losses or weights. Short form: `offload: auto`")                                                         \
  KEY(integer, update_elements, "offload.update_elements", "8388608", "min=1,max=1e12", "elements", Affects::Nothing,  \
      "elements per chunk when updating optimizer state that is not memory-mapped (nvme) with an element-wise "        \
      "optimizer; DeepSpeed's sub_group_size")                                                                         \
  KEY(size, read_ahead, "offload.read_ahead", "256MiB", "", "bytes", Affects::Nothing,                                 \
      "size of the buffer for disk reads ahead of use, and of a second one for writes behind; each may use free "      \
      "space of the other. 0: no read-ahead")                                                                          \
  KEY(number, parameters_ratio, "offload.parameters_ratio", "1", "min=0,max=1", "", Affects::Nothing,                  \
      "fraction of the parameters to offload, in whole layers spread over the model; the rest stays on the device")    \
  KEY(number, optimizer_ratio, "offload.optimizer_ratio", "1", "min=0,max=1", "", Affects::Nothing,                    \
      "fraction of optimizer state, master weights and gradients to offload, in whole layers; DeepSpeed's ratio")      \
  KEY(number, gradients_ratio, "offload.gradients_ratio", "1", "min=0,max=1", "", Affects::Nothing,                    \
      "fraction of the gradients to offload, in whole layers, among those whose optimizer state is offloaded. "        \
      "Keeping all gradients on the device saves a quarter of the disk traffic of AdamW in fp32")                      \
  KEY(number, updates_at_end, "offload.updates_at_end", "0", "min=0,max=1", "", Affects::Nothing,                      \
      "fraction of the parameters, first layers first, to update at the end of the step if optimizer state is on a "   \
      "disk; the others are updated in the next step, before their layer. With offload.gradients_ratio: 0, the state " \
      "for the updates at the end is read ahead during the backward")                                                  \
  KEY(number, activations_ratio, "offload.activations_ratio", "1", "min=0,max=1", "", Affects::Nothing,                \
      "fraction of the inputs of recomputed layers to offload, by size, in whole layers")

struct OffloadConfig {
  std::optional<PluginChoice> parameters;
  std::optional<PluginChoice> optimizer;    // optimizer state, master weights and gradients
  std::optional<PluginChoice> activations;  // inputs of recomputed layers
  std::optional<PluginChoice> host, disk;   // homes to choose from, if the others are left open
  std::vector<std::string> given;           // keys that automatic choice may not change
  STRATA_OFFLOAD_KEYS(STRATA_KEY_MEMBER)
  std::vector<const PluginChoice*> homes() const;  // returns the homes that are given
};

// Time of the update by a step's gradient. Plain: at its end, after the norm is known. Delayed: in the next step.
// Speculative: at its end before the norm is known, and again if the norm clips or skips. Local: at its end, by the
// gradient of the rank's own group; groups average their weights every few steps.
#define STRATA_STEP_POLICIES "plain|delayed|speculative|local"
enum class StepPolicy { Plain, Delayed, Speculative, Local };

#define STRATA_LOCAL_KEYS(KEY)                                                                                         \
  KEY(integer, steps, "local.steps", "50", "min=1,max=1e9", "steps", Affects::Numbers,                                 \
      "local steps between two averagings, with step_policy: local")                                                   \
  KEY(number, rate, "local.rate", "0.7", "min=0", "", Affects::Numbers,                                                \
      "learning rate of the outer step, with step_policy: local. With local.momentum: 0, a rate of 1 sets the common " \
      "weights to the average")                                                                                        \
  KEY(number, momentum, "local.momentum", "0.9", "min=0,max=1", "", Affects::Numbers,                                  \
      "Nesterov momentum of the outer step, with step_policy: local")                                                  \
  KEY(integer, fragments, "local.fragments", "1", "min=1,max=1e6", "fragments", Affects::Numbers,                      \
      "number of model parts of similar size that are averaged at different steps, spread over local.steps, with "     \
      "step_policy: local")

struct LocalConfig {
  STRATA_LOCAL_KEYS(STRATA_KEY_MEMBER)
};

// Keys of checkpoints.
#define STRATA_CHECKPOINT_KEYS(KEY)                                                                                    \
  KEY(text, path, "checkpoint.path", "", "", "", Affects::Files,                                                       \
      "folder for checkpoints, the same for all ranks; empty: no checkpoints")                                         \
  KEY(integer, every, "checkpoint.every", "0", "min=0", "steps", Affects::Nothing,                                     \
      "steps between checkpoints; 0: no periodic checkpoints. One more is always saved at the end of the run or when " \
      "it is stopped")                                                                                                 \
  KEY(integer, keep, "checkpoint.keep", "3", "min=0", "checkpoints", Affects::Nothing,                                 \
      "number of checkpoints to keep: the newest whose values are finite. 0: all")

struct CheckpointConfig {
  STRATA_CHECKPOINT_KEYS(STRATA_KEY_MEMBER)
};

#define STRATA_LEARNING_RATE_KEYS(KEY)                                                           \
  KEY(integer, warmup, "learning_rate.warmup", "0", "min=0,max=1e12", "steps", Affects::Numbers, \
      "steps of a linear warm-up to the schedule's first rate; 0: no warm-up")

struct LearningRateConfig {
  PluginChoice plugin;
  std::optional<double> base;  // empty if the config does not set it
  STRATA_LEARNING_RATE_KEYS(STRATA_KEY_MEMBER)
  Place place;  // place of the plugin's options, or of the config; errors of the plugin name it
};

// Training settings of parameters by name. Missing settings follow an earlier rule or the config.
struct ParameterRule {
  std::vector<std::string> match;  // shell globs
  std::optional<bool> trainable;
  std::optional<double> learning_rate_factor;  // factor of learning_rate.base; also stores a rule's own learning rate
  std::optional<double> weight_decay;
  std::string path;  // "parameters[0]"
  Place place;
};

#define STRATA_COMMUNICATOR_KEYS(KEY)                                                                     \
  KEY(number, timeout_s, "communicator.timeout_s", "120", "min=0.1,max=1e6", "seconds", Affects::Nothing, \
      "time without progress on any rank after which the run ends with an error; computing counts as progress")

struct CommunicatorConfig {
  PluginChoice plugin;
  STRATA_COMMUNICATOR_KEYS(STRATA_KEY_MEMBER)
};

// Keys of the pipeline. chunks_per_stage 0: the scheduler decides.
#define STRATA_PIPELINE_KEYS(KEY)                                                                                      \
  KEY(integer, chunks_per_stage, "parallel.chunks", automatic("the number that the scheduler requests"),               \
      "min=1,max=1e6", "chunks", Affects::Numbers, "chunks of consecutive layers per pipeline stage (virtual stages)") \
  KEY(text, cut, "parallel.cut", automatic("flops, or parameters if the model reports no operation counts"), "", "",   \
      Affects::Numbers,                                                                                                \
      "criterion for balancing the layers over the chunks. flops: floating-point operations; measured: layer times, "  \
      "measured before the first step; parameters: number of parameters; layers: number of layers; names:PATTERN: "    \
      "number of layers whose names match a shell pattern, such as `names:layer*`")                                    \
  KEY(integers, layers_per_chunk, "parallel.layers_per_chunk", "[]", "min=1", "layers", Affects::Numbers,              \
      "number of layers in each chunk, in order, including embedding and head; []: determined by parallel.cut")        \
  KEY(boolean, sequence_parallel, "parallel.sequence", "false", "", "", Affects::Numbers,                              \
      "sequence parallelism: outside the matmuls, the tokens are split over the tensor group, so each rank stores "    \
      "only its part of norms and residuals. Needs parallel.tensor of at least 2")

// Keys without a section, or alone in theirs.
#define STRATA_RUN_KEYS(KEY)                                                                                         \
  KEY(text, plugin_path, "plugin_path", "", "", "", Affects::Nothing,                                                \
      "folders with plugins, separated by `:`, searched before all others")                                          \
  KEY(text, export_path, "export", "", "", "", written_by_rank_0(Affects::Files),                                    \
      "folder for the final weights in Hugging Face format; empty: no export")                                       \
  KEY(text, metrics_csv, "metrics.csv", "", "", "", written_by_rank_0(Affects::Files),                               \
      "folder for CSV files, one per metric, in the format of DeepSpeed's csv_monitor; empty: no files")             \
  KEY(size, memory_budget, "memory_budget", automatic("the device's available memory, or the host's free memory"),   \
      "min=1MiB", "bytes", Affects::Nothing,                                                                         \
      "memory per rank. It determines the micro-batch for a ds_config with batch size \"auto\", and the tiers with " \
      "offload.automatic")                                                                                           \
  KEY(size, device_budget, "device_budget", automatic("no limit below the device's memory"), "min=1MiB", "bytes",    \
      Affects::Nothing,                                                                                              \
      "device memory that a step of one rank may use, excluding what is offloaded; a run whose plan exceeds it is "  \
      "refused")

struct RunConfig {
  std::int64_t world_size = 1;
  std::string several_hosts;  // who started ranks on several hosts: "torchrun"; empty: not known to be on several
  STRATA_RUN_KEYS(STRATA_KEY_MEMBER)
  PluginChoice device;
  ModelConfig model;
  DataConfig data;
  ValidationConfig validation;
  TrainConfig train;
  LearningRateConfig learning_rate;
  ParallelSizes parallel;
  STRATA_PIPELINE_KEYS(STRATA_KEY_MEMBER)
  PluginChoice partitioner;
  PluginChoice precision;
  PluginChoice scheduler;
  PluginChoice optimizer;
  StepPolicy step_policy = StepPolicy::Plain;
  LocalConfig local;
  std::vector<ParameterRule> parameters;
  std::string parameters_text = "[]";  // the same as the config has them
  RecomputedLayers recompute;
  STRATA_ACTIVATION_KEYS(STRATA_KEY_MEMBER)
  OffloadConfig offload;
  CommunicatorConfig communicator;
  CheckpointConfig checkpoint;
  std::map<std::string, std::string> automatic;  // keys of type rule: what `auto` means
  // Origin of each value that is listed, by its path: "run.yaml:3:5", "default of optimizer/adamw". See listing.hpp.
  std::map<std::string, std::string> origins;

  std::vector<const PluginChoice*> plugins() const;  // all named plugins, the device first
};

struct World {
  std::int64_t size = 1;
  std::string origin = "one process";  // "--nproc", "torchrun"
  std::optional<bool> one_host;        // true: all ranks are on one host; empty: unknown
  bool starts_ranks = false;           // true: this process starts or plans all ranks, and may decide by free memory

  // Returns the world of commands like `strata train --nproc`.
  static World started_here(std::int64_t ranks) { return {ranks, "--nproc", true, true}; }
  bool on_one_host() const { return size == 1 || one_host.value_or(false); }
};

// Reads the trees to resolve, in increasing priority: the defaults, the file, all `--set` arguments as one.
std::vector<Node> read_trees(const std::string& file, const std::vector<std::string>& settings);

// Reads all `--set` arguments as one tree; the later of two for one key wins. Throws UserError.
Node read_settings(const std::vector<std::string>& settings);

// Returns the value of plugin_path, which is needed to open the registry before resolve.
std::string plugin_path(const std::vector<Node>& trees);

// Merges the trees, later ones winning, and types, derives and checks everything. A plugin's options may stand beside
// `plugin:` (the short form) or in a section of the plugin's name; sections of plugins that are not chosen are checked
// and have no effect, so the choice can be changed with one --set. `NAME` alone is short for `{plugin: NAME}`. With
// DataSection::Optional the config may leave data.path out, and data.path is then empty. Throws UserError with place,
// path, value, rule.
enum class DataSection { Required, Optional };
RunConfig resolve(std::vector<Node> trees, const World& world, const PluginSource& plugins,
                  DataSection data = DataSection::Required);

}  // namespace strata::config
