#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/defaults.hpp"
#include "config/listing.hpp"
#include "config/run_config.hpp"
#include "plugins/engine_plugins.hpp"
#include "tools/deepspeed/deepspeed.hpp"

namespace strata::config {

struct Translated {
  std::optional<RunConfig> run;
  resolve::Translation report;
  std::string error;  // of the UserError, when there is no run
};

inline const std::vector<std::string> model_settings{"model.plugin=gpt_neox", "model.preset=pythia-14m",
                                                     "data.path=x.bin", "device=cpu"};

// Resolves a ds_config with the plugins that were built.
inline Translated translated(const std::string& json, std::vector<std::string> settings = {}, std::int64_t world = 2,
                             const resolve::DialectAnswers& answers = {}) {
  static const plugins::EnginePlugins plugins(plugins::open_registry(""));
  settings.insert(settings.begin(), model_settings.begin(), model_settings.end());
  Translated result;
  try {
    std::vector<Node> trees{read_defaults(), read_text(json, Format::Json, "ds_config.json"), read_settings(settings)};
    if (deepspeed::DeepSpeed().recognises(trees[1]))
      result.report = deepspeed::DeepSpeed().translate(trees, plugins, answers);
    result.run = resolve(std::move(trees), {world, "--nproc"}, plugins);
  } catch (const UserError& error) {
    result.error = error.what();
  }
  return result;
}

// What a key did; empty when there is no line of it.
inline std::string line_of(const Translated& translated, const std::string& key) {
  for (const resolve::DialectLine& line : translated.report.lines)
    if (line.key == key) return line.text;
  return "";
}

inline std::string value_of(const Translated& translated, const std::string& path) {
  if (translated.run)
    for (const Resolved& one : listing(*translated.run))
      if (one.path == path) return to_text(one.value);
  return translated.error;
}

inline std::string origin_of(const Translated& translated, const std::string& path) {
  if (translated.run)
    for (const Resolved& one : listing(*translated.run))
      if (one.path == path) return one.origin;
  return translated.error;
}

}  // namespace strata::config
