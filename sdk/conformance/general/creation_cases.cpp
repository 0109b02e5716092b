// Instances and the options they are made with.
#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include "conformance/general/any_plugin.hpp"
#include "conformance/general/general_cases.hpp"

namespace strata::conformance {

namespace {

using fakes::OptionTexts;

struct Place {
  int rank;
  MeshShape mesh;
};
// Pipeline, data, tensor.
const std::vector<Place> places{{0, {}},
                                {1, {{Axis::Data, 2}}},
                                {2, {{Axis::Data, 3}}},
                                {3, {{Axis::Pipeline, 2}, {Axis::Data, 2}}},
                                {5, {{Axis::Pipeline, 2}, {Axis::Data, 2}, {Axis::Tensor, 2}}}};

std::string text_of(const Place& place) {
  return format("rank {} of {}", place.rank, place.mesh.size());
}

void defaults_create(Subject& subject) {
  for (const Place& place : places) {
    try {
      AnyPlugin plugin(subject, {}, place.rank, place.mesh);
      const int version = plugin->state_version();
      require(version == subject.manifest().state_version,
              format("state_version() is {}, but STATE_VERSION in strata_add_plugin is {}; they must be equal", version,
                     subject.manifest().state_version));
      plugin.finish();
    } catch (const EnvironmentError& error) {
      throw Skip("the plugin cannot be used on this machine: " + std::string(error.what()));
    } catch (const UserError& error) {
      throw Failure("the default options are refused on " + text_of(place) + ": " + error.what());
    }
  }
}

bool is_numeric(const OptionSpec& option) {
  return option.type == "integer" || option.type == "number" || option.type == "size";
}

bool is_list(const OptionSpec& option) {
  return option.type == "integers" || option.type == "numbers";
}

// Texts just outside the limits, and texts that are no value of the type.
std::vector<std::string> refused_texts(const OptionSpec& option) {
  std::vector<std::string> texts;
  const auto beyond = [&](const std::string& limit, int direction) {
    if (limit.empty()) return;
    OptionSpec unlimited = option;
    unlimited.type = option.type == "integers" ? "integer" : option.type == "numbers" ? "number" : option.type;
    unlimited.minimum = unlimited.maximum = "";
    const OptionValue value = parse_option(unlimited, limit);
    std::string text;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) text = std::to_string(*whole + direction);
    if (const auto* number = std::get_if<double>(&value))
      text = std::to_string(*number + direction * std::max(1.0, std::abs(*number)));
    texts.push_back(is_list(option) ? "[" + text + "]" : text);
  };
  if (is_numeric(option) || is_list(option)) {
    beyond(option.minimum, -1);
    beyond(option.maximum, 1);
    texts.insert(texts.end(), {"", "many", "1 2", "nan"});
  }
  if (option.type == "boolean") texts = {"", "yes", "1", "True"};
  if (option.type == "choice") texts = {"", option.choices.front() + " ", "no such choice"};
  return texts;
}

void limits_are_kept(Subject& subject) {
  int refused = 0;
  for (const OptionSpec& option : subject.manifest().options) {
    for (const std::string& text : refused_texts(option)) {
      try {
        subject.library().values({{option.name, text}});
      } catch (const UserError&) {
        ++refused;
        continue;
      }
      throw Failure("the option " + option.name + " accepts '" + text + "', which its type or limits exclude");
    }
  }
  if (refused == 0) throw Skip("the plugin has no option with limits");
}

// Extreme values that the schema allows.
std::vector<std::string> extreme_texts(const OptionSpec& option) {
  std::vector<std::string> texts;
  if (is_numeric(option)) {
    texts = {option.minimum, option.maximum};
    if (option.minimum.empty() && option.type != "size")
      texts[0] = option.type == "integer" ? "-4611686018427387904" : "-1e300";
    if (option.minimum.empty() && option.type == "size") texts[0] = "0";
    if (option.maximum.empty()) texts[1] = option.type == "number" ? "1e300" : "4611686018427387904";
  }
  if (is_list(option)) {
    texts = {"[]"};
    for (const std::string& limit : {option.minimum, option.maximum})
      if (!limit.empty())
        texts.insert(texts.end(), {"[" + limit + "]", "[" + limit + ", " + limit + "]",
                                   "[" + limit + ", " + limit + ", " + limit + "]"});
  }
  if (option.type == "boolean") texts = {"true", "false"};
  if (option.type == "choice") texts = option.choices;
  if (option.type == "text") texts = {"", "/", "no such thing", std::string(5000, 'x'), "\xff\xfe"};
  return texts;
}

// Each option at its extremes, alone and in some combinations.
std::vector<OptionTexts> extreme_settings(Subject& subject, std::string_view case_name) {
  std::vector<OptionTexts> settings = subject.settings();
  std::vector<std::pair<std::string, std::vector<std::string>>> extremes;
  for (const OptionSpec& option : subject.manifest().options) {
    extremes.emplace_back(option.name, extreme_texts(option));
    for (const std::string& text : extremes.back().second) settings.push_back({{option.name, text}});
  }
  std::mt19937_64 random = subject.random(case_name);
  for (int round = 0; round < 50 && !extremes.empty(); ++round) {
    OptionTexts some;
    for (const auto& [name, texts] : extremes)
      if (!texts.empty() && random() % 3 == 0) some.emplace_back(name, texts[random() % texts.size()]);
    settings.push_back(some);
  }
  return settings;
}

bool has_free_text(const Subject& subject, const OptionTexts& setting) {
  return std::any_of(setting.begin(), setting.end(), [&](const auto& changed) {
    const std::vector<OptionSpec>& options = subject.manifest().options;
    return std::any_of(options.begin(), options.end(),
                       [&](const OptionSpec& option) { return option.name == changed.first && option.type == "text"; });
  });
}

// An exception of another class does not tell the user what to do, and one from shutdown() hides the error that ended
// the run.
void corners_create_or_are_refused(Subject& subject) {
  for (const OptionTexts& setting : extreme_settings(subject, "general.corners"))
    for (const Place& place : places) {
      const std::string where =
          "with " + to_string(setting) + ", which the schema allows, on " + text_of(place) + " the constructor throws ";
      const std::string rule = "; an invalid setting must be refused with a UserError";
      std::optional<AnyPlugin> plugin;
      try {
        plugin.emplace(subject, setting, place.rank, place.mesh);
      } catch (const UserError&) {
        continue;
      } catch (const EnvironmentError& error) {  // a text may name what this machine does not have
        require(has_free_text(subject, setting), where + "an EnvironmentError: " + error.what() + rule);
        continue;
      } catch (const std::exception& error) {
        throw Failure(where + error.what() + rule);
      } catch (...) {
        throw Failure(where + "something that is no std::exception" + rule);
      }
      const std::string after = "with " + to_string(setting) + " on " + text_of(place) + " shutdown() throws ";
      try {
        plugin->finish();
      } catch (const std::exception& error) {
        throw Failure(after + error.what());
      } catch (...) {
        throw Failure(after + "something that is no std::exception");
      }
    }
}

}  // namespace

std::vector<Case> creation_cases() {
  return {
      {creating_case,
       "The plugin can be created with default options on any rank, and state_version() is the manifest's.",
       defaults_create},
      {"general.limits", "Every value outside an option's limits is refused.", limits_are_kept},
      {"general.corners",
       "Every option setting that the schema allows works or is refused with a UserError; shutdown() throws nothing.",
       corners_create_or_are_refused},
  };
}

}  // namespace strata::conformance
