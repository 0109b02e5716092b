// What a plugin gets from the engine when it is made. It stays valid until the plugin's destructor has returned.
#pragma once
#include <strata/export.hpp>
#include <strata/mesh.hpp>
#include <strata/options.hpp>

#include <string>

namespace strata {

enum class LogLevel { Debug, Info, Warning, Error };

class STRATA_EXPORT PluginContext {
 public:
  virtual ~PluginContext();

  // "partitioner/zero3": kind and name, as it appears in the log and in errors.
  virtual const std::string& plugin_name() const = 0;
  // The plugin's options, typed and in range by its schema, every default filled in.
  virtual const OptionValues& options() const = 0;
  // This process in the run. [any rank]
  virtual int rank() const = 0;
  virtual const MeshShape& mesh() const = 0;

  // Writes one line to the engine's log, on this rank. Threads may call it.
  virtual void log(LogLevel level, const std::string& text) = 0;
  // Sets a figure of this plugin; it appears in the step metrics, the summary and comparisons as "<plugin
  // name>.<name>". Threads may call it.
  virtual void set_metric(const std::string& name, const std::string& unit, double value) = 0;

  // An optional ability of the host, "strata.<name>/<revision>"; null when this host does not have it.
  virtual void* extension(const char* id) = 0;
};

}  // namespace strata
