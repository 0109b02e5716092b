// Source folder of a run's initial weights, whose other files an export copies: tokenizer, generation_config.json, chat
// templates, licenses.
#pragma once
#include <filesystem>
#include <string>
#include <utility>

namespace strata::checkpoint {

class SourceFolder {
 public:
  // Takes the run's model.init, or "", and the config.json text that the run read there.
  SourceFolder(std::filesystem::path folder, std::string config_text)
      : folder_(std::move(folder)), config_text_(std::move(config_text)) {}

  // Copies the files into the folder `destination`, and returns a sentence about missing or uncopied files; empty:
  // none. Copies nothing from a folder whose config.json differs from the one that the run read. Throws
  // EnvironmentError when a file cannot be written.
  std::string copy_into(const std::filesystem::path& destination) const;

 private:
  std::filesystem::path folder_;
  std::string config_text_;
};

}  // namespace strata::checkpoint
