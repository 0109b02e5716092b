// Cases on save() and load().
#include <strata/error.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/precision_policy.hpp>

#include <limits>
#include <optional>

#include "conformance/general/any_plugin.hpp"
#include "conformance/general/general_cases.hpp"

namespace strata::conformance {

namespace {

using fakes::OptionTexts;
using fakes::SavedState;

// Moves the state of kinds that have one and need nothing else for it.
void use(Subject& subject, Plugin& plugin) {
  if (subject.manifest().kind != PluginKind::PrecisionPolicy) return;
  auto& policy = static_cast<PrecisionPolicy&>(plugin);  // the manifest's kind vouches for the class, see registry.hpp
  for (const bool finite : {true, false, true, true, false, false, true})
    policy.judge({1, finite ? 1.0 : std::numeric_limits<double>::infinity(), finite});
}

SavedState saved(const AnyPlugin& plugin) {
  SavedState state;
  plugin->save(state);
  return state;
}

// Whether it saves anything.
bool check_state(Subject& subject, const OptionTexts& setting) {
  std::optional<AnyPlugin> first;
  try {
    first.emplace(subject, setting);
  } catch (const UserError&) {
    return false;  // it refuses this setting
  }
  use(subject, **first);
  SavedState state = saved(*first);
  require(saved(*first) == state,
          "with " + to_string(setting) + " a second save() writes another state than the first");
  AnyPlugin fresh(subject, setting);
  AnyPlugin used(subject, setting);
  for (int times = 0; times < 2; ++times) use(subject, *used);
  for (AnyPlugin* other : {&fresh, &used}) {
    (*other)->load(state, subject.manifest().state_version);
    require(saved(*other) == state,
            "with " + to_string(setting) + " an instance that loaded a state saves another state");
  }
  return !state.names().empty();
}

void state_comes_back(Subject& subject) {
  bool saves = false;
  for (const OptionTexts& setting : subject.settings()) saves = check_state(subject, setting) || saves;
  if (!saves) throw Skip("the plugin saves no state");
}

void newer_state_is_refused(Subject& subject) {
  AnyPlugin plugin(subject);
  use(subject, *plugin);
  SavedState state = saved(plugin);
  if (state.names().empty()) throw Skip("the plugin saves no state");
  AnyPlugin other(subject);
  const int newer = subject.manifest().state_version + 1;
  try {
    other->load(state, newer);
  } catch (const UserError&) {
    return;
  } catch (const std::exception& error) {
    throw Failure("load() with state of version " + std::to_string(newer) + " must throw a UserError; it threw " +
                  error.what());
  }
  throw Failure("load() accepts state of version " + std::to_string(newer) +
                ", which is newer than the plugin's and may have another meaning");
}

// A checkpoint without a value is an error of the file, which the reader reports.
void missing_state_is_refused(Subject& subject) {
  AnyPlugin plugin(subject);
  use(subject, *plugin);
  if (saved(plugin).names().empty()) throw Skip("the plugin saves no state");
  SavedState nothing;
  AnyPlugin other(subject);
  try {
    other->load(nothing, subject.manifest().state_version);
  } catch (const UserError&) {
    return;
  } catch (const std::exception& error) {
    throw Failure(std::string("load() of a state without its values must throw a UserError; it threw ") + error.what());
  }
  throw Failure("load() accepts a state without any of its values, as if nothing had been saved");
}

}  // namespace

std::vector<Case> state_cases() {
  return {
      {"general.state", "An instance that loaded a state saves the same state, byte for byte.", state_comes_back},
      {"general.newer_state", "load() refuses a state of a newer STATE_VERSION.", newer_state_is_refused},
      {"general.missing_state", "load() refuses a state with missing values.", missing_state_is_refused},
  };
}

}  // namespace strata::conformance
