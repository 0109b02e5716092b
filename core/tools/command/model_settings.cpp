#include "tools/command/model_settings.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

namespace strata::cli {

std::vector<std::string> model_settings(const std::string& model) {
  const std::size_t colon = model.find(':');
  std::vector<std::string> settings{"model.plugin=" + nlohmann::json(model.substr(0, colon)).dump()};
  if (colon == std::string::npos) return settings;
  const std::string size = model.substr(colon + 1);
  const bool folder = size.find('/') != std::string::npos || std::filesystem::is_directory(size);
  settings.push_back((folder ? "model.init=" : "model.preset=") + nlohmann::json(size).dump());
  return settings;
}

}  // namespace strata::cli
