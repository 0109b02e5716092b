#include "text/json.hpp"

#include <strata/error.hpp>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::text;

namespace {

std::string refusal(const std::string& text, const JsonSource& source = {"a.json"}, const JsonLimits& limits = {}) {
  return error_of<UserError>([&] { JsonDocument document(text, source, limits); });
}

}  // namespace

TEST_CASE("JSON is read as it is written") {
  const JsonDocument document(R"({"a":[1,-2,3.5,true,null,"x\u0000é"],"b":{"c":{}},"n":18446744073709551615})", {"f"});
  const JsonValue root = document.object();
  CHECK(document.json() ==
        nlohmann::json::parse(R"({"a":[1,-2,3.5,true,null,"x\u0000é"],"b":{"c":{}},"n":18446744073709551615})"));
  const std::vector<JsonValue> list = root["a"].elements();
  CHECK(list[0].count() == 1);
  CHECK(list[1].integer() == -2);
  CHECK(list[2].number() == 3.5);
  CHECK(list[3].flag());
  CHECK(list[5].text() == std::string("x\0é", 4));
  CHECK(root["b"]["c"].members().empty());
  CHECK_FALSE(root.find("gone"));
}

TEST_CASE("invalid JSON is refused with file and place") {
  CHECK_THAT(refusal("{\n \"a\": }"), Contains("a.json:2:7: is not valid JSON: "));
  CHECK_THAT(refusal(""), Contains("a.json:1:1: is not valid JSON: unexpected end of input"));
  CHECK_THAT(refusal("{}{}"), Contains("a.json:1:3: is not valid JSON"));
  CHECK_THAT(refusal("[1e999]"), Contains("number overflow"));
  CHECK_THAT(refusal("{\"a\":1,\"b\":{\"c\":2,\"c\":3}}"), Contains("a.json: the key 'c' occurs twice"));
  CHECK_THAT(refusal("nul", {"a.jsonl", "", 7}), Contains("a.jsonl:7:4: "));
  CHECK_THAT(refusal("nul", {"a.bin", "its header"}),
             Contains("a.bin: its header is not valid JSON") && Contains("at its byte 3"));
  for (const char* text : {"{", "[", "\"", "nul", "\"\xff\"", "\"\x1b\"", "{\"a\"", "[1,]", "-", "1e", "\"\\u12\""})
    CHECK_THAT(refusal(text), !Contains("json.exception") && !Contains("parse error") && !Contains("syntax error"));
}

TEST_CASE("depth, size and number of values are bounded") {
  const auto nested = [](int depth) {
    const auto count = static_cast<std::size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
  };
  CHECK_NOTHROW(JsonDocument(nested(JsonLimits::depth), {"f"}));
  CHECK_THAT(refusal(nested(JsonLimits::depth + 1)), Contains("nested deeper than 64 levels"));
  CHECK_THAT(refusal(std::string(1'000'000, '[')), Contains("nested deeper than 64 levels"));
  CHECK_THAT(refusal("[1,2,3]", {"a.json"}, {100, 3}), Contains("holds more than 3 values"));
  CHECK_THAT(refusal("[1,2,3]", {"a.json"}, {6, 100}), Contains("holds 7 bytes, and a file of its kind at most 6"));
  const TemporaryFolder folder;
  write_file(folder / "f", "[1,2,3]");
  CHECK_THAT(error_of<UserError>([&] { read_json(InputFile(folder / "f"), {6}); }), Contains("holds 7 bytes"));
}

TEST_CASE("a value of another type is refused with its key and the rule") {
  const JsonDocument document(
      R"({"a":{"b":[{"c":-1}]},"t":"long","n":9223372036854775808,"s":[4294967296,4294967296]})", {"f.json"});
  const JsonValue root = document.object();
  const JsonValue c = root["a"]["b"].elements()[0]["c"];
  const auto text = [](const auto& read) { return error_of<UserError>(read); };
  CHECK(text([&] { c.count(); }) == "f.json: a.b[0].c is -1; it must be an integer from 0 to 576460752303423488");
  CHECK(text([&] { c.text(); }) == "f.json: a.b[0].c is -1; it must be a text \"...\"");
  CHECK(text([&] { root["a"]["x"]; }) == "f.json: the key a.x is missing");
  CHECK(text([&] { root["t"].number(); }) == "f.json: t is \"long\"; it must be a number");
  CHECK(text([&] { root["t"].elements(); }) == "f.json: t is \"long\"; it must be a list [ ... ]");
  CHECK(text([&] { root["t"].members(); }) == "f.json: t is \"long\"; it must be an object { ... }");
  CHECK(text([&] { root["t"].flag(); }) == "f.json: t is \"long\"; it must be true or false");
  CHECK_THAT(text([&] { root["n"].integer(); }),
             Contains("n is 9223372036854775808; it must be an integer of 64 bits"));
  CHECK_THAT(text([&] { root["s"].shape(); }), Contains("s is [4294967296,4294967296]; it must be a shape"));
  CHECK_THAT(error_of<UserError>([] { JsonDocument("[]", {"g.json"}).object(); }),
             Contains("g.json: the JSON in it is []; an object"));
}

TEST_CASE("a shape's product is counted without overflow") {
  CHECK(product({}) == 1);
  CHECK(product({3, 0, 5}) == 0);
  CHECK(product({1 << 20, 1 << 20}) == std::int64_t{1} << 40);
  CHECK_FALSE(product({-1}));
  CHECK_FALSE(product({std::int64_t{1} << 40, std::int64_t{1} << 40}));
  CHECK_FALSE(product({INT64_MAX, 2}));
}

TEST_CASE("a value in a message is short") {
  CHECK(shown(nlohmann::json::parse("[1,2]")) == "[1,2]");
  CHECK(shown(nlohmann::json(std::vector<int>(1000))) == "a list of 1000 elements");
  CHECK(shown(nlohmann::json(std::string(1000, 'x'))).size() < 80);
  CHECK(shown(nlohmann::json("\x1b")) == "\"\\u001b\"");
  CHECK(shown(nlohmann::json::parse("{\"a\":1}")) == "an object of 1 key");
}
