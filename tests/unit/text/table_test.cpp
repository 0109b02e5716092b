#include "text/table.hpp"

#include <strata/error.hpp>

#include <sstream>

#include "catch.hpp"

using namespace strata::text;

namespace {
std::string text_of(const Table& table, TableFormat format) {
  std::ostringstream out;
  print(table, format, out);
  return out.str();
}
const Table example{{{"name"}, {"n", true}}, {{"a|b", "7"}, {"he said \"é\", then left", "1234"}}};
}  // namespace

TEST_CASE("one table in three formats") {
  CHECK(text_of(example, TableFormat::Text) ==
        "name                       n\n"
        "a|b                        7\n"
        "he said \"é\", then left  1234\n");
  CHECK(text_of(example, TableFormat::Markdown) ==
        "| name                   |    n |\n"
        "| ---------------------- | ---: |\n"
        "| a\\|b                   |    7 |\n"
        "| he said \"é\", then left | 1234 |\n");
  CHECK(text_of(example, TableFormat::Csv) == "name,n\na|b,7\n\"he said \"\"é\"\", then left\",1234\n");
}

TEST_CASE("formats have names, and an invalid table is an error") {
  CHECK(parse_table_format("markdown") == TableFormat::Markdown);
  CHECK_THROWS_AS(parse_table_format("html"), strata::UserError);
  CHECK_THROWS_AS(text_of(example, TableFormat::Json), strata::Bug);
  CHECK_THROWS_AS(text_of({{{"a"}, {"b"}}, {{"1"}}}, TableFormat::Text), strata::Bug);
  CHECK(text_of({{{"a"}}, {}}, TableFormat::Text) == "a\n");
}
