// Another system's config, read in Strata's keys. The engine knows none by itself: a program adds those that it
// accepts.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::config {

// What one key did.
struct DialectLine {
  std::string origin;  // "ds_config.json:3", or why there is a line without a key
  std::string key;
  std::string value;         // as written
  std::string text;          // "partitioner.plugin = zero3", or why there is nothing to do
  int number = 0;            // of the file's line; 0: not in the file
  std::string derived = {};  // a key of ours that follows from others; say_derived writes its value
  std::string one_line() const;
};

// Values that depend on the model or on the machine, for a config that leaves them open.
struct DialectAnswers {
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> micro_batch;  // divides Translation::automatic_batch
  std::string micro_batch_origin;           // how it was found
};

struct Translation {
  std::vector<DialectLine> lines;  // in the file's order, then what it does not say
  bool asks_hidden_size = false;   // a value depends on it, and the answers lack it
  // Samples of a device in one pass where the batch is left open: any divisor of it may be the micro-batch, and
  // accumulation makes up the rest, so that training is the same. 0: the file gives a batch.
  std::int64_t automatic_batch = 0;
  Place automatic_batch_place;
};

// Call it after resolve: completes the lines of keys that follow from others (DialectLine::derived).
void say_derived(Translation& translation, const std::vector<Resolved>& listing);

class Dialect {
 public:
  virtual ~Dialect() = default;
  virtual bool recognises(const Node& config) const = 0;
  // Puts the translation of trees[1] in its place. trees[0] are the defaults; trees[2], if there is one, are
  // settings, which win over the file. Throws UserError: place, key, value, reason, what to use instead.
  virtual Translation translate(std::vector<Node>& trees, const PluginSource& plugins,
                                const DialectAnswers& answers) const = 0;
  // Finds what `translation`, with which `run` was resolved, leaves open, and adds it to `answers`. Returns whether
  // there was anything: then the config is translated and resolved anew. Only a process that starts all ranks may
  // measure free memory: see World::starts_ranks. Throws UserError. [any rank]
  virtual bool answer(const Translation& translation, const RunConfig& run, const World& world,
                      plugin_host::PluginRegistry& registry, DialectAnswers& answers) const = 0;
};

// From now on this process reads such configs too. Called at a program's start, before any config is read.
void add_dialect(std::unique_ptr<const Dialect> dialect);
// Null: the config is in Strata's own keys.
const Dialect* dialect_of(const Node& config);

}  // namespace strata::config
