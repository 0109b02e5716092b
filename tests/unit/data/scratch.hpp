// Files for tests: a folder that goes when the test ends, literal bytes in and out, and the text of an error of the
// right class.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "catch.hpp"

// Catch2 v3 gave these other names.
#if __has_include(<catch2/catch_all.hpp>)
using Catch::Approx;
inline auto Contains(const std::string& part) {
  return Catch::Matchers::ContainsSubstring(part);
}
#else
using Catch::Matchers::Contains;
#endif

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) FAIL("no scratch folder");
    path_ = pattern;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  // How many names the folder holds: what a failed write left behind shows here.
  std::int64_t names() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The bytes of integers as they lie in memory.
template <typename Integer>
std::string bytes(std::initializer_list<Integer> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(Integer)};
}

// The text of the Expected that `call` throws; fails when it throws another or nothing, or a text of several lines.
template <typename Expected, typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Expected& error) {
    const std::string text = error.what();
    CHECK(text.find('\n') == std::string::npos);
    return text;
  } catch (const std::exception& error) {
    FAIL("an error of another class: " << error.what());
  }
  FAIL("no error");
  return {};
}
