#include "checkpoint/source_folder.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <system_error>

#include "checkpoint/training_checkpoint.hpp"
#include "data/file.hpp"
#include "interface/src/system_error.hpp"
#include "text/first_of.hpp"
#include "text/printable.hpp"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest = std::uint64_t{256} << 20;
constexpr const char* templates = "additional_chat_templates";

// True for files that hold weights or the state of a training, and for a card that describes them: what a training
// replaces.
bool is_replaced(const std::string& name) {
  constexpr std::array endings{".safetensors", ".index.json", ".bin",  ".pt",        ".pth", ".ckpt", ".h5",
                               ".msgpack",     ".gguf",       ".onnx", ".onnx_data", ".ot",  ".npz",  ".tmp"};
  constexpr std::array names{"config.json", "README.md", "trainer_state.json"};
  return name.starts_with('.') || std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(endings, [&](const std::string& ending) { return name.ends_with(ending); });
}

// Copies the folder's files, and adds the names of those that are too large or cannot be read.
void copy_files(const fs::path& from, const fs::path& to, std::vector<std::string>& left) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_regular_file(error) && !is_replaced(entry->path().filename().string()))
      files.push_back(entry->path());
  if (error) left.push_back("the rest of " + text::one_line(from.filename().string()));
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::string text;
    try {
      const data::InputFile opened(file.string());
      if (opened.size() > largest) throw UserError("too large");
      text.resize(opened.size());
      opened.read_at(0, text.data(), text.size());
    } catch (const Error&) {
      left.push_back(text::one_line(file.filename().string()));
      continue;
    }
    write_saved(to, file.filename().string(), text);
  }
}

// Whether the file holds this text; false where it cannot be read.
bool holds(const fs::path& path, const std::string& text) {
  try {
    const data::InputFile file(path.string());
    if (file.size() != text.size()) return false;
    std::string found(file.size(), '\0');
    file.read_at(0, found.data(), found.size());
    return found == text;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string SourceFolder::copy_into(const fs::path& destination) const {
  if (folder_.empty()) return "";
  const std::string place = text::one_line(folder_.string());
  const std::string advice =
      "; the export has no tokenizer and no generation_config.json: copy them from the source of the model";
  std::error_code error;
  if (!fs::is_regular_file(folder_ / "config.json", error))
    return place + ", the run's model.init, no longer exists" + advice;
  if (!holds(folder_ / "config.json", config_text_))
    return place + ", the run's model.init, has a config.json that differs from the one that the run read" + advice;
  std::vector<std::string> left;
  copy_files(folder_, destination, left);
  if (fs::is_directory(folder_ / templates, error)) {
    fs::create_directory(destination / templates, error);
    if (error)
      throw EnvironmentError("{}: cannot be created: {}", (destination / templates).string(),
                             describe_errno(error.value()));
    copy_files(folder_ / templates, destination / templates, left);
  }
  if (left.empty()) return "";
  return place + ": not copied to the export, because they cannot be read or are larger than 256 MiB: " +
         text::first_of(left, 3);
}

}  // namespace strata::checkpoint
