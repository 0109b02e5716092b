#include <strata/error.hpp>

#include <fnmatch.h>
#include <nlohmann/json.hpp>

#include <set>
#include <sstream>

#include "conformance/model/built_model.hpp"
#include "conformance/model/checks.hpp"

namespace strata::conformance::model_checks {

namespace {

using nlohmann::json;

// Everything that a config.json can fix.
std::string description(const Model& model) {
  std::ostringstream text;
  text << model.layers() << " layers, a vocabulary of " << model.vocabulary() << ", sequences of "
       << model.maximum_sequence_length();
  for (int layer = 0; layer < model.layers(); ++layer) {
    const LayerInfo info = model.describe(layer, {2, 8, at::kFloat});
    text << "; " << info.name << ":";
    for (const ParameterInfo& parameter : info.parameters) {
      text << " " << parameter.name << "(";
      for (const std::int64_t extent : parameter.shape) text << " " << extent;
      text << " ) " << parameter.tie << " " << parameter.initializer.mean << " " << parameter.initializer.deviation;
    }
  }
  return text.str();
}

// The subject of the first difference.
std::string around_difference(const std::string& a, const std::string& b) {
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  const std::size_t begin = at < 40 ? 0 : at - 40;
  return "'..." + a.substr(begin, 90) + "...' and '..." + b.substr(begin, 90) + "...'";
}

// The result of `text` on a fresh instance at its defaults: "" and its description, or the UserError.
struct Taken {
  std::string refusal;
  std::string description;
};

Taken take(Subject& subject, const std::string& text, const std::string& what) {
  const auto model = subject.make<Model>();
  try {
    model->configure(text);
    return {"", description(*model)};
  } catch (const UserError& error) {
    return {error.what(), ""};
  } catch (const std::exception& error) {
    throw Failure("configure() of " + what + " must throw a UserError; it threw " + error.what());
  }
}

// Other values for an integer of the file.
std::vector<json> wrong_values() {
  return {json("many"), json(json::array()), json(-1), json(0), json(1.5), json(1e300)};
}

json written_config(Subject& subject) {
  const auto model = make_small(subject);
  try {
    json config = json::parse(model->hugging_face_config(at::kFloat));
    require(config.is_object(), "hugging_face_config() returns JSON that is no object");
    return config;
  } catch (const json::exception& error) {
    throw Failure(std::string("hugging_face_config() does not return JSON: ") + error.what());
  }
}

// Whether any integer of its own file matters to it.
bool takes_something(Subject& subject) {
  const json config = written_config(subject);
  const std::string whole = take(subject, config.dump(), "its own hugging_face_config()").description;
  for (const auto& [key, value] : config.items()) {
    if (!value.is_number_integer()) continue;
    for (const json& other : {json(value.get<std::int64_t>() + 1), json("many")}) {
      json changed = config;
      changed[key] = other;
      if (take(subject, changed.dump(), "its own hugging_face_config() with another " + key).description != whole)
        return true;
    }
  }
  return false;
}

}  // namespace

void checkpoint_names_round_trip(Subject& subject) {
  const auto model = make_small(subject);
  std::set<std::string> expected, ties;
  for (int layer = 0; layer < model->layers(); ++layer)
    for (const ParameterInfo& info : model->describe(layer, {1, 8, at::kFloat}).parameters)
      if (info.tie.empty() || ties.insert(info.tie).second) expected.insert(info.name);
  const CheckpointNames names = model->checkpoint_names();
  std::map<std::string, std::string> to_external, to_canonical;
  for (const auto& [canonical, external] : names.names) {
    require(expected.contains(canonical),
            "checkpoint_names() lists " + canonical + ", which no layer has; name a tied parameter by its first use");
    to_external.emplace(canonical, external);  // the first one is for exports, the others are read too
    const auto [other, is_new] = to_canonical.emplace(external, canonical);
    require(is_new || other->second != canonical, "checkpoint_names() lists " + canonical + " twice");
    require(is_new,
            "checkpoint_names() gives " + other->second + " and " + canonical + " the same external name " + external);
    for (const std::string& pattern : names.ignored)
      require(fnmatch(pattern.c_str(), external.c_str(), 0) != 0,
              "checkpoint_names() ignores '" + pattern + "', which is " + external + " too");
  }
  for (const std::string& name : expected)
    require(to_external.contains(name),
            "checkpoint_names() has no name for " + name + ", so it would be neither exported nor imported");
}

void hugging_face_config_round_trip(Subject& subject) {
  if (!takes_something(subject)) throw Skip("no key of a config.json changes the model");
  int checked = 0;
  for (const fakes::OptionTexts& options : size_settings(subject)) {
    std::string text, wanted;
    try {
      const auto model = subject.make<Model>(options);
      wanted = description(*model);
      text = model->hugging_face_config(checked % 2 == 0 ? at::kFloat : at::kBFloat16);
    } catch (const UserError&) {
      continue;  // the options are no model
    }
    const std::string what = "the model of options " + to_string(options) + ": ";
    require(json::accept(text), what + "hugging_face_config() does not return JSON: " + text.substr(0, 200));
    const auto fresh = subject.make<Model>();
    try {
      fresh->configure(text);
      const std::string found = description(*fresh);
      require(found == wanted, what +
                                   "a default instance configured with its hugging_face_config() is another model: " +
                                   around_difference(found, wanted));
    } catch (const Error& error) {
      throw Failure(what + "configure() refuses its hugging_face_config(): " + error.what());
    }
    const std::string again = fresh->hugging_face_config(checked % 2 == 0 ? at::kFloat : at::kBFloat16);
    require(again == text, what + "hugging_face_config() of the instance configured with it differs: " +
                               around_difference(again, text));
    ++checked;
  }
  require(checked > 0, "no option setting creates a model");
}

void broken_config_refused(Subject& subject) {
  if (!takes_something(subject)) throw Skip("no key of a config.json changes the model");
  const json config = written_config(subject);
  for (const auto& [key, value] : config.items()) {
    if (!value.is_number_integer()) continue;
    json without = config;
    without.erase(key);
    const Taken taken = take(subject, without.dump(), "its own hugging_face_config() without " + key);
    require(taken.refusal.empty() || taken.refusal.find(key) != std::string::npos,
            "configure() of a config.json without " + key + " is refused with '" + taken.refusal +
                "', which does not name the key");
    for (const json& wrong : wrong_values()) {
      json changed = config;
      changed[key] = wrong;
      const Taken other =
          take(subject, changed.dump(), "its own hugging_face_config() with " + key + " = " + wrong.dump());
      require(other.refusal.empty() || other.refusal.size() > 10,
              "configure() of " + key + " = " + wrong.dump() + " is refused with an empty message");
    }
  }
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[1]"), std::string("7"), std::string("\"text\""),
        std::string("null"), config.dump().substr(0, config.dump().size() / 2)})
    require(!take(subject, text, "'" + text + "'").refusal.empty(),
            "configure() accepts '" + text.substr(0, 80) + "', which is not a JSON object");
}

}  // namespace strata::conformance::model_checks
