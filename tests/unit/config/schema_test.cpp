#include <cstdint>
#include <limits>
#include <stdexcept>

#include "catch.hpp"
#include "config/engine_schema.hpp"
#include "config/nearest.hpp"
#include "config/scalar.hpp"
#include "config/schema.hpp"
#include "config/size.hpp"
#include "fake_plugins.hpp"

namespace strata::config {
namespace {

OptionValue typed(const std::string& text, const OptionSpec& spec) {
  return typed_option(parse_value(text, "test"), spec, "a.b");
}
std::string error(const std::string& text, const OptionSpec& spec) {
  return error_of([&] { typed(text, spec); });
}

}  // namespace

TEST_CASE("Integers") {
  using Case = std::pair<const char*, std::int64_t>;
  for (const auto& [text, value] :
       {Case{"0", 0}, Case{"-0", 0}, Case{"4", 4}, Case{"+4", 4}, Case{"-12", -12}, Case{"5e8", 500000000},
        Case{"5E+8", 500000000}, Case{"1.5e3", 1500}, Case{"1.50e1", 15}, Case{"100e-2", 1}, Case{"0e99", 0},
        Case{"1_000_000", 1000000}, Case{"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
        Case{"-9223372036854775808", std::numeric_limits<std::int64_t>::min()}, Case{"9e18", 9000000000000000000}}) {
    INFO(text);
    CHECK(parse_integer(text) == value);
  }
  for (const char* text : {"",       "-",
                           "+-1",    "1.0",
                           "1.",     ".e3",
                           "e5",     "1e",
                           "1e+",    "1.5",
                           "1e-1",   "9223372036854775808",
                           "1e19",   "1e99999999999",
                           "1__0",   "_1",
                           "1_",     "0x10",
                           "1 ",     " 1",
                           "1a",     "nan",
                           "inf",    "--1",
                           "1-1",    "1e1e1",
                           "1.2.3e4"}) {
    INFO(text);
    CHECK_FALSE(parse_integer(text).has_value());
  }
}

TEST_CASE("Numbers") {
  CHECK(parse_number("6e-4") == 6e-4);
  CHECK(parse_number("+.5") == 0.5);
  CHECK(parse_number("3") == 3.0);
  CHECK(parse_number("-1_000.5") == -1000.5);
  for (const char* text : {"", ".", "nan", "inf", "-inf", "1e999", "1,5", "0x1p3", "1e", "+-1", "5 apples"}) {
    INFO(text);
    CHECK_FALSE(parse_number(text).has_value());
  }
  for (const double value : {0.1, 6e-4, 1e-8, 123456789.125, 1e300}) CHECK(parse_number(spell_number(value)) == value);
}

TEST_CASE("Sizes") {
  CHECK(parse_bytes("65536") == 65536);
  CHECK(parse_bytes("5e8") == 500000000);
  CHECK(parse_bytes("16MB") == 16000000);
  CHECK(parse_bytes("16MiB") == 16777216);
  CHECK(parse_bytes("16 MiB") == 16777216);
  CHECK(parse_bytes("1.5GiB") == 1610612736);
  CHECK(parse_bytes("4kB") == 4000);
  CHECK(parse_bytes("1TiB") == std::int64_t{1} << 40);
  CHECK(parse_bytes("0B") == 0);
  for (const char* text :
       {"", "MB", "16mb", "16M", "16Mib", "-1MB", "0.3B", "16  MB", "1e30MB", "16MB ", "16 MBx", "99999999TiB"}) {
    INFO(text);
    CHECK_FALSE(parse_bytes(text).has_value());
  }
  CHECK(format_bytes(1610612736) == "1.50 GiB");
}

TEST_CASE("A typed value says what is wrong with it") {
  OptionSpec spec = option("b", "integer", "");
  spec.minimum = "1";
  spec.maximum = "8";
  spec.unit = "layers";
  CHECK(std::get<std::int64_t>(typed("5e0", spec)) == 5);
  CHECK(error("0", spec) == "test: a.b: \"0\" is below the minimum 1 layers");
  CHECK(error("9", spec) == "test: a.b: \"9\" is above the maximum 8 layers");
  CHECK(error("four", spec) == "test: a.b: \"four\" is not an integer (like 4 or 5e8)");
  CHECK(error("'4'", spec) == "test: a.b: \"4\" in quotes is not an integer (numbers are written without quotes)");
  CHECK(error("[4]", spec) == "test: a.b: a list, where an integer is expected (like 4 or 5e8)");
  CHECK(error("{x: 4}", spec).starts_with("test: a.b: a section, where an integer"));
  CHECK(error("~", spec).starts_with("test: a.b: no value, where an integer"));
  spec.type = "integers";
  CHECK(std::get<std::vector<std::int64_t>>(typed("[1, 8]", spec)) == std::vector<std::int64_t>{1, 8});
  CHECK(std::get<std::vector<std::int64_t>>(typed("[]", spec)).empty());
  CHECK(error("[1, 9]", spec) == "test: a.b: \"9\" is above the maximum 8 layers");
  CHECK(error("[1, [2]]", spec).starts_with("test: a.b: something else than a value in the list"));
  CHECK(error("1", spec).starts_with("test: a.b: \"1\", where a list of integers is expected"));
  spec.type = "size";
  spec.maximum = "1KiB";
  CHECK(std::get<std::int64_t>(typed("'1KiB'", spec)) == 1024);
  CHECK(std::get<std::int64_t>(typed("1KiB", spec)) == 1024);
  CHECK(error("1025", spec) == "test: a.b: \"1025\" is above the maximum 1KiB");
  CHECK(error("1Q", spec).find("is not a size in bytes") != std::string::npos);
  CHECK(std::get<std::vector<double>>(typed("[0.9, 1]", option("b", "numbers", ""))) == std::vector<double>{0.9, 1.0});
  CHECK(std::get<double>(typed("1e-8", option("b", "number", ""))) == 1e-8);
  CHECK(error(".inf", option("b", "number", "")).find("is not a finite number") != std::string::npos);
  CHECK(std::get<bool>(typed("true", option("b", "boolean", ""))));
  CHECK(error("yes", option("b", "boolean", "")).find("is neither true nor false") != std::string::npos);
  CHECK(error("'true'", option("b", "boolean", "")) != "");
  CHECK(std::get<std::string>(typed("5e8", option("b", "text", ""))) == "5e8");
  OptionSpec choice = option("b", "choice", "");
  choice.choices = {"red", "blue"};
  CHECK(std::get<std::string>(typed("'red'", choice)) == "red");
  CHECK(error("green", choice) == "test: a.b: \"green\" is not one of red, blue");
  CHECK(error("[]", choice) == "test: a.b: a list, where one of the choices is expected (red, blue)");
}

TEST_CASE("Defaults are typed like any value") {
  CHECK(std::get<std::vector<double>>(default_option(option("betas", "numbers", "[0.9, 0.999]"), "p")) ==
        std::vector<double>{0.9, 0.999});
  CHECK(std::get<std::string>(default_option(option("t", "text", ""), "p")) == "");
  CHECK(std::get<std::string>(default_option(option("t", "text", "a: b"), "p")) == "a: b");
  CHECK(error_of([] { default_option(option("n", "integer", ""), "p"); }) == "p: must be given, it has no default");
}

TEST_CASE("A specification that contradicts itself is refused") {
  const auto refused = [](const OptionSpec& spec) { return !error_of([&] { check_option(spec); }).empty(); };
  OptionSpec good = option("prefetch_layers", "integer", "1");
  good.minimum = "0";
  good.maximum = "8";
  CHECK_FALSE(refused(good));
  CHECK_FALSE(refused(option("n", "integer", "")));
  const auto changed = [&](auto change) {
    OptionSpec spec = good;
    change(spec);
    return spec;
  };
  CHECK(refused(changed([](OptionSpec& spec) { spec.name = ""; })));
  CHECK(refused(changed([](OptionSpec& spec) { spec.name = "a.b"; })));
  CHECK(error_of([&] { check_option(changed([](OptionSpec& spec) { spec.type = "intger"; })); }) ==
        "option prefetch_layers: unknown type \"intger\"; did you mean integer?");
  CHECK(refused(changed([](OptionSpec& spec) { spec.default_text = "x"; })));
  CHECK(refused(changed([](OptionSpec& spec) { spec.default_text = "9"; })));
  CHECK(refused(changed([](OptionSpec& spec) { spec.minimum = "0.5"; })));
  CHECK(refused(changed([](OptionSpec& spec) { spec.minimum = "9"; })));
  CHECK(refused(changed([](OptionSpec& spec) { spec.type = "text"; })));  // bounds on a text
  CHECK(refused(changed([](OptionSpec& spec) { spec.choices = {"1"}; })));
  CHECK(refused(option("c", "choice", "")));
}

TEST_CASE("Values read back as what they print") {
  CHECK(to_text(OptionValue(true)) == "true");
  CHECK(to_text(OptionValue(std::int64_t{500000000})) == "500000000");
  CHECK(to_text(OptionValue(6e-4)) == "0.0006");
  CHECK(to_text(OptionValue(std::vector<double>{0.9, 0.999})) == "[0.9, 0.999]");
  CHECK(to_text(OptionValue(std::vector<std::int64_t>{})) == "[]");
  CHECK(to_text(OptionValue(std::string("x"))) == "x");
}

TEST_CASE("The nearest word") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("micro_bacth", "micro_batch") == 1);  // neighbours swapped
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(nearest("Zero3", {"ddp", "zero1", "zero3"}) == "zero3");
  CHECK(nearest("x", {}) == "");
  CHECK(suggestion("warmpu", {"base", "warmup"}) == "did you mean warmup?");
  CHECK(suggestion("entirely", {"base", "warmup"}) == "known: base, warmup");
  CHECK(suggestion("x", {}) == "nothing is known here");
  CHECK_NOTHROW(suggestion(std::string(1 << 20, 'x'), {"base"}));
}

TEST_CASE("The engine's own schema is sound, and each key is documented") {
  for (const EngineKey& key : engine_keys()) {
    INFO(key.option.name);
    CHECK_FALSE(key.option.documentation.empty());
    CHECK(key.option.default_text.empty());
    if (key.option.type == "layers" || key.option.type == "rule") continue;
    OptionSpec spec = key.option;
    spec.name = "x";
    CHECK_NOTHROW(check_option(spec));
  }
  CHECK(known_children("parallel") == std::vector<std::string>{"pipeline", "tensor", "data"});
  CHECK(known_children("communicator") == std::vector<std::string>{"plugin", "timeout_s"});
  CHECK(known_children("offload") == std::vector<std::string>{"optimizer", "parameters"});
}

}  // namespace strata::config
