#include "text/nearest.hpp"

#include "catch.hpp"

using namespace strata::text;

TEST_CASE("The nearest word") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("micro_bacth", "micro_batch") == 1);  // neighbours swapped
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("*.bais", "layers.0.bias") == 1);
  CHECK(edit_distance("layer.?.bias", "layers.0.bias") == 1);
  CHECK(edit_distance("*", "") == 0);
  CHECK(nearest("Zero3", {"ddp", "zero1", "zero3"}) == "zero3");
  CHECK(nearest("x", {}) == "");
  CHECK(suggestion("warmpu", {"base", "warmup"}) == "did you mean warmup?");
  CHECK(suggestion("entirely", {"base", "warmup"}) == "known: base, warmup");
  CHECK(suggestion("x", {}) == "no name is known here");
  CHECK_NOTHROW(suggestion(std::string(1 << 20, 'x'), {"base"}));
}
