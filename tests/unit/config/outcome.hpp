// What a config's text resolves to, for tests.
#pragma once
#include "catch.hpp"
#include "config/defaults.hpp"
#include "config/listing.hpp"
#include "config/run_config.hpp"
#include "fake_plugins.hpp"

namespace strata::config {

inline constexpr const char* minimal_config =
    "model: {plugin: gpt_neox, seq_len: 128}\n"
    "data: {path: train.bin}\n"
    "train: {steps: 10, micro_batch: 4}\n"
    "learning_rate: {base: 1e-3}\n";

struct Outcome {
  RunConfig run;
  std::string error;
};

inline Outcome outcome(const std::vector<std::string>& texts, const std::vector<std::string>& settings = {},
                       const World& world = {2, "--nproc", true}, const FakePlugins& plugins = FakePlugins()) {
  Outcome result;
  result.error = error_of([&] {
    std::string text;
    for (const std::string& part : texts) text += part;
    result.run =
        resolve({read_defaults(), read_text(text, Format::Yaml, "t.yaml"), read_settings(settings)}, world, plugins);
  });
  return result;
}

inline RunConfig resolved(const std::vector<std::string>& texts, const std::vector<std::string>& settings = {},
                          std::int64_t world = 2) {
  const Outcome result = outcome(texts, settings, {world, "--nproc", true});
  INFO(result.error);
  REQUIRE(result.error.empty());
  return result.run;
}

struct Row {
  std::string value;
  std::string origin;
};

// A line of the listing as people see it.
inline Row row(const RunConfig& run, const std::string& path) {
  for (const Resolved& one : listing(run))
    if (one.path == path) return {to_text(one.value), one.origin};
  return {"absent", "absent"};
}

inline std::string error(const std::string& more, const std::vector<std::string>& settings = {}) {
  return outcome({minimal_config, more}, settings).error;
}

}  // namespace strata::config
