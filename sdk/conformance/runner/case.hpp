// The conformance kit: what a plugin of a kind must do, as cases. A case is a function and a sentence; it runs in a
// process of its own (see run_case.hpp), so that a crash or a hang is a result. The data flow:
//   file -> Manifest (nothing loaded) -> general_cases + the kind's cases -> one process each -> Outcome -> text, JUnit
//   or JSON
#pragma once
#include <strata/fakes/plugin_library.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/manifest.hpp"

namespace strata::conformance {

// What the plugin does wrong: the plugin's author reads it, so it says what was asked, what came and what the rule is.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The same of a drawn world (drawn/search.hpp), which `replay` carries out again.
class DrawnFailure : public Failure {
 public:
  DrawnFailure(const std::string& text, std::string replay_choices)
      : Failure(text), replay(std::move(replay_choices)) {}
  std::string replay;
};

// Why a case says nothing about this plugin ("it has no option with limits").
class Skip : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Failure with `text` unless it holds.
inline void require(bool holds, const std::string& text) {
  if (!holds) throw Failure(text);
}

// How drawn worlds are looked for.
struct SearchSettings {
  int seconds = 0;     // at least so long, in each case that draws
  int seeds = 0;       // the first world of so many seeds, from --seed on, in place of many of one
  std::string replay;  // this world only: what a failed case printed
  bool in_process = false;
};

// The plugin under test.
class Subject {
 public:
  // Reads the manifest and loads nothing. Throws UserError where the file has none that can be read.
  Subject(std::string file, std::uint64_t seed, SearchSettings search = {});

  const std::string& file() const { return file_; }
  const plugins::Manifest& manifest() const { return manifest_; }
  bool can(Capability capability) const;
  // Loads it, the first time.
  const fakes::PluginLibrary& library();
  // An instance with its context; options spelled as in a config, the others at their defaults.
  template <class Interface>
  fakes::LoadedPlugin<Interface> make(const fakes::OptionTexts& changed = {}, int rank = 0, MeshShape mesh = {}) {
    return fakes::LoadedPlugin<Interface>(library(), changed, rank, mesh);
  }
  // Option settings that find most: the defaults, then each option by itself at its least, at its greatest, flipped, or
  // at each other choice, as the schema has them. A plugin may refuse a setting with UserError ("shard_size must divide
  // the ranks"): such a setting says nothing there and is passed over.
  std::vector<fakes::OptionTexts> settings() const;
  // For random sizes and values: the same for the same --seed and case; of a later seed with `ahead`.
  std::mt19937_64 random(std::string_view case_name, int ahead = 0) const;
  const SearchSettings& search() const { return search_; }

 private:
  std::string file_;
  std::uint64_t seed_;
  SearchSettings search_;
  plugins::Manifest manifest_;
  std::optional<fakes::PluginLibrary> library_;
};

// "1 rank", "3 ranks"; "2 micro-batches".
std::string count(int number, const std::string& noun);

// "shard_size=2, stage=3", or "defaults".
std::string to_string(const fakes::OptionTexts& options);

struct Case {
  std::string_view name;              // "partitioner.slices_cover": kind or "general", dot, words joined by _
  std::string_view sentence;          // what holds for a plugin that passes, in one sentence: the report's text
  std::function<void(Subject&)> run;  // throws Failure or Skip; any other exception is a failure with its text
  std::chrono::seconds deadline{60};
  bool draws = false;  // worlds: --seconds and --replay are for it
};

// One file a subject in the folder of the kind; each function gives its cases in the order they are run.
std::vector<Case> general_cases();
std::vector<Case> partitioner_cases();
std::vector<Case> scheduler_cases();
std::vector<Case> precision_cases();
std::vector<Case> optimizer_cases();
std::vector<Case> offload_cases();
std::vector<Case> communicator_cases();
std::vector<Case> model_cases();
std::vector<Case> device_cases();
std::vector<Case> data_cases();
std::vector<Case> learning_rate_cases();

// general_cases() and those of the kind.
std::vector<Case> cases_of(PluginKind kind);

}  // namespace strata::conformance
