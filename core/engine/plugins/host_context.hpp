#pragma once
#include <strata/options_in_file.hpp>
#include <strata/own_exchange.hpp>
#include <strata/plugin_context.hpp>
#include <strata/weight_code.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace strata::plugins {

// Environment of a plugin, in addition to its name and options.
struct Surroundings {
  int rank = 0;
  MeshShape mesh = {};
  std::optional<LogLevel> least_logged = {};  // empty: the plugin's lines are dropped
  std::function<void(const std::string& metric, const std::string& unit, double value)> set_metric = {};
  OptionsInFile* in_file = nullptr;     // receives a model's report of its file's options
  OwnExchange* own_exchange = nullptr;  // registers an optimizer that does its own communication
  WeightCode* weight_code = nullptr;    // code of gathered weights, for a partitioner
};

// The core's PluginContext, for a run, a query or a bench.
class HostContext final : public PluginContext {
 public:
  // Makes a context. `name`: "kind/name".
  HostContext(std::string name, OptionValues options, Surroundings surroundings = {})
      : name_(std::move(name)), options_(std::move(options)), around_(std::move(surroundings)) {}

  const std::string& plugin_name() const override { return name_; }
  const OptionValues& options() const override { return options_; }
  int rank() const override { return around_.rank; }
  const MeshShape& mesh() const override { return around_.mesh; }
  void log(LogLevel level, const std::string& text) override;
  void set_metric(const std::string& metric, const std::string& unit, double value) override;
  void* extension(const char* id) override;

 private:
  std::string name_;
  OptionValues options_;
  Surroundings around_;
};

}  // namespace strata::plugins
