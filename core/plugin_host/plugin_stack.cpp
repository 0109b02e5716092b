#include "plugin_host/plugin_stack.hpp"

#include <exception>

#include "plugin_host/plugin_call.hpp"

namespace strata::plugin_host {

void PluginStack::shutdown() {
  if (is_shut_down_) return;
  is_shut_down_ = true;
  std::exception_ptr first;
  for (auto named = plugins_.rbegin(); named != plugins_.rend(); ++named) {
    try {
      plugin_call(named->name, "shutdown", [&] { named->plugin->shutdown(); });
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

PluginStack::~PluginStack() {
  try {
    shutdown();
  } catch (...) {  // the current exception is the one to report
  }
  while (!plugins_.empty()) plugins_.pop_back();
}

}  // namespace strata::plugin_host
