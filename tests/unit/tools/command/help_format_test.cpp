#include "tools/command/help_format.hpp"

#include "catch.hpp"

using strata::cli::wrap;

TEST_CASE("help is broken at spaces, into lines of limited width") {
  CHECK(wrap("one two three", 13) == "one two three");
  CHECK(wrap("one two three", 12) == "one two\nthree");
  CHECK(wrap("one two three", 7) == "one two\nthree");
  CHECK(wrap("one two three", 1) == "one\ntwo\nthree");
  CHECK(wrap("short\none two three\n", 8) == "short\none two\nthree\n");
  CHECK(wrap("", 8).empty());
  CHECK(wrap("\n\n", 8) == "\n\n");
}

TEST_CASE("a command to copy is not broken") {
  CHECK(wrap("  strata train run.yaml --nproc 2", 8) == "  strata train run.yaml --nproc 2");
}
