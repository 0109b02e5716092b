#include <strata/error.hpp>

#include <cstdint>
#include <string>

#include "catch.hpp"

using namespace strata;

namespace {
enum class Color { Red };
std::string to_string(Color) {
  return "red";
}
}  // namespace

TEST_CASE("a text takes its values in order") {
  CHECK(format("{} and {}", 1, std::string("two")) == "1 and two");
  CHECK(format("{}{}", "a", "b") == "ab");
  CHECK(format("none") == "none");
}

TEST_CASE("double braces are braces") {
  CHECK(format("{{match: {}}} }}", "x") == "{match: x} }");
  CHECK(format("{}", "{}") == "{}");
}

TEST_CASE("values have the text that a message needs") {
  CHECK(format("{} {} {}", true, 'c', static_cast<std::uint8_t>(7)) == "true c 7");
  CHECK(format("{} {} {}", INT64_MIN, UINT64_MAX, -0.5) == "-9223372036854775808 18446744073709551615 -0.5");
  CHECK(format("{} {} {}", 0.1F, 1e-05, 1.0) == "0.1 1e-05 1");
  CHECK(format("{}", Color::Red) == "red");
}

TEST_CASE("errors take formatted texts") {
  CHECK(std::string(UserError("{} is {}", "train.steps", 0).what()) == "train.steps is 0");
  CHECK(std::string(UserError(Place{"run.yaml", 3, 1}, "{} is {}", "train.steps", 0).what()) ==
        "run.yaml:3:1: train.steps is 0");
  CHECK(std::string(EnvironmentError("no room for {} bytes", 8).what()) == "no room for 8 bytes");
  CHECK(std::string(UserError("braces {} without values stay").what()) == "braces {} without values stay");
}

TEST_CASE("a formatted bug names its own place") {
  const int line = __LINE__ + 1;
  const Bug bug("parameter {} is frozen", 3);
  CHECK(std::string(bug.what()) == std::string(__FILE__) + ":" + std::to_string(line) + ": parameter 3 is frozen");
}
