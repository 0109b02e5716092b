#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/file.hpp"

namespace strata::cli {

// Selection of the files that are read as JSON lines.
enum class Reading {
  ByName,  // files named .jsonl; other files with lines of objects are refused
  Lines,   // every input that is a file, and in folders every file that begins with a line that is an object
  AsIs     // no file
};

struct TextFile {
  std::string path;
  bool lines = false;  // each line is a JSON object with a document
};

// Files of the inputs in their order, and their total bytes. See pack_text about folders and JSON lines.
class TextFiles {
 public:
  TextFiles(const std::vector<std::string>& inputs, const std::string& output, Reading reading);

  const std::vector<TextFile>& files() const { return files_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }
  std::int64_t empty() const { return empty_; }  // number of empty files
  std::int64_t skipped() const { return skipped_; }

 private:
  void add(const InputFile& file, bool lines);
  void add_input(const std::string& path);
  bool is_output(const std::string& path) const;
  void add_folder(const std::string& folder);

  std::string output_;
  Reading reading_;
  std::vector<TextFile> files_;
  std::uint64_t bytes_ = 0;
  std::int64_t empty_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace strata::cli
