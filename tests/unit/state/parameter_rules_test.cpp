#include <strata/error.hpp>

#include "catch.hpp"
#include "state/parameter_rules.hpp"

namespace {

using namespace strata;
using config::ParameterRule;
using state::ParameterRules;

ParameterInfo parameter(const std::string& name, const std::string& tie = "") {
  ParameterInfo info;
  info.name = name;
  info.shape = {2};
  info.tie = tie;
  return info;
}

// Two blocks between an embedding and a head that is tied to it; files call block 1's weight otherwise.
std::vector<LayerInfo> layers() {
  std::vector<LayerInfo> model(4);
  model[0].parameters = {parameter("embed.weight", "words")};
  for (std::size_t block = 0; block < 2; ++block)
    for (const char* name : {".norm.weight", ".norm.bias", ".dense.weight", ".dense.bias"})
      model[block + 1].parameters.push_back(parameter("blocks." + std::to_string(block) + name));
  model[3].parameters = {parameter("head.weight", "words")};
  return model;
}

CheckpointNames names() {
  CheckpointNames names;
  names.names = {{"blocks.1.dense.weight", "transformer.h.1.fc.weight"}, {"head.weight", "lm_head.weight"}};
  return names;
}

ParameterRule rule(std::vector<std::string> match, std::optional<bool> trainable, std::optional<double> factor = {},
                   std::optional<double> decay = {}) {
  return {std::move(match), trainable, factor, decay, "parameters[0]", {"t.yaml", 9, 5}};
}

ParameterRules applied(const std::vector<ParameterRule>& rules) {
  return ParameterRules(rules, layers(), names());
}

std::string refusal(const std::vector<ParameterRule>& rules) {
  try {
    applied(rules);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(none)";
}

}  // namespace

TEST_CASE("without rules all is as the model says") {
  std::vector<LayerInfo> model = layers();
  model[1].parameters[0].trainable = false;
  const ParameterRules rules({}, model, {});
  CHECK_FALSE(rules.of("blocks.0.norm.weight").trainable);
  CHECK(rules.of("blocks.1.norm.weight").trainable);
  CHECK(rules.of("embed.weight").learning_rate_factor == 1.0);
  CHECK_FALSE(rules.of("embed.weight").weight_decay.has_value());
  CHECK_THROWS_AS(rules.of("other.weight"), Bug);
}

TEST_CASE("later rules win, key by key") {
  const ParameterRules rules = applied({rule({"*"}, {}, 0.5, 0.1), rule({"*.bias", "*norm*"}, {}, {}, 0.0),
                                        rule({"blocks.?.norm.bias"}, false), rule({"blocks.1.*"}, true, 2.0)});
  CHECK(rules.of("blocks.0.dense.weight").weight_decay == 0.1);
  CHECK(rules.of("blocks.0.dense.weight").learning_rate_factor == 0.5);
  CHECK(rules.of("blocks.0.norm.weight").weight_decay == 0.0);
  CHECK_FALSE(rules.of("blocks.0.norm.bias").trainable);
  CHECK(rules.of("blocks.1.norm.bias").trainable);
  CHECK(rules.of("blocks.1.norm.bias").learning_rate_factor == 2.0);
  CHECK(rules.of("blocks.1.norm.bias").weight_decay == 0.0);
}

TEST_CASE("names in files and of tied parameters count") {
  CHECK_FALSE(applied({rule({"transformer.h.*"}, false)}).of("blocks.1.dense.weight").trainable);
  for (const char* name : {"embed*", "head*", "lm_head.weight"}) {
    const ParameterRules rules = applied({rule({name}, false)});
    CHECK_FALSE(rules.of("embed.weight").trainable);
    CHECK_FALSE(rules.of("head.weight").trainable);
    CHECK(rules.of("blocks.0.dense.weight").trainable);
  }
}

TEST_CASE("an unmatched pattern names the nearest parameters, one per role") {
  CHECK(refusal({rule({"*.bias"}, false), rule({"*.dense.biass"}, false)}) ==
        "t.yaml:9:5: parameters[0].match: \"*.dense.biass\" matches no parameter of this model (* matches any text); "
        "the nearest are blocks.0.dense.bias, blocks.0.dense.weight, blocks.0.norm.bias");
  CHECK(refusal({rule({"*.bias", "blocks.2.*"}, false)}).find("\"blocks.2.*\" matches no parameter") !=
        std::string::npos);
  CHECK(refusal({rule({"Embed.weight"}, false)}).find("nearest are embed.weight") != std::string::npos);
  CHECK(refusal({rule({""}, false)}).find("matches no parameter") != std::string::npos);
}

TEST_CASE("something must be left to train") {
  CHECK(refusal({rule({"*"}, false)}).starts_with("t.yaml:9:5: every parameter is frozen"));
  CHECK(refusal({rule({"*"}, false), rule({"*.1.norm.bias"}, true)}) == "(none)");
}
