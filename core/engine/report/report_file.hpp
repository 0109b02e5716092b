// File that is written during a run or a command.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace strata::report {

// The constructor opens or makes the file and leaves its content, so that a path that cannot be written ends the run
// before its first step. A failure before the first write changes nothing: a file that was made and never written is
// removed. Pipes and devices are written without these checks. [one thread]
class ReportFile {
 public:
  // `option` is the option or key of the path, such as "--metrics". With an empty path nothing is written. Throws
  // UserError if the file cannot be opened for writing, EnvironmentError if the machine lacks a resource. Blocks on a
  // pipe without a reader.
  ReportFile(std::string option, std::string path);
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  const std::string& path() const { return path_; }
  std::string name() const { return option_ + " " + path_; }
  // Returns the size of a regular file; 0 for any other.
  std::uint64_t size() const;
  bool is_same_as(const ReportFile& other) const;
  // Throws UserError if the other option names this file.
  void check_apart(const ReportFile& other) const;
  // Returns at most `limit` bytes from the beginning of a regular file. Throws EnvironmentError.
  std::string beginning(std::size_t limit) const;
  // Throws the UserError of a file with other content than `wanted`, such as "a run's metrics".
  [[noreturn]] void refuse_content(const std::string& wanted) const;

  // Empties a regular file.
  void clear();
  // Keeps the lines with a number of at most `last`, the last one of each number. Drops lines without a number or
  // without an end. Throws EnvironmentError.
  void keep_lines(const std::function<std::optional<std::int64_t>(const std::string& line)>& number_of,
                  std::int64_t last);
  // Appends the text. Blocks. Throws EnvironmentError.
  void write(std::string_view text);

 private:
  void open();
  [[noreturn]] void fail(const char* action, int error) const;

  std::string option_;
  std::string path_;
  int descriptor_ = -1;
  bool regular_ = false;
  bool made_ = false;     // by this object
  bool written_ = false;  // by this object
};

}  // namespace strata::report
