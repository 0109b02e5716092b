#include <strata/fakes/saved_state.hpp>

#include <cmath>
#include <limits>

#include "catch.hpp"

using namespace strata;
using fakes::SavedState;

namespace {

SavedState one_of_each(double number) {
  SavedState state;
  state.integer("integer", -7);
  state.number("number", number);
  state.text("text", "two words");
  const std::vector<std::byte> bytes{std::byte{0}, std::byte{255}};
  state.bytes("bytes", bytes);
  return state;
}

}  // namespace

TEST_CASE("saved values come back as they were, by name and type") {
  const SavedState state = one_of_each(0.1);
  CHECK(state.integer("integer") == -7);
  CHECK(state.number("number") == 0.1);
  CHECK(state.text("text") == "two words");
  CHECK(state.bytes("bytes") == std::vector<std::byte>{std::byte{0}, std::byte{255}});
  CHECK(state.names() == std::vector<std::string>{"bytes", "integer", "number", "text"});
  CHECK(state.contains("text"));
  CHECK_FALSE(state.contains("texts"));
  CHECK_THROWS_WITH(state.integer("number"), Catch::Contains("'number'"));
  CHECK_THROWS_AS(state.number("integer"), UserError);
  CHECK_THROWS_AS(state.text("absent"), UserError);
}

TEST_CASE("a name is saved once") {
  SavedState state = one_of_each(0.1);
  CHECK_THROWS_AS(state.integer("integer", -7), Bug);
  CHECK_THROWS_AS(state.text("number", "0.1"), Bug);
}

TEST_CASE("two states are equal when every bit is") {
  CHECK(one_of_each(0.1) == one_of_each(0.1));
  CHECK_FALSE(one_of_each(0.1) == one_of_each(std::nextafter(0.1, 1.0)));
  CHECK_FALSE(one_of_each(0.0) == one_of_each(-0.0));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(one_of_each(nan) == one_of_each(nan));
  CHECK_FALSE(one_of_each(nan) == one_of_each(-nan));
  SavedState more = one_of_each(0.1);
  more.integer("more", 0);
  CHECK_FALSE(more == one_of_each(0.1));
}
