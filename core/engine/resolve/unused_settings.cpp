#include "resolve/unused_settings.hpp"

#include <strata/error.hpp>

#include "config/listing.hpp"

namespace strata::resolve {

namespace {

// The keys that `strata` commands alone honour, and the alternatives in a program.
struct OfCommands {
  const char* key;
  const char* instead;
};
constexpr OfCommands keys_of_commands[]{
    {"compare", "`strata compare` trains these variants: start the program once for each, with its settings"}};

[[noreturn]] void refuse_key(const OfCommands& one, const Place& place, const std::string& value) {
  throw UserError(place, "{} is {}, which has no effect in a program: {}, and leave {} out", one.key,
                  config::shown(value), one.instead, one.key);
}

}  // namespace

void check_memory_budget(const ResolvedRun& run) {
  const bool chooses_batch = run.translation && run.translation->automatic_batch > 0;
  if (run.config.memory_budget == 0 || run.config.offload.automatic || chooses_batch) return;
  throw UserError(Place{run.config.origins.at("memory_budget")},
                  "memory_budget is {}, which has no effect: only offload: auto and a ds_config with batch size "
                  "\"auto\" use it; leave memory_budget out, or set device_budget to limit the device memory",
                  run.config.memory_budget);
}

void check_program_keys(const std::vector<config::Node>& trees) {
  for (auto tree = trees.begin() + 1; tree < trees.end(); ++tree)
    for (const OfCommands& one : keys_of_commands) {
      const config::Node* const node = config::find(*tree, one.key);
      const bool empty = node == nullptr || node->kind == config::NodeKind::Null ||
                         (node->kind == config::NodeKind::Scalar && node->text.empty()) ||
                         (node->kind == config::NodeKind::Sequence && node->items.empty());
      if (!empty) refuse_key(one, node->place, node->kind == config::NodeKind::Scalar ? node->text : "[...]");
    }
}

void check_program_keys(const config::RunConfig& run) {
  for (const config::Resolved& row : config::listing(run))
    for (const OfCommands& one : keys_of_commands) {
      const std::string value = config::to_text(row.value);
      if (row.path == one.key && !value.empty()) refuse_key(one, Place{row.origin}, value);
    }
}

}  // namespace strata::resolve
