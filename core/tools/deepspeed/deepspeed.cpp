#include "tools/deepspeed/deepspeed.hpp"

#include <strata/deepspeed.hpp>

#include <algorithm>
#include <mutex>

#include "config/keys.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"

namespace strata::deepspeed {

bool deepspeed::DeepSpeed::recognises(const config::Node& config) const {
  const auto contains = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::vector<std::string> ours = config::known_children("");
  bool found = false;
  for (const config::Entry& entry : config.entries) {
    if (!contains(ours, entry.key)) {
      found = found || contains(deepspeed::deepspeed_children(""), entry.key);
    } else if (entry.key == "optimizer" || entry.key == "scheduler") {
      found = found || entry.value.get("type") != nullptr || entry.value.get("params") != nullptr;
    } else if (entry.key != "checkpoint") {
      return false;
    }
  }
  return found;
}

}  // namespace strata::deepspeed

void strata::accept_deepspeed_configs() {
  static std::once_flag once;
  std::call_once(once, [] { resolve::add_dialect(std::make_unique<deepspeed::DeepSpeed>()); });
}
