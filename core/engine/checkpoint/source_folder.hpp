// The folder that a run's first weights came from, whose other files an export takes along: the tokenizer's,
// generation_config.json, chat templates, licenses.
#pragma once
#include <filesystem>
#include <string>
#include <utility>

namespace strata::checkpoint {

class SourceFolder {
 public:
  // `folder`: the run's model.init, or empty. `config_text`: the config.json that the run read there.
  SourceFolder(std::filesystem::path folder, std::string config_text)
      : folder_(std::move(folder)), config_text_(std::move(config_text)) {}

  // Copies the files into the folder `destination`, and returns a sentence on what is not there or not copied; empty:
  // nothing is lost. A folder whose config.json is another one than the run read is not the run's, and gives no file.
  // Throws EnvironmentError when a file cannot be written.
  std::string copy_into(const std::filesystem::path& destination) const;

 private:
  std::filesystem::path folder_;
  std::string config_text_;
};

}  // namespace strata::checkpoint
