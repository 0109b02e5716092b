#include "plugins/plugin_stack.hpp"

#include <exception>

#include "plugins/plugin_call.hpp"
#include "plugins/shutdown_watch.hpp"

namespace strata::plugins {

void PluginStack::shutdown(const Plugin* first) {
  if (running_ == 0) return;
  std::exception_ptr error;
  ShutdownWatch watch;
  for (bool reached = false; running_ > 0 && !reached;) {
    const Named& named = plugins_[--running_];
    reached = named.plugin.get() == first;
    try {
      watch.watch(named.name);
      plugin_call(named.name, "shutdown", [&] { named.plugin->shutdown(); });
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

PluginStack::~PluginStack() {
  try {
    shutdown();
  } catch (...) {  // the current exception is the one to report
  }
  while (!plugins_.empty()) plugins_.pop_back();
}

}  // namespace strata::plugins
