#include "tools/new_plugin/new_plugin.hpp"

#include <strata/error.hpp>
#include <strata/input_file.hpp>
#include <strata/plugin_kind.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <ostream>
#include <sstream>
#include <vector>

#include "config/defaults.hpp"
#include "data/file.hpp"
#include "plugins/manifest.hpp"
#include "text/nearest.hpp"
#include "tools/data/pack.hpp"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* token_file = "text.bin";

struct ProjectFile {
  std::string name;
  std::string text;
};

void check_kind(const std::string& kind) {
  if (plugin_kind_from_string(kind)) return;
  throw UserError("plugins new: '{}' is not a kind of plugin; {}", kind,
                  text::suggestion(kind, {plugin_kind_names.begin(), plugin_kind_names.end()}));
}

// A guess at the intended name; may still be invalid.
std::string as_plugin_name(const std::string& text) {
  std::string name;
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (std::isalnum(code) != 0) name += static_cast<char>(std::tolower(code));
    if (std::ispunct(code) != 0 && !name.empty()) name += '_';
  }
  return name;
}

void check_name(const std::string& name) {
  if (plugins::is_plugin_name(name)) return;
  const std::string meant = as_plugin_name(name);
  throw UserError(
      "plugins new: '{}' is not a valid plugin name; use a-z, 0-9 and _, not _ first, at most 64 characters{}", name,
      plugins::is_plugin_name(meant) ? "; did you mean " + meant + "?" : "");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The template's files, sorted by name.
std::vector<ProjectFile> files_of_template(const std::string& kind, const std::string& name) {
  const fs::path folder = fs::path(config::templates_folder()) / kind;
  std::vector<ProjectFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::ifstream stream(entry->path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (!entry->is_regular_file() || !stream)
      throw EnvironmentError("the template {} cannot be read; install Strata's SDK again", entry->path().string());
    files.push_back({replaced(entry->path().filename().string(), "@name@", name),
                     replaced(replaced(text, "@name@", name), "@tokens@", token_file)});
  }
  if (error || files.empty())
    throw EnvironmentError("there is no template for a {} in {}; install Strata's SDK again", kind, folder.string());
  std::sort(files.begin(), files.end(), [](const auto& left, const auto& right) { return left.name < right.name; });
  return files;
}

// The files and folders created so far; removed again if not all could be created.
class Made {
 public:
  Made() = default;
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() {
    std::error_code ignored;
    while (!paths_.empty()) {
      fs::remove(paths_.back(), ignored);
      paths_.pop_back();
    }
  }
  void add(const fs::path& path) { paths_.push_back(path); }
  void keep() { paths_.clear(); }

 private:
  std::vector<fs::path> paths_;
};

void check_absent(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return;
  throw UserError(Place{path.string()}, "already exists; nothing was written; remove it or choose another folder");
}

void make_folder(const fs::path& folder, Made& made) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  if (fs::exists(folder, error)) throw UserError(Place{folder.string()}, "is a file; give a folder");
  if (fs::create_directory(folder, error)) return made.add(folder);
  throw_cannot_open(folder.string(), "this folder cannot be created", error ? error.value() : EEXIST);
}

// Opens all files before the first gets its final name, so that an unwritable folder fails at once.
void write_files(const fs::path& folder, const std::vector<ProjectFile>& files, Made& made) {
  std::vector<data::OutputFile> outputs;
  for (const ProjectFile& file : files) {
    outputs.emplace_back((folder / file.name).string());
    outputs.back().write_at(0, file.text.data(), file.text.size());
  }
  for (data::OutputFile& output : outputs) {
    output.finish();
    made.add(output.path());
  }
}

void pack_files(const fs::path& folder, const std::vector<ProjectFile>& files, Made& made) {
  std::vector<std::string> inputs;
  for (const ProjectFile& file : files) inputs.push_back((folder / file.name).string());
  const std::string output = (folder / token_file).string();
  pack_text(inputs, output, {});
  made.add(output);
}

// The lines of the first ```sh block in a .md file.
std::vector<std::string> next_commands(const std::vector<ProjectFile>& files) {
  std::vector<std::string> commands;
  for (const ProjectFile& file : files) {
    if (!file.name.ends_with(".md") || !commands.empty()) continue;
    std::istringstream lines(file.text);
    std::string line;
    while (std::getline(lines, line) && line != "```sh") {
    }
    while (std::getline(lines, line) && line != "```") commands.push_back(line);
  }
  return commands;
}

}  // namespace

int plugins_new(const std::string& kind, const std::string& name, const std::string& folder, std::ostream& out) {
  check_kind(kind);
  check_name(name);
  const std::vector<ProjectFile> files = files_of_template(kind, name);
  const fs::path place = fs::path(folder).lexically_normal();
  for (const ProjectFile& file : files) check_absent((place / file.name).lexically_normal());
  check_absent((place / token_file).lexically_normal());
  Made made;
  make_folder(place, made);
  write_files(place, files, made);
  pack_files(place, files, made);
  made.keep();

  for (const ProjectFile& file : files) out << (place / file.name).lexically_normal().string() << "\n";
  out << (place / token_file).lexically_normal().string() << "\n\nNext:\n";
  if (place != ".") out << "  cd " << std::quoted(place.string()) << "\n";
  for (const std::string& command : next_commands(files)) out << "  " << command << "\n";
  return 0;
}

}  // namespace strata::cli
