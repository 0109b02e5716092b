// defines: PlainPluginContext, LoadedPlugin
// A plugin's shared library opened by its path, without the host: what unit tests of one plugin need.
#pragma once
#include <dlfcn.h>
#include <strata/plugin.hpp>
#include <strata/plugin_context.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

class PlainPluginContext final : public strata::PluginContext {
 public:
  explicit PlainPluginContext(strata::OptionValues options) : options_(std::move(options)) {}
  const std::string& plugin_name() const override { return name_; }
  const strata::OptionValues& options() const override { return options_; }
  int rank() const override { return 0; }
  const strata::MeshShape& mesh() const override { return mesh_; }
  void log(strata::LogLevel, const std::string& text) override { log_.push_back(text); }
  void set_metric(const std::string&, const std::string&, double) override {}
  void* extension(const char*) override { return nullptr; }

 private:
  std::string name_ = "kind/under test";
  strata::OptionValues options_;
  strata::MeshShape mesh_;
  std::vector<std::string> log_;
};

template <class Interface>
class LoadedPlugin {
 public:
  LoadedPlugin(const char* path, strata::OptionValues options) : context_(std::move(options)) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // never closed
    if (library == nullptr) throw std::runtime_error(dlerror());
    using Entry = const strata::PluginEntry*();
    Entry* const entry = reinterpret_cast<Entry*>(dlsym(library, "strata_plugin_entry_v1"));
    if (entry == nullptr) throw std::runtime_error(dlerror());
    plugin_.reset(dynamic_cast<Interface*>(entry()->create(context_)));
    if (!plugin_) throw std::runtime_error("the plugin is of another kind");
  }
  Interface* operator->() const { return plugin_.get(); }
  Interface& operator*() const { return *plugin_; }

 private:
  PlainPluginContext context_;
  std::unique_ptr<Interface> plugin_;
};
