// A PluginContext without an engine: options, a rank and mesh, and lists of the plugin's log lines and metrics.
#pragma once
#include <strata/plugin_context.hpp>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace strata::fakes {

class FakePluginContext final : public PluginContext {
 public:
  // Makes a context. `name`: e.g. "partitioner/mine".
  FakePluginContext(std::string name, OptionValues options, int rank = 0, MeshShape mesh = {})
      : name_(std::move(name)), options_(std::move(options)), rank_(rank), mesh_(mesh) {}
  const std::string& plugin_name() const override { return name_; }
  const OptionValues& options() const override { return options_; }
  int rank() const override { return rank_; }
  const MeshShape& mesh() const override { return mesh_; }
  void log(LogLevel /*level*/, const std::string& text) override {
    const std::lock_guard lock(mutex_);
    log_.push_back(text);
  }
  void set_metric(const std::string& name, const std::string& /*unit*/, double value) override {
    const std::lock_guard lock(mutex_);
    metrics_[name] = value;
  }
  void* extension(const char* /*id*/) override { return nullptr; }

  // Returns copies of the records.
  std::vector<std::string> logged() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  std::map<std::string, double> metrics() const {
    const std::lock_guard lock(mutex_);
    return metrics_;
  }

 private:
  std::string name_;
  OptionValues options_;
  int rank_;
  MeshShape mesh_;
  mutable std::mutex mutex_;
  std::vector<std::string> log_;
  std::map<std::string, double> metrics_;
};

}  // namespace strata::fakes
