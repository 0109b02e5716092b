#include <algorithm>
#include <utility>

#include "conformance/runner/case.hpp"
#include "plugins/elf_section.hpp"

namespace strata::conformance {

Subject::Subject(std::string file, std::uint64_t seed, SearchSettings search)
    : file_(std::move(file)), seed_(seed), search_(std::move(search)) {
  try {
    plugins::parse_manifest(plugins::read_elf_section(file_, ".strata"), manifest_);
  } catch (const plugins::DamagedFile& error) {
    throw UserError("{} {}", file_, error.what());
  }
}

bool Subject::can(Capability capability) const {
  return std::find(manifest_.capabilities.begin(), manifest_.capabilities.end(), capability) !=
         manifest_.capabilities.end();
}

const fakes::PluginLibrary& Subject::library() {
  if (!library_) library_.emplace(file_);
  return *library_;
}

std::vector<fakes::OptionTexts> Subject::settings() const {
  std::vector<fakes::OptionTexts> all{{}};
  for (const OptionSpec& option : manifest_.options) {
    std::vector<std::string> texts = option.choices;
    if (option.type == "boolean") texts = {"true", "false"};
    if (option.type == "integer" || option.type == "number" || option.type == "size")
      texts = {option.minimum, option.maximum};
    for (const std::string& text : texts)
      if (!text.empty() && text != option.default_text) all.push_back({{option.name, text}});
  }
  return all;
}

std::mt19937_64 Subject::random(std::string_view case_name, int ahead) const {
  return std::mt19937_64((seed_ + static_cast<std::uint64_t>(ahead)) ^ std::hash<std::string_view>{}(case_name));
}

std::string count(int number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string to_string(const fakes::OptionTexts& options) {
  std::string text;
  for (const auto& [name, value] : options) text += (text.empty() ? "" : ", ") + name + "=" + value;
  return text.empty() ? "defaults" : text;
}

std::vector<Case> cases_of(PluginKind kind) {
  const auto own = [kind] {
    switch (kind) {
      case PluginKind::Device:
        return device_cases();
      case PluginKind::Communicator:
        return communicator_cases();
      case PluginKind::Partitioner:
        return partitioner_cases();
      case PluginKind::PrecisionPolicy:
        return precision_cases();
      case PluginKind::Scheduler:
        return scheduler_cases();
      case PluginKind::OffloadDevice:
        return offload_cases();
      case PluginKind::Optimizer:
        return optimizer_cases();
      case PluginKind::Model:
        return model_cases();
      case PluginKind::DataSource:
        return data_cases();
      case PluginKind::LearningRate:
        return learning_rate_cases();
    }
    return std::vector<Case>{};
  };
  std::vector<Case> cases = general_cases();
  for (Case& one : own()) cases.push_back(std::move(one));
  return cases;
}

}  // namespace strata::conformance
