#include <strata/error.hpp>
#include <strata/options.hpp>

#include "catch.hpp"
#include "error_of.hpp"
#include "unit/plugins/little_options.hpp"

using namespace strata;

STRATA_NO_OPTIONS(EmptyOptions)

static OptionSpec spec_of(const std::string& type, const std::string& default_text, const std::string& limits = "") {
  return make_option_spec("x", type, default_text, limits, "", "A test.");
}

TEST_CASE("a macro list gives members at their defaults") {
  const LittleOptions options;
  CHECK(options.depth == 5000);
  CHECK(options.ratio == 6e-4);
  CHECK(options.eager);
  CHECK(options.order == "forward");
  CHECK(options.bucket == 64 * 1024 * 1024);
  CHECK(options.cuts.empty());
  CHECK(options.betas == std::vector<double>{0.9, 0.95});
}

TEST_CASE("reading the schema's defaults gives the struct's defaults") {
  const LittleOptions read = LittleOptions::read(default_options(LittleOptions::specs()));
  const LittleOptions initial;
  CHECK(read.depth == initial.depth);
  CHECK(read.ratio == initial.ratio);
  CHECK(read.eager == initial.eager);
  CHECK(read.order == initial.order);
  CHECK(read.bucket == initial.bucket);
  CHECK(read.cuts == initial.cuts);
  CHECK(read.betas == initial.betas);
}

TEST_CASE("the schema holds the listed options") {
  const std::vector<OptionSpec> specs = LittleOptions::specs();
  REQUIRE(specs.size() == 8);
  CHECK(specs[0].name == "depth");
  CHECK(specs[0].default_text == "5000");
  CHECK(specs[0].minimum == "0");
  CHECK(specs[0].maximum == "64000");
  CHECK(specs[0].unit == "layers");
  CHECK(specs[3].type == "choice");
  CHECK(specs[4].type == "text");
  CHECK(specs[3].choices == std::vector<std::string>{"forward", "reverse"});
  CHECK_THAT(specs[3].documentation, Contains("two literals; commas, 'quotes' and |bars|"));
  CHECK(EmptyOptions::specs().empty());
  CHECK_NOTHROW(EmptyOptions::read({}));
}

TEST_CASE("texts become values of the option's type") {
  CHECK(std::get<std::int64_t>(parse_option(spec_of("integer", "0"), "5e8")) == 500000000);
  CHECK(std::get<std::int64_t>(parse_option(spec_of("integer", "0"), "-9223372036854775808")) == INT64_MIN);
  CHECK(std::get<std::int64_t>(parse_option(spec_of("integer", "0"), "+7")) == 7);
  CHECK(std::get<double>(parse_option(spec_of("number", "0"), "3")) == 3.0);
  CHECK(std::get<double>(parse_option(spec_of("number", "0"), "-1.5e-3")) == -1.5e-3);
  CHECK(std::get<bool>(parse_option(spec_of("boolean", "true"), "false")) == false);
  CHECK(std::get<std::string>(parse_option(spec_of("text", ""), " as it is ")) == " as it is ");
  CHECK(std::get<std::int64_t>(parse_option(spec_of("size", "0"), "1.5GB")) == 1500000000);
  CHECK(std::get<std::int64_t>(parse_option(spec_of("size", "0"), "2 KiB")) == 2048);
  CHECK(std::get<std::int64_t>(parse_option(spec_of("size", "0"), "12B")) == 12);
  CHECK(std::get<std::vector<std::int64_t>>(parse_option(spec_of("integers", "[]"), "[ 1,2e3 ]")) ==
        std::vector<std::int64_t>{1, 2000});
  CHECK(std::get<std::vector<double>>(parse_option(spec_of("numbers", "[]"), "[]")).empty());
}

TEST_CASE("texts of another type are refused") {
  const auto refuses = [](const std::string& type, const std::string& good, const std::string& bad) {
    INFO(type << " '" << bad << "'");
    const std::string message = error_of<UserError>([&] { parse_option(spec_of(type, good), bad); });
    CHECK_THAT(message, Contains("option x is '" + bad + "': it must be"));
  };
  for (const char* bad : {"", "1.5", "one", "1 2", "nan", "++1", "+-1", "+", "0x10"}) {
    refuses("integer", "0", bad);
  }
  for (const char* large : {"1e30", "-1e30", "9223372036854775808"})
    CHECK(error_of<UserError>([&] { parse_option(spec_of("integer", "0"), large); }) ==
          format("option x is '{}': the number is too large", large));
  for (const char* bad : {"", "inf", "nan", "-inf", "1,5", "1e999", "1.0f"}) refuses("number", "0", bad);
  for (const char* bad : {"", "True", "yes", "1"}) refuses("boolean", "true", bad);
  for (const char* bad : {"", "-1", "1.5", "12 parsecs", "GB", "1e30GB", "0.3B", "-1MB"}) refuses("size", "0", bad);
  for (const char* bad : {"", "1, 2", "[1", "[1,]", "[,1]", "[1.5]", "[", "]"}) refuses("integers", "[]", bad);
  for (const char* bad : {"[inf]", "[a]", "[[1]]"}) refuses("numbers", "[]", bad);
}

TEST_CASE("limits are inclusive and name themselves") {
  const OptionSpec depth = make_option_spec("depth", "integer", "1", "min=0,max=64", "layers", "A test.");
  CHECK_NOTHROW(parse_option(depth, "0"));
  CHECK_NOTHROW(parse_option(depth, "64"));
  CHECK(error_of<UserError>([&] { parse_option(depth, "65"); }) == "option depth is '65': the maximum is 64 layers");
  CHECK(error_of<UserError>([&] { parse_option(depth, "-1"); }) == "option depth is '-1': the minimum is 0 layers");
  CHECK_THROWS_AS(parse_option(spec_of("numbers", "[0.5]", "max=1"), "[0.5, 1.5]"), UserError);
  CHECK_THROWS_AS(parse_option(spec_of("size", "1MiB", "min=1KiB"), "1KB"), UserError);
  CHECK(error_of<UserError>([&] { parse_option(spec_of("text", "a", "one_of=a|b"), "c"); }) ==
        "option x is 'c': it must be one of a, b");
}

TEST_CASE("a malformed schema is refused") {
  OptionSpec spec;
  const auto problem = [&](const char* type, const char* value, const char* limits) {
    return read_option_spec("x", type, value, limits, "", "A test.", spec);
  };
  CHECK(problem("integer", "1", "min=0") == "");
  CHECK_THAT(problem("float", "1", ""), Contains("unknown type 'float'"));
  CHECK_THAT(problem("integer", "9", "max=8"), Contains("default breaks its own rule"));
  CHECK_THAT(problem("integer", "9", "max=eight"), Contains("a limit is malformed"));
  CHECK_THAT(problem("integer", "9", "min=10,max=8"), Contains("a limit is malformed"));
  CHECK_THAT(problem("integer", "9", "maximum=8"), Contains("not min=, max= or one_of="));
  CHECK_THAT(problem("integer", "9", "max=8,"), Contains("not min=, max= or one_of="));
  CHECK_THAT(problem("integer", "9", "one_of=9|10"), Contains("do not suit the type"));
  CHECK_THAT(problem("boolean", "true", "max=1"), Contains("do not suit the type"));
  CHECK_THAT(problem("choice", "a", ""), Contains("do not suit the type"));
  CHECK_THAT(problem("text", "c", "one_of=a|b"), Contains("default breaks its own rule"));
  CHECK_THAT(read_option_spec("", "integer", "1", "", "", "A test.", spec), Contains("no name"));
  CHECK_THROWS_AS(make_option_spec("x", "integer", "one", "", "", "A test."), Bug);
}

TEST_CASE("getters refuse absent options and other types") {
  OptionValues values;
  values.set("depth", std::int64_t{3});
  values.set("depth", std::int64_t{4});
  CHECK(values.integer("depth") == 4);
  CHECK(values.contains("depth"));
  CHECK(values.names() == std::vector<std::string>{"depth"});
  CHECK_THAT(error_of<Bug>([&] { values.integer("width"); }), Contains("no option 'width'"));
  CHECK_THAT(error_of<Bug>([&] { values.number("depth"); }), Contains("'depth' is not of the type number"));
  CHECK_THROWS_AS(values.text("depth"), Bug);
  CHECK_THROWS_AS(values.boolean("depth"), Bug);
  CHECK_THROWS_AS(values.numbers("depth"), Bug);
  CHECK_THROWS_AS(values.integers("depth"), Bug);
}

TEST_CASE("texts that would break the manifest do not compile") {
  STATIC_REQUIRE(option_list::is_plain("plain, 'quoted' \xc3\xa9"));
  STATIC_REQUIRE_FALSE(option_list::is_plain("a \" quote"));
  STATIC_REQUIRE_FALSE(option_list::is_plain("a \\ backslash"));
  STATIC_REQUIRE_FALSE(option_list::is_plain("a\nline"));
  STATIC_REQUIRE(option_list::are_limits(""));
  STATIC_REQUIRE(option_list::are_limits("min=1,max=2"));
  STATIC_REQUIRE_FALSE(option_list::are_limits("min="));
  STATIC_REQUIRE_FALSE(option_list::are_limits("min=1,"));
}

TEST_CASE("a choice is the enumerator at its name's place") {
  enum class Order { Forward, Reverse, Shuffled };
  constexpr const char* names = "forward|reverse|shuffled";
  CHECK(choice<Order>(names, "forward") == Order::Forward);
  CHECK(choice<Order>(names, "shuffled") == Order::Shuffled);
  CHECK(choice_name(names, static_cast<int>(Order::Reverse)) == "reverse");
  CHECK_THROWS_AS(choice<Order>(names, "rev"), Bug);
  CHECK_THROWS_AS(choice_name(names, 3), Bug);
}
