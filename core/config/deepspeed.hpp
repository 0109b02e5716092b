// DeepSpeed's ds_config.json in Strata's keys, by the table configs/deepspeed.yaml. Every key is honoured, accepted
// with the reason why there is nothing to do for it, or refused with a reason and what to use instead. A key that the
// table does not know is refused with the nearest; at the top, where DeepSpeed ignores such keys, only when one is
// near.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace strata::config {

// What one key did.
struct DeepSpeedLine {
  std::string origin;  // "ds_config.json:3", or why there is a line without a key
  std::string key;
  std::string value;         // as written
  std::string text;          // "partitioner.plugin = zero3", or why there is nothing to do
  int number = 0;            // of the file's line; 0: not in the file
  std::string derived = {};  // a key of ours that follows from others, so that say_derived has to write its value
  std::string one_line() const;
};

// What "auto" can be only once the model is known; found by whoever can load it (runtime/resolve_run.hpp).
struct DeepSpeedAnswers {
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> micro_batch;  // divides DeepSpeedReport::automatic_batch
  std::string micro_batch_origin;           // how it was found
};

struct DeepSpeedReport {
  std::vector<DeepSpeedLine> lines;  // in the file's order, then what it does not say
  bool asks_hidden_size = false;     // "auto" that depends on it was met, and there was no answer
  // Samples of a device in one pass where the batch is "auto": any divisor of it may be the micro-batch, and
  // accumulation makes up the rest, so that training is the same. 0: the file gives a batch.
  std::int64_t automatic_batch = 0;
  Place automatic_batch_place;
};

// Writes the values of keys that follow from others into their lines, once all is resolved.
void say_derived(DeepSpeedReport& report, const std::vector<Resolved>& listing);

// Whether a config is a ds_config: it has keys of DeepSpeed and no section that only Strata has.
bool is_deepspeed(const Node& config);

// Call it before resolve (run_config.hpp). Puts the translation of layers[1] in its place. layers[0] are the defaults;
// layers[2], if there is one, are settings, which win over the file; deepspeed_compat (the version whose defaults hold)
// and deepspeed_allow (a list of keys whose refusal is waived, where training is the same without them) are taken out
// of them. Origins name DeepSpeed's keys. Throws UserError: place, key, value, reason, what to use instead.
DeepSpeedReport translate_deepspeed(std::vector<Node>& layers, const PluginSource& plugins,
                                    const DeepSpeedAnswers& answers = {});

}  // namespace strata::config
