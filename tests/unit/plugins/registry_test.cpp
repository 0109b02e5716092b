#include "plugins/registry.hpp"

#include <strata/fakes/plugin_context.hpp>
#include <strata/scheduler.hpp>

#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "config/defaults.hpp"
#include "error_of.hpp"
#include "little_library.hpp"
#include "little_options.hpp"
#include "plugins/plugin_stack.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::plugins;
namespace fs = std::filesystem;

namespace {

std::string copy(const std::string& from, const std::string& to) {
  fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  return to;
}

OptionValues options_with(const std::string& name, OptionValue value) {
  OptionValues values = default_options(LittleOptions::specs());
  values.set(name, std::move(value));
  return values;
}

class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* former = std::getenv(name)) former_ = former;
    ::setenv(name, value.c_str(), 1);
  }
  ~EnvironmentVariable() { ::setenv(name_, former_.c_str(), 1); }

 private:
  const char* name_;
  std::string former_;
};

// Contexts that write into one list, so that it has the order among plugins.
class ContextOfSeveral final : public PluginContext {
 public:
  ContextOfSeveral(std::string name, OptionValues options, std::vector<std::string>& log)
      : name_(std::move(name)), options_(std::move(options)), log_(log) {}
  const std::string& plugin_name() const override { return name_; }
  const OptionValues& options() const override { return options_; }
  int rank() const override { return 0; }
  const MeshShape& mesh() const override { return mesh_; }
  void log(LogLevel, const std::string& text) override { log_.push_back(name_ + " " + text); }
  void set_metric(const std::string&, const std::string&, double) override {}
  void* extension(const char*) override { return nullptr; }

 private:
  std::string name_;
  OptionValues options_;
  std::vector<std::string>& log_;
  MeshShape mesh_;
};

class Registered : public Scheduler {
 public:
  Placement place(const std::vector<LayerCost>& /*layers*/, const PipelineShape& /*shape*/) const override {
    return {};
  }
  std::vector<ComputeAction> order(const PipelineShape& /*shape*/, int /*stage*/) const override { return {}; }
};

}  // namespace

TEST_CASE("a plugin is found by name, made, used and shut down") {
  PluginRegistry registry(Folders{{LITTLE_FOLDER, "a test"}});
  const FoundPlugin& found = registry.find(PluginKind::Scheduler, "little");
  CHECK(found.manifest.description == "A little plugin; it's 100% for tests, with 'quotes' & signs");
  CHECK(found.problem.empty());
  CHECK(registry.loaded().empty());

  fakes::FakePluginContext context("scheduler/little", options_with("depth", std::int64_t{7}));
  {
    PluginStack stack;
    Scheduler& scheduler = stack.push("scheduler/little", registry.create<Scheduler>("little", context));
    CHECK(scheduler.order({}, 0).size() == 7);
    CHECK(registry.loaded() == std::vector<const FoundPlugin*>{&found});
  }
  CHECK(context.logged() == std::vector<std::string>{"made", "shut down", "destroyed"});
}

TEST_CASE("a plugin survives gc-sections, LTO and strip") {
  PluginRegistry registry(Folders{{LITTLE_FOLDER, "a test"}});
  for (const std::string name : {"little_gc", "little_lto", "little_stripped"}) {
    INFO(name);
    fakes::FakePluginContext context("scheduler/little", default_options(LittleOptions::specs()));
    CHECK(registry.create<Scheduler>(name, context)->order({}, 0).size() == 5000);
  }
}

TEST_CASE("plugins are shut down and destroyed in reverse, all of them") {
  PluginRegistry registry(Folders{{LITTLE_FOLDER, "a test"}});
  std::vector<std::string> log;
  ContextOfSeveral first("first", default_options(LittleOptions::specs()), log);
  ContextOfSeveral second("second", options_with("depth", std::int64_t{13}), log);
  ContextOfSeveral third("third", default_options(LittleOptions::specs()), log);
  {
    PluginStack stack;
    stack.push("first", registry.create<Scheduler>("little", first));
    stack.push("second", registry.create<Scheduler>("little", second));
    stack.push("third", registry.create<Scheduler>("little", third));
    log.clear();
    CHECK(error_of<EnvironmentError>([&] { stack.shutdown(); }) == "plugin second: shutdown: a thread did not end");
    CHECK_NOTHROW(stack.shutdown());
  }
  CHECK(log == std::vector<std::string>{"third shut down", "second shut down", "first shut down", "third destroyed",
                                        "second destroyed", "first destroyed"});
}

TEST_CASE("a part of the plugins is shut down once; those before it go on") {
  PluginRegistry registry(Folders{{LITTLE_FOLDER, "a test"}});
  std::vector<std::string> log;
  ContextOfSeveral first("first", default_options(LittleOptions::specs()), log);
  ContextOfSeveral second("second", default_options(LittleOptions::specs()), log);
  ContextOfSeveral third("third", default_options(LittleOptions::specs()), log);
  PluginStack stack;
  stack.push("first", registry.create<Scheduler>("little", first));
  const Plugin& middle = stack.push("second", registry.create<Scheduler>("little", second));
  const Plugin& last = stack.push("third", registry.create<Scheduler>("little", third));
  log.clear();
  for (int call = 0; call < 2; ++call) {
    stack.shutdown(&middle);
    stack.shutdown(&last);
    CHECK(log == std::vector<std::string>{"third shut down", "second shut down"});
  }
  stack.shutdown();
  CHECK(log.back() == "first shut down");
}

TEST_CASE("an error from a factory keeps its class and gets the plugin's name") {
  PluginRegistry registry(Folders{{LITTLE_FOLDER, "a test"}});
  const auto create = [&](const std::string& failure) {
    fakes::FakePluginContext context("scheduler/little", options_with("fails_with", failure));
    registry.create(PluginKind::Scheduler, "little", context);
  };
  CHECK(error_of<UserError>([&] { create("user"); }) == "scheduler/little: depth and ratio do not go together");
  CHECK(error_of<EnvironmentError>([&] { create("environment"); }) ==
        "plugin scheduler/little: create: no such device");
  CHECK_THAT(error_of<Bug>([&] { create("runtime"); }), Catch::EndsWith("scheduler/little: create: first line"));
  CHECK_THAT(error_of<Bug>([&] { create("integer"); }), Contains("threw something that is not a std::exception"));
}

TEST_CASE("a path must be absolute, there, and of the right kind") {
  PluginRegistry registry({});
  CHECK(registry.find(PluginKind::Scheduler, little).manifest.name == "little");
  CHECK(&registry.find(PluginKind::Scheduler, little) == &registry.find_file(little));
  CHECK(error_of<UserError>([&] { registry.find(PluginKind::Partitioner, little); }) ==
        "plugin file " + little + " is scheduler/little, but a partitioner is needed here");
  CHECK_THAT(error_of<UserError>([&] { registry.find(PluginKind::Scheduler, "./little.so"); }),
             Contains("is a relative path"));
  CHECK_THAT(error_of<UserError>([&] { registry.find(PluginKind::Scheduler, "/nowhere/little.so"); }),
             Contains("/nowhere/little.so: cannot be found"));
  CHECK_THAT(error_of<EnvironmentError>([&] { registry.find(PluginKind::Scheduler, LITTLE_FOLDER); }),
             Contains("is a folder"));
}

TEST_CASE("a missing plugin's error names folders, plugins and the nearest") {
  const TemporaryFolder empty;
  PluginRegistry registry(
      {{LITTLE_FOLDER, "plugin_path"}, {empty.path(), "STRATA_PLUGIN_PATH"}, {"/nowhere", "a test"}});
  const std::string message = error_of<UserError>([&] { registry.find(PluginKind::Scheduler, "litle"); });
  CHECK_THAT(message, Contains("no plugin scheduler/litle; did you mean little?; known:"));
  CHECK_THAT(message, Contains("little_lto"));
  CHECK_THAT(message, Contains(LITTLE_FOLDER " (plugin_path) " + empty.path().string() + " (STRATA_PLUGIN_PATH)"));
  CHECK_THAT(message, Contains("/nowhere (a test, not there)"));
  CHECK(message.find('\n') == std::string::npos);
  const std::string other_kind = error_of<UserError>([&] { registry.find(PluginKind::Model, "little"); });
  CHECK_THAT(other_kind,
             Contains("no plugin model/little (scheduler/little is another kind); no model plugin is known"));
}

TEST_CASE("the earlier folder wins and the later plugin is listed as shadowed") {
  const TemporaryFolder first;
  const TemporaryFolder second;
  const std::string winner = copy(little, first / "libstrata_scheduler_little.so");
  const std::string loser = copy(little, second / "anything.so");
  std::ofstream(second / "not_a_library.txt") << "ignored";
  PluginRegistry registry(Folders{{first.path(), "plugin_path"}, {second.path(), "STRATA_PLUGIN_PATH"}});
  CHECK(registry.find(PluginKind::Scheduler, "little").file == winner);
  const std::vector<const FoundPlugin*> all = registry.list();
  REQUIRE(all.size() == 2);
  CHECK(all[0]->shadowed_by.empty());
  CHECK(all[1]->file == loser);
  CHECK(all[1]->shadowed_by == winner);

  registry.register_plugin(PluginKind::Scheduler, "little", [](PluginContext&) { return nullptr; });
  CHECK(registry.find(PluginKind::Scheduler, "little").file.empty());
  CHECK(registry.list()[1]->shadowed_by == "this program");
}

TEST_CASE("two plugins of one name in a folder are an error, a symbolic link is not") {
  const TemporaryFolder folder;
  const std::string first = copy(little, folder / "a.so");
  fs::create_symlink(first, folder / "link.so");
  {
    PluginRegistry registry(Folders{{folder.path(), "plugin_path"}});
    CHECK(registry.list().size() == 1);
    CHECK(registry.find(PluginKind::Scheduler, "little").file == first);
  }
  const std::string second = copy(little, folder / "b.so");
  PluginRegistry registry(Folders{{folder.path(), "plugin_path"}});
  const std::string message = error_of<EnvironmentError>([&] { registry.find(PluginKind::Scheduler, "little"); });
  CHECK(message == "plugin file " + first + " is scheduler/little, and so is " + second +
                       "; a folder can hold one plugin of a name: remove one");
}

TEST_CASE("a damaged file does not hide behind a later folder") {
  const TemporaryFolder first;
  std::ofstream(first / "libstrata_scheduler_little.so") << "damaged";
  PluginRegistry registry(Folders{{first.path(), "plugin_path"}, {LITTLE_FOLDER, "STRATA_PLUGIN_PATH"}});
  CHECK(error_of<EnvironmentError>([&] { registry.find(PluginKind::Scheduler, "little"); }) ==
        "plugin file " + (first / "libstrata_scheduler_little.so") + " is not an ELF shared library");
  CHECK_NOTHROW(registry.find(PluginKind::Scheduler, "little_gc"));
  CHECK_THAT(error_of<UserError>([&] { registry.find(PluginKind::Scheduler, "missing"); }),
             Contains("is not an ELF shared library"));
}

TEST_CASE("a program registers its own plugins") {
  PluginRegistry registry({});
  registry.register_plugin(PluginKind::Scheduler, "mine", [](PluginContext&) { return std::make_unique<Registered>(); },
                           LittleOptions::specs(), {Capability::SplitsBackward});
  const FoundPlugin& found = registry.find(PluginKind::Scheduler, "mine");
  CHECK(found.manifest.options.size() == 8);
  CHECK(found.manifest.capabilities == std::vector<Capability>{Capability::SplitsBackward});
  fakes::FakePluginContext context("scheduler/mine", {});
  CHECK(registry.create<Scheduler>("mine", context) != nullptr);
  CHECK_THROWS_AS(registry.register_plugin(PluginKind::Scheduler, "mine", [](PluginContext&) { return nullptr; }), Bug);
  CHECK_THROWS_AS(registry.register_plugin(PluginKind::Scheduler, "_mine", [](PluginContext&) { return nullptr; }),
                  Bug);
  CHECK_THROWS_AS(registry.register_plugin(PluginKind::Scheduler, "other", {}), Bug);
  registry.register_plugin(PluginKind::Scheduler, "null", [](PluginContext&) { return nullptr; });
  CHECK_THAT(error_of<Bug>([&] { registry.create<Scheduler>("null", context); }), Contains("returned nothing"));
}

TEST_CASE("the search path is config, environment, installation, each folder once") {
  const TemporaryFolder one;
  const TemporaryFolder two;
  const EnvironmentVariable variable(
      "STRATA_PLUGIN_PATH", two.path().string() + "::" + one.path().string() + "/../" + one.path().filename().string());
  const std::vector<SearchFolder> folders = search_folders({one.path().string()});
  REQUIRE(folders.size() == 3);
  CHECK(folders[0].folder == one.path());
  CHECK(folders[0].origin == "plugin_path");
  CHECK(folders[1].folder == two.path());
  CHECK(folders[1].origin == "STRATA_PLUGIN_PATH");
  CHECK(folders[2].folder == strata::config::library_folder() / "strata/plugins");
  CHECK_THAT(folders[2].folder.string(), Catch::EndsWith("/lib/strata/plugins"));
  CHECK_THAT(error_of<UserError>([] { search_folders({"plugins"}); }),
             Contains("plugin_path names the relative folder 'plugins'"));
  const EnvironmentVariable relative("STRATA_PLUGIN_PATH", ".");
  CHECK_THAT(error_of<UserError>([] { search_folders({}); }), Contains("STRATA_PLUGIN_PATH names the relative folder"));
}
