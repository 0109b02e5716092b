#include "tools/data/text_files.hpp"

#include <strata/error.hpp>
#include <strata/input_file.hpp>
#include <strata/toolbox/foreign_files.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "tools/data/json_lines.hpp"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

bool looks_like_text(const InputFile& file) {
  std::vector<char> head(std::min<std::uint64_t>(file.size(), 8192));
  file.read_at(0, head.data(), head.size());
  return std::find(head.begin(), head.end(), '\0') == head.end();
}

// JSON lines whose name does not say so may be documents or text: the user decides.
void refuse_json(const InputFile& file, int lines) {
  if (begins_with_objects(file, lines))
    throw UserError(Place{file.path()},
                    "has JSON objects as lines; if each is a document, give the key of its text with --jsonl-key KEY; "
                    "to pack the file as text, give --as-is");
  if (lines == 1 && begins_with_list(file))
    throw UserError(Place{file.path()},
                    "is a JSON list of objects; write each object as a line (jq -c '.[]') and give the key of its text "
                    "with --jsonl-key KEY; to pack the file as text, give --as-is");
}

}  // namespace

TextFiles::TextFiles(const std::vector<std::string>& inputs, const std::string& output, Reading reading)
    : output_(output), reading_(reading) {
  for (const std::string& input : inputs) {
    std::error_code error;
    fs::is_directory(input, error) ? add_folder(input) : add_input(input);
  }
  if (reading == Reading::Lines && std::ranges::none_of(files_, &TextFile::lines))
    throw UserError("--jsonl-key is given, and no input has JSON lines; leave it out, or name a file of JSON lines");
}

void TextFiles::add(const InputFile& file, bool lines) {
  files_.push_back({file.path(), lines});
  bytes_ += file.size();
  if (file.size() == 0) ++empty_;
}

void TextFiles::add_input(const std::string& path) {
  const InputFile file(path);
  if (is_output(path)) throw UserError(Place{path}, "is the output itself and cannot be an input");
  if (reading_ == Reading::AsIs) return add(file, false);
  toolbox::refuse_foreign_file(file);
  if (const std::string encoding = toolbox::other_encoding(file); !encoding.empty())
    throw UserError(Place{path},
                    "is text in {}, not in UTF-8; convert it (iconv -f {} -t UTF-8), or pack its bytes with --as-is",
                    encoding, encoding);
  const bool lines = reading_ == Reading::Lines || path.ends_with(".jsonl");
  if (!lines) refuse_json(file, 1);
  add(file, lines);
}

bool TextFiles::is_output(const std::string& path) const {
  std::error_code error;
  return fs::equivalent(path, output_, error);
}

void TextFiles::add_folder(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end; it.increment(error)) {
    if (error) break;
    const bool hidden = it->path().filename().string().starts_with('.');
    if (hidden && it->is_directory()) it.disable_recursion_pending();
    if (it->is_symlink()) {
      ++skipped_;
    } else if (it->is_regular_file() && !is_output(it->path().string())) {
      hidden ? void(++skipped_) : found.push_back(it->path().string());
    }
  }
  if (error) throw_cannot_open(folder, "cannot be listed", error.value());
  std::sort(found.begin(), found.end());
  for (const std::string& path : found) {
    const InputFile file(path);
    if (!looks_like_text(file) || toolbox::foreign_file(file)) {
      ++skipped_;
    } else if (reading_ == Reading::AsIs || path.ends_with(".jsonl")) {
      add(file, reading_ != Reading::AsIs);
    } else if (reading_ == Reading::Lines) {
      add(file, begins_with_objects(file, 1));
    } else {
      refuse_json(file, 2);  // a folder of source code has files of one object, too
      add(file, false);
    }
  }
}

}  // namespace strata::cli
