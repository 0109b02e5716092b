#include "plugins/host_context.hpp"

#include <spdlog/spdlog.h>

#include <string_view>

namespace strata::plugins {

void HostContext::log(LogLevel level, const std::string& text) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                         spdlog::level::err};
  if (around_.least_logged && level >= *around_.least_logged)
    spdlog::log(levels[static_cast<std::size_t>(level)], "{}: {}", name_, text);
}

void HostContext::set_metric(const std::string& metric, const std::string& unit, double value) {
  if (around_.set_metric) around_.set_metric(name_ + "." + metric, unit, value);
}

void* HostContext::extension(const char* id) {
  if (std::string_view(id) == OptionsInFile::id) return around_.in_file;
  if (std::string_view(id) == WeightCode::id) return around_.weight_code;
  return std::string_view(id) == OwnExchange::id ? static_cast<void*>(around_.own_exchange) : nullptr;
}

}  // namespace strata::plugins
