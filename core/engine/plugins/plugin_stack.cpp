#include "plugins/plugin_stack.hpp"

#include <algorithm>
#include <exception>

#include "plugins/plugin_call.hpp"
#include "plugins/shutdown_watch.hpp"

namespace strata::plugins {

void PluginStack::shutdown(const Plugin* first) {
  const auto found =
      std::ranges::find_if(plugins_, [first](const Named& named) { return named.plugin.get() == first; });
  const std::size_t kept = first == nullptr ? 0 : static_cast<std::size_t>(found - plugins_.begin());
  if (running_ <= kept) return;
  std::exception_ptr error;
  ShutdownWatch watch;
  while (running_ > kept) {
    const Named& named = plugins_[--running_];
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
