#include "tools/plugins/plugins.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "unit/plugins/little_library.hpp"
#include "unit/plugins/little_options.hpp"

using namespace strata;
using namespace strata::plugin_host;
using nlohmann::json;

namespace {

// A damaged file, a shadowed plugin and one of the program's beside those of the little folder.
struct Fixture {
  Fixture() : registry(Folders{{LITTLE_FOLDER, "plugin_path"}, {folder.path(), "STRATA_PLUGIN_PATH"}}) {
    std::ofstream(folder / "damaged.so") << "nothing";
    std::filesystem::copy_file(little, folder / "again.so");
    registry.register_plugin(PluginKind::Model, "mine", [](PluginContext&) { return nullptr; });
  }
  std::string list(const std::string& format) {
    std::ostringstream out;
    CHECK(cli::plugins_list(registry, format, out) == 0);
    return out.str();
  }
  std::string show(const std::string& which, bool all, const std::string& format) {
    std::ostringstream out;
    CHECK(cli::plugins_show(registry, which, all, format, out) == 0);
    return out.str();
  }
  TemporaryFolder folder;
  PluginRegistry registry;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "plugins list shows every file, the unusable ones with their reason") {
  const std::string table = list("table");
  CHECK_THAT(table, Catch::StartsWith("plugin "));
  CHECK_THAT(table, Contains("scheduler/little "));
  CHECK_THAT(table, Contains("A little plugin; it's 100% for tests, with 'quotes' & signs  " + little + "\n"));
  CHECK_THAT(table, Contains("model/mine "));
  CHECK_THAT(table, Contains((folder / "again.so") + " "));
  CHECK_THAT(table, Contains("shadowed by " + little));
  CHECK_THAT(table, Contains((folder / "damaged.so")));
  CHECK_THAT(table, Contains("unusable: is not an ELF shared library"));
  CHECK_THAT(
      list("markdown"),
      Catch::Matches("\\| plugin +\\| version +\\| description +\\| file +\\| note +\\|\n(\\| -+ ){5}\\|\n[^]*"));
  CHECK_THAT(list("csv"),
             Contains("scheduler/little,1.2.3,\"A little plugin; it's 100% for tests, with 'quotes' & signs\","));

  const json entries = json::parse(list("json"));
  REQUIRE(entries.size() == registry.list().size());
  CHECK(entries[0]["plugin"] == "model/mine");
  bool damaged = false;
  for (const json& entry : entries) damaged = damaged || entry["problem"] == "is not an ELF shared library";
  CHECK(damaged);
  CHECK(registry.loaded().empty());
}

TEST_CASE("an empty search path lists nothing and does not fail") {
  PluginRegistry registry({});
  std::ostringstream out;
  CHECK(cli::plugins_list(registry, "csv", out) == 0);
  CHECK(out.str() == "plugin,version,description,file,note\n");
}

TEST_CASE_METHOD(Fixture, "plugins show prints facts and options") {
  const std::string text = show("scheduler/little", false, "table");
  CHECK_THAT(text, Contains("scheduler/little  1.2.3\n"));
  CHECK_THAT(text, Contains("capabilities      splits_backward\n"));
  CHECK_THAT(text, Contains("equivalence       tolerance(0.001)\n"));
  CHECK_THAT(text, Contains("depth       integer   5000         0 to 64000        layers  An integer;"));
  CHECK_THAT(text, Contains("forward, reverse"));
  CHECK_THAT(text, Contains("from 1KiB"));
  CHECK(show(little, false, "table") == text);
  CHECK_THAT(show("model/mine", false, "table"), Contains("no options\n"));
  CHECK_THAT(show("scheduler/little", false, "markdown"), Contains("and \\|bars\\| included."));

  const json object = json::parse(show("scheduler/little", false, "json"));
  CHECK(object["plugin"] == "scheduler/little");
  CHECK(object["capabilities"] == json::array({"splits_backward"}));
  REQUIRE(object["options"].size() == LittleOptions::specs().size());
  CHECK(object["options"][0]["maximum"] == "64000");
  CHECK(object["options"][3]["choices"] == json::array({"forward", "reverse"}));
}

TEST_CASE_METHOD(Fixture, "plugins show --all is the reference of all usable options") {
  const std::string csv = show("", true, "csv");
  CHECK_THAT(csv, Catch::StartsWith("plugin,option,type,default,range,unit,documentation\n"));
  CHECK_THAT(csv, Contains("scheduler/little,betas,numbers,\"[0.9, 0.95]\",0 to 0.999,,A list of numbers.\n"));
  CHECK_THAT(csv, Contains("scheduler/little_lto,betas,"));
  const json entries = json::parse(show("", true, "json"));
  CHECK(entries.size() == registry.list().size() - 2);
}

TEST_CASE_METHOD(Fixture, "plugins show --all in Markdown is a document with a section a plugin") {
  std::string text = show("", true, "markdown");
  text.erase(std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }), text.end());
  CHECK_THAT(text, Catch::StartsWith("Made by `strata plugins show --all --format markdown`"));
  CHECK_THAT(text, Contains("\n\n## scheduler/little\n\nA little plugin; it's 100% for tests, with 'quotes' & signs. "
                            "Equivalence: tolerance(0.001). Capabilities: splits_backward.\n\n| option "));
  CHECK_THAT(text, Contains("\n| `depth` | integer | `5000` | 0 to 64000 layers | An integer;"));
  CHECK_THAT(text, Contains("\n| `order` | choice | `forward` | forward, reverse | A text with choices,"));
  CHECK_THAT(text, Contains("\n| `bucket` | size | `64MiB` | from 1KiB | A size. |\n"));
  CHECK_THAT(text, Contains("\n| `fails_with` | text | | | What the constructor throws;"));
  CHECK_THAT(
      text,
      Contains(
          "\n## model/mine\n\nregistered by this program. Equivalence: bitwise. Capabilities: none.\n\nNo options.\n"));
  CHECK(text.find(folder / "damaged.so") == std::string::npos);
}

TEST_CASE_METHOD(Fixture, "plugins show says what is wrong with its arguments") {
  std::ostringstream out;
  const auto failure = [&](const std::string& which, bool all, const std::string& format) {
    return error_of<UserError>([&] { cli::plugins_show(registry, which, all, format, out); });
  };
  CHECK_THAT(failure("scheduler/little", false, "tabel"),
             Contains("--format tabel: table, markdown, csv or json is expected"));
  CHECK_THAT(failure("", false, "table"), Contains("(KIND/NAME or an absolute path) or --all"));
  CHECK_THAT(failure("scheduler/little", true, "table"), Contains("(KIND/NAME or an absolute path) or --all"));
  CHECK_THAT(failure("little", false, "table"), Contains("give KIND/NAME"));
  CHECK_THAT(failure("schedule/little", false, "table"), Contains("did you mean scheduler?"));
  CHECK_THAT(failure("scheduler/", false, "table"), Contains("no plugin scheduler/"));
  CHECK_THROWS_AS(cli::plugins_show(registry, folder / "damaged.so", false, "table", out), EnvironmentError);
}
