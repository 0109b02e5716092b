// One library for each way a plugin can be wrong: each has its own error, of one line, that names the file and both
// sides.
#include <strata/fakes/plugin_context.hpp>
#include <strata/scheduler.hpp>

#include <limits>

#include "catch.hpp"
#include "error_of.hpp"
#include "plugins/manifest.hpp"
#include "plugins/registry.hpp"

using namespace strata;
using namespace strata::plugins;

namespace {

std::string file_of(const std::string& defect) {
  return BROKEN_FOLDER "/libstrata_scheduler_broken_" + defect + ".so";
}

// What finding and making the plugin gives.
template <class Expected>
std::string failure(const std::string& defect) {
  PluginRegistry registry(Folders{{BROKEN_FOLDER, "a test"}});
  fakes::FakePluginContext context("scheduler/broken", {});
  return error_of<Expected>([&] { registry.create(PluginKind::Scheduler, "broken_" + defect, context); });
}

void check_file_failure(const std::string& defect, const std::string& reason) {
  INFO(defect);
  CHECK(failure<EnvironmentError>(defect) == "plugin file " + file_of(defect) + " " + reason);
}

}  // namespace

TEST_CASE("without a defect the library loads") {
  CHECK(failure<EnvironmentError>("none") == "");
  CHECK(failure<EnvironmentError>("none") == "");
}

TEST_CASE("gate one: the manifest") {
  check_file_failure("older_major", abi_obstacle({0, STRATA_ABI_MINOR}, {STRATA_ABI_MAJOR, STRATA_ABI_MINOR}));
  check_file_failure("newer_minor", abi_obstacle({STRATA_ABI_MAJOR, 999}, {STRATA_ABI_MAJOR, STRATA_ABI_MINOR}));
  check_file_failure("other_libtorch", "was built with libtorch 1.13.1, but this Strata with " +
                                           host_fingerprint().libtorch + "; rebuild the plugin against this Strata");
  check_file_failure("unknown_kind",
                     "has the unknown kind 'wizard': known: device, communicator, partitioner, precision, scheduler, "
                     "offload, optimizer, model, data, learning_rate");
  check_file_failure("unknown_capability",
                     "declares the unknown capability 'splits_backwards': did you mean splits_backward?");
  check_file_failure("no_section", "is not a Strata plugin (it has no section .strata)");
  check_file_failure(
      "not_json",
      "has a manifest that cannot be read: it is not valid JSON: invalid literal; last read: 'k', at its byte 0");
  check_file_failure("bad_option",
                     "has a malformed schema: a default breaks its own rule: option depth is '9': the maximum is 8");
}

TEST_CASE("gate one loads nothing") {
  PluginRegistry registry(Folders{{BROKEN_FOLDER, "a test"}});
  CHECK_NOTHROW(registry.find(PluginKind::Scheduler, "broken_undefined_symbol"));
  CHECK(registry.find(PluginKind::Scheduler, "broken_no_entry").problem.empty());
}

TEST_CASE("gate two: the loaded library") {
  check_file_failure("no_entry", "is not a plugin: it does not export strata_plugin_entry_v1");
  check_file_failure("null_entry", "returns no entry from strata_plugin_entry_v1");
  check_file_failure("small_entry", "has an entry of 16 bytes; this Strata expects at least 32");
  check_file_failure("other_entry_abi", "contradicts itself: its entry says plugin ABI " +
                                            to_string(AbiVersion{STRATA_ABI_MAJOR, 999}) +
                                            ", its manifest " STRATA_ABI_TEXT);
  check_file_failure("other_manifest", "contradicts itself: its entry has another manifest than its section .strata");
  check_file_failure("no_factory", "has an entry without a factory");
  const std::string undefined = failure<EnvironmentError>("undefined_symbol");
  CHECK_THAT(undefined, Catch::StartsWith("plugin file " + file_of("undefined_symbol") + " cannot be loaded: "));
  CHECK_THAT(undefined, Contains("undefined symbol: strata_tests_function_that_nobody_has"));
}

TEST_CASE("a library that changes the floating-point mode is refused and undone") {
  const std::string reason =
      "when it was loaded, changed this thread's treatment of denormal numbers or floating-point exceptions (flush to "
      "zero), which affects all later results; compile and link the plugin without -ffast-math and -Ofast, and restore "
      "such a mode before it returns";
  volatile double small = std::numeric_limits<double>::min();
  check_file_failure("fast_math", reason);
  CHECK(small / 2 > 0.0);
  check_file_failure("fast_math", reason);
}

TEST_CASE("an unusable library fails the same way the second time") {
  check_file_failure("no_entry", "is not a plugin: it does not export strata_plugin_entry_v1");
  check_file_failure("null_entry", "returns no entry from strata_plugin_entry_v1");
}

TEST_CASE("a factory that fails") {
  CHECK_THAT(failure<Bug>("throws"), Contains("plugin scheduler/broken_throws: create: out of ideas"));
  CHECK_THAT(failure<Bug>("returns_nothing"),
             Contains("plugin scheduler/broken_returns_nothing: create: the factory returned nothing"));
  CHECK_THAT(failure<Bug>("other_state_version"), Contains("state_version() is 1, STATE_VERSION in its manifest is 2"));
}
