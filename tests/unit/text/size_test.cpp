#include "text/size.hpp"

#include "catch.hpp"

using namespace strata::text;

TEST_CASE("Sizes for people") {
  CHECK(format_bytes(12) == "12 B");
  CHECK(format_bytes(1610612736) == "1.50 GiB");
}
