#include "tools/new_plugin/new_plugin.hpp"

#include <strata/error.hpp>
#include <strata/plugin_kind.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"

using namespace strata;

namespace {

std::string made(const std::string& kind, const std::string& name, const std::string& folder) {
  std::ostringstream out;
  CHECK(cli::plugins_new(kind, name, folder, out) == 0);
  return out.str();
}

std::string refused(const std::string& kind, const std::string& name, const std::string& folder) {
  std::ostringstream out;
  const std::string text = error_of<UserError>([&] { cli::plugins_new(kind, name, folder, out); });
  CHECK(out.str().empty());
  return text;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("plugins new makes a project of every kind, with the name put in") {
  for (const std::string_view kind : plugin_kind_names) {
    INFO(kind);
    const TemporaryFolder folder;
    const std::string project = folder / "project";  // is made
    const std::string printed = made(std::string(kind), "my_own", project);
    const std::vector<std::string> names = names_in(project);
    CHECK(std::count(names.begin(), names.end(), "my_own.cpp") == 1);
    CHECK(names.size() >= 6);
    for (const std::string& name : names) {
      CHECK_THAT(printed, Contains(project + "/" + name + "\n"));
      CHECK_THAT(content_of(project + "/" + name), !Contains("@name@") && !Contains("@tokens@"));
    }
    CHECK_THAT(content_of(project + "/CMakeLists.txt"),
               Contains("strata_add_plugin(my_own KIND " + std::string(kind) + " "));
    CHECK_THAT(printed, Contains("\nNext:\n  cd \"" + project + "\"\n  cmake -B build && cmake --build build\n"));
    CHECK_THAT(printed, Contains("\n  strata plugins check build/libmy_own.so\n"));
    CHECK_THAT(printed, !Contains("```"));
    // The tokens are the project's own text, two bytes each, and more than a short run takes.
    CHECK(std::filesystem::file_size(project + "/text.bin") > 2 * 4000);
    CHECK_THAT(content_of(project + "/quickstart.yaml"), Contains("path: text.bin"));
  }
}

TEST_CASE("plugins new refuses bad arguments and then writes nothing") {
  const TemporaryFolder folder;
  const std::string here = folder.path().string();
  CHECK_THAT(refused("partitoner", "mine", here),
             Contains("'partitoner' is not a kind") && Contains("did you mean partitioner?"));
  CHECK_THAT(refused("strategy", "mine", here), Contains("known: device, communicator"));
  CHECK_THAT(refused("model", "My-Model", here),
             Contains("'My-Model' is not a valid plugin name") && Contains("did you mean my_model?"));
  CHECK_THAT(refused("model", "_", here), Contains("is not a valid plugin name") && !Contains("did you mean"));
  CHECK_THAT(refused("model", "", here), Contains("is not a valid plugin name"));
  CHECK_THAT(refused("model", "../mine", here), Contains("is not a valid plugin name"));
  CHECK_THAT(refused("model", std::string(65, 'a'), here), Contains("at most 64"));
  CHECK_THAT(refused("model", "mine", folder / "no/parent"),
             Contains("no/parent") && Contains("this folder cannot be created"));
  CHECK(names_in(folder.path()).empty());

  std::ofstream(folder / "file") << "text";
  CHECK_THAT(refused("model", "mine", folder / "file"), Contains("file: is a file; give a folder"));
  CHECK_THAT(refused("model", "mine", "/proc"), Contains("/proc"));
  for (const char* taken : {"mine.cpp", "text.bin", "README.md"}) {
    std::ofstream(folder / taken) << "kept";
    CHECK_THAT(refused("model", "mine", here), Contains(std::string("/") + taken + ": already exists"));
    CHECK(names_in(folder.path()).size() == 2);
    CHECK(content_of(folder / taken) == "kept");
    std::filesystem::remove(folder / taken);
  }
  std::filesystem::create_symlink("nowhere", folder / "mine.cpp");
  CHECK_THAT(refused("model", "mine", here), Contains("mine.cpp: already exists"));
  CHECK(names_in(folder.path()).size() == 2);
}

TEST_CASE("two projects of different names coexist, of the same name they do not") {
  const TemporaryFolder folder;
  made("scheduler", "one", folder / "one");
  made("scheduler", "two", folder / "two");
  const std::vector<std::string> before = names_in(folder / "one");
  CHECK_THAT(refused("scheduler", "one", folder / "one"), Contains("already exists"));
  CHECK_THAT(refused("optimizer", "other", folder / "one"), Contains("CMakeLists.txt: already exists"));
  CHECK(names_in(folder / "one") == before);
}
