#include "report/report_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "data/file.hpp"
#include "interface/src/system_error.hpp"

namespace strata::report {

namespace {

struct Line {
  std::int64_t number;
  std::uint64_t begin, end;
};

}  // namespace

ReportFile::ReportFile(std::string option, std::string path) : option_(std::move(option)), path_(std::move(path)) {
  if (path_.empty()) return;
  struct stat status {};
  made_ = ::stat(path_.c_str(), &status) != 0 && errno == ENOENT;
  regular_ = made_ || S_ISREG(status.st_mode);
  open();
}

void ReportFile::open() {
  descriptor_ = ::open(path_.c_str(), (regular_ ? O_RDWR : O_WRONLY) | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ >= 0) return;
  const int error = errno;
  if (error == ENOENT)
    throw UserError("{}: cannot be written: a folder of this path does not exist; create it, or give another path",
                    name());
  throw_cannot_open(name(), "cannot be written", error);
}

ReportFile::~ReportFile() {
  if (descriptor_ < 0) return;
  if (made_ && !written_ && size() == 0) {
    std::error_code ignored;  // the file itself, where the path is a link
    std::filesystem::remove(std::filesystem::canonical(path_, ignored), ignored);
  }
  ::close(descriptor_);
}

std::uint64_t ReportFile::size() const {
  struct stat status {};
  return regular_ && ::fstat(descriptor_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

bool ReportFile::is_same_as(const ReportFile& other) const {
  struct stat one {
  }, two{};
  return regular_ && other.regular_ && ::fstat(descriptor_, &one) == 0 && ::fstat(other.descriptor_, &two) == 0 &&
         one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

void ReportFile::check_apart(const ReportFile& other) const {
  if (is_same_as(other)) throw UserError("{} and {} are one file; give each a path of its own", name(), other.name());
}

std::string ReportFile::beginning(std::size_t limit) const {
  std::string text(std::min<std::uint64_t>(limit, size()), '\0');
  if (!text.empty()) data::InputFile(path_).read_at(0, text.data(), text.size());
  return text;
}

void ReportFile::refuse_content(const std::string& wanted) const {
  throw UserError("{}: contains something other than {}, and is not overwritten; give another path", name(), wanted);
}

void ReportFile::fail(const char* action, int error) const {
  throw EnvironmentError("{}: {} failed: {}", name(), action, describe_errno(error));
}

void ReportFile::clear() {
  if (size() > 0 && ::ftruncate(descriptor_, 0) != 0) fail("emptying it", errno);
}

void ReportFile::keep_lines(const std::function<std::optional<std::int64_t>(const std::string& line)>& number_of,
                            std::int64_t last) {
  if (size() == 0) return;
  const data::InputFile file(path_);
  std::vector<Line> kept;
  std::string line;
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::uint64_t at = 0, begin = 0; at < file.size();) {
    const std::size_t part = std::min<std::uint64_t>(buffer.size(), file.size() - at);
    file.read_at(at, buffer.data(), part);
    for (auto from = buffer.begin(), end = from + static_cast<std::ptrdiff_t>(part); from != end;) {
      const auto newline = std::find(from, end, '\n');
      line.append(from, newline);
      if (newline == end) break;
      from = newline + 1;
      const std::uint64_t after = at + static_cast<std::uint64_t>(from - buffer.begin());
      if (const std::optional<std::int64_t> number = number_of(line); number && *number <= last) {
        while (!kept.empty() && kept.back().number >= *number) kept.pop_back();
        kept.push_back({*number, begin, after});
      }
      line.clear();
      begin = after;
    }
    at += part;
  }
  std::uint64_t whole = 0;  // bytes of the beginning that is kept as it is
  for (const Line& one : kept) whole = one.begin == whole ? one.end : whole;
  if (kept.empty() || kept.back().end == whole) {
    if (::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0) fail("cutting it", errno);
    return;
  }
  data::OutputFile fresh(std::filesystem::canonical(path_).string(), data::Existing::Replace);
  std::uint64_t end = 0;
  for (const Line& one : kept)
    for (std::uint64_t at = one.begin; at < one.end;) {
      const std::size_t part = std::min<std::uint64_t>(buffer.size(), one.end - at);
      file.read_at(at, buffer.data(), part);
      fresh.write_at(end, buffer.data(), part);
      at += part;
      end += part;
    }
  fresh.finish();
  ::close(descriptor_);
  open();
}

void ReportFile::write(std::string_view text) {
  if (descriptor_ < 0) return;
  written_ = true;
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor_, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail("writing", put < 0 ? errno : EIO);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace strata::report
