// The conformance kit: the requirements on a plugin of a kind, as cases. A case is a function and a sentence; it runs
// in a separate process (see run_case.hpp), so that a crash or a hang is a result. The data flow:
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

// Violation by the plugin. The plugin's author reads it: it gives the call, the result and the rule.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Violation in a drawn world (drawn/search.hpp), which `replay` repeats.
class DrawnFailure : public Failure {
 public:
  DrawnFailure(const std::string& text, std::string replay_choices)
      : Failure(text), replay(std::move(replay_choices)) {}
  std::string replay;
};

// Reason why a case does not apply to this plugin ("it has no option with limits").
class Skip : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Failure with `text` unless `holds`.
inline void require(bool holds, const std::string& text) {
  if (!holds) throw Failure(text);
}

// Settings of the search for drawn worlds.
struct SearchSettings {
  int seconds = 0;     // minimum duration, in each case that draws
  int seeds = 0;       // number of seeds, from --seed on, each with the first world; replaces the search with one seed
  std::string replay;  // runs only this world, printed by a failed case
  bool in_process = false;
};

// The plugin under test.
class Subject {
 public:
  // Reads the manifest and loads nothing. Throws UserError if the file has no readable manifest.
  Subject(std::string file, std::uint64_t seed, SearchSettings search = {});

  const std::string& file() const { return file_; }
  const plugins::Manifest& manifest() const { return manifest_; }
  bool can(Capability capability) const;
  // Returns the library, loaded at the first call.
  const fakes::PluginLibrary& library();
  // Creates an instance with its context; options are spelled as in a config, others have their defaults.
  template <class Interface>
  fakes::LoadedPlugin<Interface> make(const fakes::OptionTexts& changed = {}, int rank = 0, MeshShape mesh = {}) {
    return fakes::LoadedPlugin<Interface>(library(), changed, rank, mesh);
  }
  // Returns option settings that find the most errors: the defaults, then each option alone at its minimum, at its
  // maximum, flipped, or at each other choice of the schema. A plugin may refuse a setting with UserError ("shard_size
  // must divide the ranks"); such a setting is skipped.
  std::vector<fakes::OptionTexts> settings() const;
  // Returns the random source for sizes and values: equal for equal --seed and case; `ahead` selects a later seed.
  std::mt19937_64 random(std::string_view case_name, int ahead = 0) const;
  const SearchSettings& search() const { return search_; }

 private:
  std::string file_;
  std::uint64_t seed_;
  SearchSettings search_;
  plugins::Manifest manifest_;
  std::optional<fakes::PluginLibrary> library_;
};

// Returns "1 rank", "3 ranks"; "2 micro-batches".
std::string count(int number, const std::string& noun);

// Returns "shard_size=2, stage=3", or "defaults".
std::string to_string(const fakes::OptionTexts& options);

struct Case {
  std::string_view name;              // "partitioner.slices_cover": kind or "general", dot, words joined by _
  std::string_view sentence;          // property of a plugin that passes, in one sentence, for the report
  std::function<void(Subject&)> run;  // throws Failure or Skip; any other exception is a failure with its text
  std::chrono::seconds deadline{60};
  bool draws = false;  // true: draws worlds, for --seconds and --replay
};

// Cases of a kind, one file per subject in its folder; each function returns its cases in the order of execution.
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

// Returns general_cases() and the cases of the kind.
std::vector<Case> cases_of(PluginKind kind);

}  // namespace strata::conformance
