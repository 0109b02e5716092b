// The main function of every test executable, compiled once. It runs the cases; a run that loaded a plugin of the tree
// that PLUGINS of its strata_add_test does not name has failed, because such a plugin need not be built.
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

namespace {

constexpr std::string_view begin_of_name = "libstrata_";

// "kind_name," of each library that this process has loaded from a folder strata/plugins.
std::string loaded_plugins() {
  std::string names;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* found) {
        const std::filesystem::path file(library->dlpi_name);
        if (file.parent_path().string().ends_with("/lib/strata/plugins"))
          *static_cast<std::string*>(found) += file.stem().string().substr(begin_of_name.size()) + ",";
        return 0;
      },
      &names);
  return names;
}

// Prints the plugins that were loaded and are not in STRATA_TEST_PLUGINS, a list with commas, and returns whether there
// are any.
bool loaded_others() {
  const char* const named = std::getenv("STRATA_TEST_PLUGINS");
  if (named == nullptr) return false;
  const std::string allowed = "," + std::string(named) + ",";
  bool found = false;
  std::string rest = loaded_plugins();
  for (std::size_t comma = 0; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1)) {
    if (allowed.find("," + rest.substr(0, comma) + ",") != std::string::npos) continue;
    std::cerr << "loaded " << rest.substr(0, comma) << ", which PLUGINS of this test's strata_add_test does not name\n";
    found = true;
  }
  return found;
}

}  // namespace

int main(int argc, char* argv[]) {
  const int failed = Catch::Session().run(argc, argv);
  return loaded_others() ? EXIT_FAILURE : failed;
}
