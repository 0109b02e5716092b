#include "report/report_file.hpp"

#include <strata/error.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "error_of.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using report::ReportFile;

namespace {

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string text_in(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// What is kept of a text whose lines begin with their number.
std::string kept(const TemporaryFolder& folder, const std::string& text, std::int64_t last) {
  const std::string path = folder / "lines";
  put(path, text);
  ReportFile file("--metrics", path);
  file.keep_lines(
      [](const std::string& line) -> std::optional<std::int64_t> {
        if (line.empty() || line.front() < '0' || line.front() > '9') return {};
        return std::stoll(line);
      },
      last);
  file.write("end\n");
  return text_in(path);
}

}  // namespace

TEST_CASE("a file is made at once, and removed when nothing was written to it") {
  const TemporaryFolder folder;
  {
    const ReportFile file("--metrics", folder / "new");
    CHECK(std::filesystem::exists(folder / "new"));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "new"));
  put(folder / "empty", "");
  put(folder / "full", "content");
  for (const char* name : {"empty", "full"}) const ReportFile file("--metrics", folder / name);
  CHECK(std::filesystem::exists(folder / "empty"));
  CHECK(text_in(folder / "full") == "content");
  ReportFile file("--metrics", folder / "full");
  file.clear();
  file.write("new");
  CHECK(text_in(folder / "full") == "new");
  CHECK(file.is_same_as(ReportFile("--summary", folder / "full")));
  CHECK_FALSE(file.is_same_as(ReportFile("--summary", folder / "empty")));
  CHECK_THAT(error_of<UserError>([&] { ReportFile("--trace", folder / "none/there"); }),
             Contains("--trace ") && Contains("does not exist"));
  CHECK_THAT(error_of<UserError>([&] { ReportFile("--trace", folder.path()); }), Contains("Is a directory"));
}

TEST_CASE("lines up to a number are kept, each number once") {
  const TemporaryFolder folder;
  CHECK(kept(folder, "1 a\n2 b\n3 c\n", 3) == "1 a\n2 b\n3 c\nend\n");
  CHECK(kept(folder, "1 a\n2 b\n3 c\n", 2) == "1 a\n2 b\nend\n");
  CHECK(kept(folder, "1 a\n2 b\n3 c", 9) == "1 a\n2 b\nend\n");
  CHECK(kept(folder, "1 a\n2 b\n3 c\n2 B\n3 C\n", 3) == "1 a\n2 B\n3 C\nend\n");
  CHECK(kept(folder, "1 a\nno number\n2 b\n", 3) == "1 a\n2 b\nend\n");
  CHECK(kept(folder, "1 a\n", 0) == "end\n");
  CHECK(kept(folder, "", 5) == "end\n");
  const std::string longest = "1 " + std::string(std::size_t{3} << 20, 'x') + "\n";
  CHECK(kept(folder, longest + "2 b\n" + longest + "4 d\n", 4) == longest + "4 d\nend\n");
}
