// Dialects: configs of other systems, translated to Strata's keys. The engine has none built in: a program adds those
// that it accepts.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/listing.hpp"
#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::resolve {

// Translation of one key.
struct DialectLine {
  std::string origin;  // "ds_config.json:3", or the reason for a line without a key
  std::string key;
  std::string value;         // value as written
  std::string text;          // "partitioner.plugin = zero3", or the reason why nothing is set
  int number = 0;            // line in the file; 0: not in the file
  std::string derived = {};  // key of Strata that follows from others; say_derived writes its value
  std::string one_line() const;
};

// Values for a config that leaves them open, which depend on the model or on the machine.
struct DialectAnswers {
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> micro_batch;  // divisor of Translation::automatic_batch
  std::string micro_batch_origin;           // how the micro-batch was found
};

struct Translation {
  std::vector<DialectLine> lines;  // lines in the file's order, then derived ones
  bool asks_hidden_size = false;   // a value depends on the hidden size, which the answers lack
  // Samples per device and pass if the batch is left open: any divisor of it may be the micro-batch, and accumulation
  // supplies the rest, so that training is the same. 0: the file sets a batch.
  std::int64_t automatic_batch = 0;
  Place automatic_batch_place;
};

// Completes the lines of derived keys (DialectLine::derived). Call it after resolve.
void say_derived(Translation& translation, const std::vector<config::Resolved>& listing);

class Dialect {
 public:
  virtual ~Dialect() = default;
  virtual bool recognises(const config::Node& config) const = 0;
  // Replaces trees[1] by its translation. trees[0] are the defaults; trees[2], if present, are settings, which override
  // the file. Throws UserError: place, key, value, reason, alternative.
  virtual Translation translate(std::vector<config::Node>& trees, const config::PluginSource& plugins,
                                const DialectAnswers& answers) const = 0;
  // Finds values that `translation`, with which `run` was resolved, leaves open, and adds them to `answers`. Returns
  // true if there were any; the config is then translated and resolved again. Only a process that starts all ranks may
  // measure free memory: see World::starts_ranks. Throws UserError. [any rank]
  virtual bool answer(const Translation& translation, const config::RunConfig& run, const config::World& world,
                      plugins::PluginRegistry& registry, DialectAnswers& answers) const = 0;
};

// Adds a dialect to this process. Called at a program's start, before any config is read.
void add_dialect(std::unique_ptr<const Dialect> dialect);
// Returns the dialect of a config; null: Strata's own keys.
const Dialect* dialect_of(const config::Node& config);

}  // namespace strata::resolve
