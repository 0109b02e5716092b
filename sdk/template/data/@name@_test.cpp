// @name@: the order of samples that are written out here.
#include <strata/data_source.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <filesystem>

#include "catch.hpp"

using namespace strata;

namespace {

using Ids = std::vector<std::int64_t>;

// Three samples of seq_len 3: of 3, 1 and 2 different tokens.
const Ids row{5, 6, 7, 7, 7, 7, 7, 8, 7, 8};

Ids numbers(const fakes::OptionTexts& options, std::int64_t wanted) {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<DataSource> plugin(library, options);
  const std::string path = (std::filesystem::temp_directory_path() / "@name@_test.bin").string();
  plugin->write(path, row);
  const std::unique_ptr<DataSet> set = plugin->open(path);
  std::filesystem::remove(path);
  const std::unique_ptr<Samples> samples = set->own_order({3, wanted, 1});
  Ids result;
  for (std::int64_t position = 0; position < samples->count(); ++position) result.push_back(samples->sample(position));
  return result;
}

}  // namespace

TEST_CASE("samples of few different tokens come first") {
  CHECK(numbers({}, 0) == Ids{1, 2, 0});
  CHECK(numbers({{"hardest_first", "true"}}, 0) == Ids{0, 2, 1});
}

TEST_CASE("further epochs follow") {
  CHECK(numbers({}, 4) == Ids{1, 2, 0, 4, 5, 3});
}
