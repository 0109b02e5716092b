#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>

#include "catch.hpp"
#include "config/keys.hpp"
#include "config/schema.hpp"
#include "fake_plugins.hpp"

namespace strata::config {
namespace {

OptionValue typed(const std::string& text, const OptionSpec& spec) {
  return typed_option(parse_value(text, "test"), spec, "a.b");
}
std::string schema_error(const std::string& text, const OptionSpec& spec) {
  return error_of([&] { typed(text, spec); });
}

}  // namespace

TEST_CASE("A value has one type, however it is spelled") {
  const OptionSpec integer = option("b", "integer", "0");
  for (const char* text : {"500000000", "5e8", "+500_000_000", "5E+8"}) {
    CHECK(std::get<std::int64_t>(typed(text, integer)) == 500000000);
  }
  for (const char* text :
       {"1.5", "1e-1", "1__0", "_1", "1_", "1e999", "0x10", "nan", "1 2", "9223372036854775808", "five"}) {
    INFO(text);
    CHECK(schema_error(text, integer) != "");
  }
  const OptionSpec size = option("b", "size", "0");
  CHECK(std::get<std::int64_t>(typed("16MB", size)) == 16000000);
  CHECK(std::get<std::int64_t>(typed("'16MB'", size)) == 16000000);
  CHECK(std::get<std::int64_t>(typed("16MiB", size)) == 16777216);
  CHECK(std::get<std::int64_t>(typed("1_024", size)) == 1024);
  CHECK(schema_error("16mb", size) != "");
  CHECK(std::get<double>(typed("6e-4", option("b", "number", "0"))) == 6e-4);
  CHECK(std::get<double>(typed("3", option("b", "number", "0"))) == 3.0);
  CHECK(schema_error(".inf", option("b", "number", "0")) != "");
  CHECK(std::get<bool>(typed("true", option("b", "boolean", "false"))));
  CHECK(schema_error("yes", option("b", "boolean", "false")) != "");
  CHECK(std::get<std::string>(typed("5e8", option("b", "text", ""))) == "5e8");
  CHECK(std::get<std::string>(typed("1_0", option("b", "text", ""))) == "1_0");
  CHECK(std::get<std::vector<std::int64_t>>(typed("[1, 8]", option("b", "integers", "[]"))) ==
        std::vector<std::int64_t>{1, 8});
  CHECK(std::get<std::vector<std::int64_t>>(typed("[]", option("b", "integers", "[]"))).empty());
  CHECK(std::get<std::vector<double>>(typed("[0.9, 1]", option("b", "numbers", "[]"))) ==
        std::vector<double>{0.9, 1.0});
}

TEST_CASE("A wrong value says where, which and why") {
  OptionSpec spec = option("b", "integer", "1");
  spec.minimum = "1";
  spec.maximum = "8";
  spec.unit = "layers";
  CHECK(schema_error("0", spec) == "test: option a.b is '0': the minimum is 1");
  CHECK(schema_error("9", spec) == "test: option a.b is '9': the maximum is 8 layers");
  CHECK(schema_error("four", spec) == "test: option a.b is 'four': it must be a whole number, as in 12 or 5e8");
  CHECK(schema_error("'4'", spec) == "test: a.b: \"4\" is text in quotes; a number is written without");
  CHECK(schema_error("[4]", spec) == "test: a.b: a list; it must be a whole number, as in 12 or 5e8");
  CHECK(schema_error("{x: 4}", spec).starts_with("test: a.b: a section; it must be a whole number"));
  CHECK(schema_error("~", spec).starts_with("test: a.b: no value; it must be a whole number"));
  spec.type = "integers";
  CHECK(schema_error("[1, 9]", spec) == "test: option a.b is '9': the maximum is 8 layers");
  CHECK(schema_error("[1, [2]]", spec).starts_with("test: a.b: an element of the list that is not a value"));
  CHECK(schema_error("1", spec).starts_with("test: a.b: \"1\"; it must be a list of whole numbers"));
  CHECK(schema_error("'true'", option("b", "boolean", "true")) ==
        "test: a.b: \"true\" is text in quotes; true and false are written without");
  OptionSpec choice = option("b", "choice", "red");
  choice.choices = {"red", "blue"};
  CHECK(std::get<std::string>(typed("'red'", choice)) == "red");
  CHECK(schema_error("green", choice) == "test: option a.b is 'green': it must be one of red, blue");
  CHECK(schema_error("[]", choice) == "test: a.b: a list; it must be one of red, blue");
  CHECK(schema_error("\"a\\nb\"", choice).find('\n') == std::string::npos);
  CHECK(schema_error(std::string(500, 'x'), choice).size() < 200);
}

TEST_CASE("Printed values read back the same") {
  CHECK(to_text(OptionValue(true)) == "true");
  CHECK(to_text(OptionValue(std::int64_t{500000000})) == "500000000");
  CHECK(to_text(OptionValue(6e-4)) == "0.0006");
  CHECK(to_text(OptionValue(1e-8)) == "1e-08");
  CHECK(to_text(OptionValue(0.0)) == "0");
  CHECK(to_text(OptionValue(std::vector<double>{0.9, 0.999})) == "[0.9, 0.999]");
  CHECK(to_text(OptionValue(std::vector<std::int64_t>{})) == "[]");
  CHECK(to_text(OptionValue(std::string("x"))) == "x");
  for (const double value : {0.1, 6e-4, 1e-8, 123456789.125, 1e300, 5e15, -1.0 / 3}) {
    CHECK(std::get<double>(typed(to_text(OptionValue(value)), option("b", "number", "0"))) == value);
  }
}

TEST_CASE("The engine's keys are sound, and each is documented") {
  std::set<std::string> paths;
  for (const Key& key : keys()) {
    INFO(key.option.name);
    CHECK(paths.insert(key.option.name).second);
    CHECK_FALSE(key.option.documentation.empty());
    CHECK((key.kind.empty() || (key.choice.set && key.choice.get)));
    CHECK(key.automatic.empty() == (key.option.default_text != "auto"));
    const std::string& type = key.option.type;
    if (type == "layers" || type == "rule" || type == "parameter_rules" || type == "variants" || type == "plugin")
      continue;
    // Anything of the type keeps the limits that the key states: those themselves, and the choices.
    for (const std::string& limit : {key.option.minimum, key.option.maximum}) {
      if (!limit.empty()) CHECK_NOTHROW(parse_option(key.option, type == "integers" ? "[" + limit + "]" : limit));
    }
    for (const std::string& choice : key.option.choices) CHECK_NOTHROW(parse_option(key.option, choice));
    if (key.option.choices.empty() && type != "text") CHECK_THROWS_AS(parse_option(key.option, "x"), UserError);
  }
  CHECK(known_children("parallel") ==
        std::vector<std::string>{"pipeline", "data", "tensor", "chunks", "cut", "layers_per_chunk", "sequence"});
  CHECK(known_children("communicator") == std::vector<std::string>{"plugin", "timeout_s"});
  CHECK(known_children("offload") == std::vector<std::string>{"parameters", "optimizer", "activations", "host", "disk",
                                                              "automatic", "update_elements", "read_ahead",
                                                              "parameters_ratio", "optimizer_ratio", "gradients_ratio",
                                                              "updates_at_end", "activations_ratio"});
  CHECK(plugin_slots().front().path == "device");  // on which other slots' `auto` depends
  CHECK_THROWS_AS(make_key("a.b", "integer", "x", "", "", Affects::Nothing, "no number"), Bug);
  CHECK_THROWS_AS(make_key("a.b", "integer", "0", "min=1", "", Affects::Nothing, "below its minimum"), Bug);
}

TEST_CASE("What a setting affects is known by its path") {
  std::vector<std::string> kept, differ, compared;
  for (const Key& key : keys()) {
    if (effect_of(key.option.name).affects == Affects::Samples) kept.push_back(key.option.name);
    if (effect_of(key.option.name).per_host()) differ.push_back(key.option.name);
    if (effect_of(key.option.name).compared == Compared::Content) compared.push_back(key.option.name);
  }
  CHECK(kept == std::vector<std::string>{"model.plugin", "model.seq_len", "data.plugin", "data.order", "data.documents",
                                         "data.document_end", "train.global_batch", "train.seed"});
  CHECK(differ == std::vector<std::string>{"model.init", "data.path", "validation.path", "export", "metrics.csv"});
  CHECK(compared == std::vector<std::string>{"model.init", "data.path", "validation.path"});
  CHECK(effect_of("partitioner.zero3.prefetch_layers").affects == Affects::Numbers);
  CHECK(effect_of("model.gpt_neox.layers").affects == Affects::Numbers);
  CHECK(effect_of("data.nanogpt.token_type").affects == Affects::Samples);
  CHECK(effect_of("validation.nanogpt.token_type").affects == Affects::Nothing);
  CHECK(effect_of("communicator.gloo.interface").affects == Affects::Nothing);
  CHECK(effect_of("a.key.of.another.version").affects == Affects::Numbers);
}

TEST_CASE("A text means a value in any spelling") {
  CHECK(means("0.001", OptionValue(1e-3)));
  CHECK(means("1e-3", OptionValue(1e-3)));
  CHECK(means("5e8", OptionValue(std::int64_t{500000000})));
  CHECK(means("[0.9, 0.95]", OptionValue(std::vector<double>{0.9, 0.95})));
  CHECK(means("none", OptionValue(std::string("none"))));
  CHECK_FALSE(means("0.0011", OptionValue(1e-3)));
  CHECK_FALSE(means("auto", OptionValue(std::int64_t{8})));
  CHECK_FALSE(means("true", OptionValue(false)));
}

}  // namespace strata::config
