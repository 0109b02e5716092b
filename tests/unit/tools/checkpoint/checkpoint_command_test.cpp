// Whoever sends somebody a checkpoint must not thereby run a program of theirs.
#include <strata/error.hpp>

#include <cstdlib>
#include <sstream>

#include "catch.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "tools/checkpoint/checkpoint.hpp"

using namespace strata;

namespace {

// What `strata checkpoint export` says of a checkpoint with these settings, or "exported".
std::string export_of(const TemporaryFolder& folder, const std::vector<std::pair<std::string, std::string>>& settings,
                      const std::string& plugin_path) {
  checkpoint::TrainingCheckpoint saved;
  saved.config = settings;
  const std::filesystem::path path = folder.path() / "step-0";
  std::filesystem::create_directories(path);
  write_file((path / checkpoint::checkpoint_file_name).string(), saved.text());
  std::ostringstream out;
  cli::CheckpointArguments arguments;
  arguments.path = path.string();
  arguments.folder = folder / "out";
  arguments.plugin_path = plugin_path;
  try {
    cli::checkpoint_export(arguments, out);
  } catch (const UserError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "exported";
}

}  // namespace

TEST_CASE("no library is loaded because a checkpoint names it") {
  const TemporaryFolder folder;
  const std::string mark = folder / "mark";
  setenv("STRATA_TEST_MARK", mark.c_str(), 1);
  CHECK_THAT(export_of(folder, {{"model.plugin", MARKS_FILE}}, ""),
             Contains("loads no code from such a path") && Contains("--export"));
  CHECK_FALSE(std::filesystem::exists(mark));
  CHECK_THAT(export_of(folder, {{"model.plugin", "marks"}, {"plugin_path", MARKS_FOLDER}}, ""),
             Contains("no plugin model/marks") && Contains("--plugin-path"));
  CHECK_FALSE(std::filesystem::exists(mark));
  export_of(folder, {{"model.plugin", "marks"}}, MARKS_FOLDER);  // now its user has named it
  CHECK(std::filesystem::exists(mark));
  unsetenv("STRATA_TEST_MARK");
}
