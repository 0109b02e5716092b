// The engine's interface for plugins. Passed to the constructor; valid until the plugin's destructor has returned.
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

  // Returns kind and name, as in logs and errors: "partitioner/zero3".
  virtual const std::string& plugin_name() const = 0;
  // Returns the plugin's options, checked against its schema, with defaults filled in.
  virtual const OptionValues& options() const = 0;
  // Returns the rank of this process in the run. [any rank]
  virtual int rank() const = 0;
  virtual const MeshShape& mesh() const = 0;

  // Writes one line to the engine's log on this rank. Thread-safe.
  virtual void log(LogLevel level, const std::string& text) = 0;
  // Sets a metric of this plugin; it appears in step metrics, the summary and comparisons as "<plugin name>.<name>".
  // Thread-safe.
  virtual void set_metric(const std::string& name, const std::string& unit, double value) = 0;

  // Returns an optional host interface, "strata.<name>/<revision>"; null if this host does not have it.
  virtual void* extension(const char* id) = 0;
};

}  // namespace strata
