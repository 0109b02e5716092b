#include <sys/stat.h>

#include "catch.hpp"
#include "config/tree.hpp"
#include "fake_plugins.hpp"

namespace strata::config {
namespace {

Node yaml(const std::string& text) {
  return read_text(text, Format::Yaml, "a.yaml");
}
Node toml(const std::string& text) {
  return read_text(text, Format::Toml, "a.toml");
}
Node json(const std::string& text) {
  return read_text(text, Format::Json, "a.json");
}

std::string place_of(const Node& tree, const std::string& path) {
  const Node* node = find(tree, path);
  return node == nullptr ? "absent" : to_string(node->place);
}

// The tree in one canonical line: structure and raw texts, without quotes and places.
std::string canonical(const Node& node) {
  std::string text;
  switch (node.kind) {
    case NodeKind::Null:
      return "null";
    case NodeKind::Scalar:
      return "<" + node.text + ">";
    case NodeKind::Sequence:
      for (const Node& item : node.items) text += canonical(item) + ",";
      return "[" + text + "]";
    case NodeKind::Map:
      for (const Entry& entry : node.entries) text += entry.key + ":" + canonical(entry.value) + ",";
      return "{" + text + "}";
  }
  return text;
}

}  // namespace

TEST_CASE("The same content in three spellings is the same tree") {
  const Node from_yaml = yaml(
      "device: auto\n"
      "model: {plugin: some, seq_len: 512, note: 'über \"x\"\\', steps: 5e8}\n"
      "train:\n  clip: 1.0\n  list: [1, [-2.5, \"3\"], true]\n  empty: {}\n  none: []\n");
  const Node from_toml = toml(
      "device = \"auto\"\n"
      "model = {plugin = 'some', seq_len = 512, note = 'über \"x\"\\', steps = 5e8}\n"
      "[train]\nclip = 1.0\nlist = [\n 1, # one\n [-2.5, \"3\"], true ]\nempty = {}\nnone = []\n");
  const Node from_json = json(
      "{\"device\": \"auto\", // a comment\n"
      "\"model\": {\"plugin\": \"some\", \"seq_len\": 512, \"note\": \"\\u00fcber \\\"x\\\"\\\\\", \"steps\": 5e8},\n"
      "\"train\": {\"clip\": 1.0, \"list\": [1, [-2.5, \"3\"], true], \"empty\": {}, \"none\": [] } }");
  CHECK(canonical(from_yaml) == canonical(from_toml));
  CHECK(canonical(from_yaml) == canonical(from_json));
  CHECK(find(from_yaml, "model.note")->text == "über \"x\"\\");
  CHECK(find(from_toml, "train.list")->items[1].items[1].quoted);
  CHECK_FALSE(find(from_toml, "train.list")->items[1].items[0].quoted);
}

TEST_CASE("Every value knows its place and origin") {
  const Node from_yaml = yaml("# c\nä: 'é' \nmodel: {é: ü, n: 5}\ntrain:\n  steps:\n  list:\n  - 7\n");
  CHECK(place_of(from_yaml, "ä") == "a.yaml:2:4");
  CHECK(place_of(from_yaml, "model.n") == "a.yaml:3:18");     // columns are characters, not bytes
  CHECK(place_of(from_yaml, "train.steps") == "a.yaml:5:3");  // no value: the key's
  CHECK(to_string(find(from_yaml, "train.list")->items[0].place) == "a.yaml:7:5");
  CHECK(to_string(from_yaml.entries[1].place) == "a.yaml:3:1");
  const Node from_toml = toml("a = 1\n[b.c]\nd = {\"é\" = 'ü', n = -5}\nl = [1,\n  22]\n[[t]]\nx = 1979-05-27\n");
  CHECK(place_of(from_toml, "a") == "a.toml:1:5");
  CHECK(place_of(from_toml, "b.c.d.n") == "a.toml:3:21");
  CHECK(find(from_toml, "b.c.d.n")->text == "-5");
  CHECK(to_string(find(from_toml, "b.c.l")->items[1].place) == "a.toml:5:3");
  CHECK(find(from_toml, "t")->items[0].get("x")->text == "1979-05-27");
  const Node from_json = json("{\n \"é\": \"a\\\\\", \"b\": [ 1,-2e3],\n \"c\\\"\": null, \"d\": {}, \"e\": false}");
  CHECK(place_of(from_json, "é") == "a.json:2:7");
  CHECK(to_string(find(from_json, "b")->items[1].place) == "a.json:2:23");
  CHECK(find(from_json, "b")->items[1].text == "-2e3");
  CHECK(place_of(from_json, "c\"") == "a.json:3:2");
  CHECK(place_of(from_json, "e") == "a.json:3:29");
  CHECK(find(read_text("a: 1", Format::Yaml, "/some/folder/b.yaml"), "a")->origin == "b.yaml:1");
}

TEST_CASE("TOML keeps the order in which it was written") {
  const Node tree = toml("z = 1\na = 2\n[m]\ny = 1\nb = 2\n[c]\n");
  CHECK(canonical(tree) == "{z:<1>,a:<2>,m:{y:<1>,b:<2>,},c:{},}");
}

TEST_CASE("Empty texts are empty maps") {
  for (const char* text : {"", " \n\n", "\xEF\xBB\xBF"}) {
    CHECK(yaml(text).kind == NodeKind::Map);
    CHECK(toml(text).kind == NodeKind::Map);
    CHECK(json(text).kind == NodeKind::Map);
  }
  CHECK(yaml("# only a comment\n---\n").entries.empty());
  CHECK(toml("# only a comment").entries.empty());
  CHECK(yaml("\xEF\xBB\xBF"
             "a: 1")
            .get("a")
            ->place.column == 4);
  CHECK(yaml("a: 1\r\nb: 2\r\n").get("b")->text == "2");
  CHECK(toml("a = 1\r\nb = 2\r\n").get("a")->text == "1");
}

TEST_CASE("What readers disagree about is an error with its place") {
  const auto of_yaml = [](const std::string& text) { return error_of([&] { yaml(text); }); };
  const auto of_toml = [](const std::string& text) { return error_of([&] { toml(text); }); };
  const auto of_json = [](const std::string& text) { return error_of([&] { json(text); }); };
  CHECK(of_yaml("t:\n  a: 1\n  b: 2\n  a: 3") == "a.yaml:4:3: key \"t.a\" is given twice, first on line 2; keep one");
  CHECK(of_yaml("a: {x: 1, 'x': 1}").starts_with("a.yaml:1:11: key \"a.x\" is given twice"));
  CHECK(of_json("{\"a\": 1,\n\"a\": 2}") == "a.json:2:1: key \"a\" is given twice, first on line 1; keep one");
  CHECK(of_toml("a = 1\na = 2").starts_with("a.toml:2:"));
  CHECK(of_toml("[a]\n[a]\n").starts_with("a.toml:2:"));
  CHECK(of_yaml("b: &x {c: 1}\na:\n  <<: *x").starts_with("a.yaml:3:3: merge keys (<<) are not supported"));
  CHECK(of_json("{\"<<\": {}}").starts_with("a.json:1:2: merge keys"));
  CHECK(of_yaml("t: {a: 010}").starts_with("a.yaml:1:8: t.a: \"010\" has a leading zero"));
  CHECK(of_yaml("a: [-01.5]").starts_with("a.yaml:1:5: a: \"-01.5\" has a leading zero"));
  CHECK(of_toml("a = 010").starts_with("a.toml:1:"));
  CHECK(of_json("{\"a\": 010}").starts_with("a.json:1:"));
  CHECK(of_yaml("a: '010'\nb: 0\nc: 0.5\nd: 01ab\ne: 0e1") == "");
  CHECK(of_yaml("a: !!str 5").find("tags are not supported") != std::string::npos);
  CHECK(of_yaml("a: 1\n---\nb: 1").find(": a second YAML document") != std::string::npos);
  CHECK(of_yaml("? [a]\n: 1").find("cannot be a key") != std::string::npos);
  CHECK(of_yaml(": 1").find("a key without a name") != std::string::npos);
  CHECK(of_yaml("- a\n").find("a config is a set of sections") != std::string::npos);
  CHECK(of_json("[1]").starts_with("a.json:1:1: a config is a set of sections"));
  CHECK(of_yaml("a: [1").starts_with("a.yaml:1:"));
  CHECK(of_yaml("a: b: c").starts_with("a.yaml:1:5: not valid YAML"));
  CHECK(of_toml("a = ").starts_with("a.toml:1:"));
  CHECK(of_json("{\"a\": }").starts_with("a.json:1:7: not valid JSON"));
  CHECK(of_json("{\"a\": 1} x").starts_with("a.json:1:10: not valid JSON"));
  CHECK(of_json("{\"a\": \"x\\u0000\"}").find("zero byte") != std::string::npos);
}

TEST_CASE("Aliases copy; misused they are errors") {
  const Node tree = yaml("a: &x {n: 1}\nb: *x\nc: &y 5\nd: [*y, *x]");
  CHECK(canonical(tree) == "{a:{n:<1>,},b:{n:<1>,},c:<5>,d:[<5>,{n:<1>,},],}");
  CHECK(error_of([] { yaml("a: *nowhere"); }).starts_with("a.yaml:1:"));
  CHECK(error_of([] { yaml("a: &x [1, *x]"); }).find("an alias inside its own anchor") != std::string::npos);
  std::string bomb = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (char name = 'b'; name < 'k'; ++name) {
    bomb += std::string(1, name) + ": &" + name + " [";
    for (int copy = 0; copy < 10; ++copy) bomb += std::string(copy > 0 ? ", *" : "*") + static_cast<char>(name - 1);
    bomb += "]\n";
  }
  CHECK(error_of([&] { yaml(bomb); }).find("more than 20000 values") != std::string::npos);
}

TEST_CASE("Depth and size are limited") {
  const auto nested = [](int depth, const std::string& open, const std::string& close) {
    std::string text;
    for (int at = 0; at < depth; ++at) text += open;
    for (int at = 0; at < depth; ++at) text += close;
    return text;
  };
  CHECK_NOTHROW(yaml("a: " + nested(60, "[", "]")));
  CHECK_NOTHROW(json("{\"a\": " + nested(60, "[", "]") + "}"));
  for (const int depth : {70, 3000, 100000}) {
    CHECK(error_of([&] { yaml("a: " + nested(depth, "[", "]")); }).starts_with("a.yaml:"));
    CHECK(error_of([&] { yaml("a: " + nested(depth, "{a: ", "}")); }).starts_with("a.yaml:"));
    CHECK(error_of([&] { yaml("a: " + nested(depth, "- ", "")); }).starts_with("a.yaml:"));
    CHECK(error_of([&] { json("{\"a\": " + nested(depth, "[", "]") + "}"); }).starts_with("a.json:"));
    CHECK(error_of([&] { toml("a = " + nested(depth, "[", "]")); }).starts_with("a.toml:"));
    CHECK(error_of([&] { toml("a" + nested(depth, ".a", "") + " = 1"); }).starts_with("a.toml:"));
    CHECK(error_of([&] { toml("[a" + nested(depth, ".a", "") + "]"); }).starts_with("a.toml:"));
  }
  CHECK(error_of([] { yaml("a: " + std::string(2 << 20, 'x')); }) ==
        "a.yaml: larger than 1 MiB, so this is no config file");
}

TEST_CASE("Binary junk is refused before any parser sees it") {
  CHECK(error_of([] { yaml(std::string("a: 1\nb: \0", 9)); }) ==
        "a.yaml:2:4: byte 0x00 is not UTF-8 text; is this a config file?");
  CHECK(error_of([] { toml("a = 1 # \xff"); }).starts_with("a.toml:1:9: byte 0xff"));
  CHECK(error_of([] { json("{\"a\": \"\xc3\"}"); }).starts_with("a.json:1:8: byte 0xc3"));
  CHECK(error_of([] {
          yaml(
              "\x7f"
              "ELF");
        }).starts_with("a.yaml:1:1: byte 0x7f"));
  CHECK(error_of([] { yaml("a: \xed\xa0\x80"); }) != "");  // a surrogate
  CHECK(error_of([] { yaml("a: \xc0\xaf"); }) != "");      // an overlong slash
  CHECK(error_of([] { yaml("a: \xf0\x9f\x98\x80"); }) == "");
}

TEST_CASE("Files that cannot be read are one line") {
  const std::string good = write_file("good.yaml", "a: 1\n");
  CHECK(find(read_file(good), "a")->origin == "good.yaml:1");
  const std::string folder = std::filesystem::path(good).parent_path().string();
  CHECK(error_of([&] { read_file(folder + "/none.yaml"); }) == folder + "/none.yaml: this config file does not exist");
  CHECK(error_of([&] { read_file(folder + "/x.txt"); }).find("must end in .yaml, .yml, .toml or .json") !=
        std::string::npos);
  std::filesystem::create_directory(folder + "/dir.yaml");
  CHECK(error_of([&] { read_file(folder + "/dir.yaml"); }).find("is a folder") != std::string::npos);
  CHECK(error_of([&] { read_file(good + "/below.yaml"); }) != "");
  REQUIRE(mkfifo((folder + "/pipe.yaml").c_str(), 0600) == 0);
  CHECK(error_of([&] { read_file(folder + "/pipe.yaml"); }).find("not a regular file") != std::string::npos);
  CHECK(error_of([&] { read_file(write_file("big.json", std::string(3 << 20, ' '))); }).find("larger than 1 MiB") !=
        std::string::npos);
  CHECK(canonical(read_file(write_file("a.toml", "a = 1"))) == canonical(read_file(write_file("a.yml", "a: 1"))));
}

TEST_CASE("--set gives a tree") {
  CHECK(canonical(parse_setting("a.b=c")) == "{a:{b:<c>,},}");
  CHECK(canonical(parse_setting("a=[1, {x: 2}]")) == "{a:[<1>,{x:<2>,},],}");
  CHECK(canonical(parse_setting("a=x=y")) == "{a:<x=y>,}");
  CHECK(canonical(parse_setting("a=\"\"")) == "{a:<>,}");
  CHECK(parse_setting("a='5'").get("a")->quoted);
  CHECK(parse_setting("a.b=1").get("a")->get("b")->origin == "--set");
  for (const char* wrong : {"", "a", "=1", ".a=1", "a.=1", "a..b=1", "a b=1", "a=", "a=~", "a=[1", "a=b: c", "a=- b",
                            "a=010", "a=*x", "a=1\nb: 2", "a={x: 1, x: 2}"}) {
    INFO(wrong);
    const std::string error = error_of([&] { parse_setting(wrong); });
    CHECK(error.starts_with("--set"));
    CHECK(error.find('\n') == std::string::npos);
  }
}

TEST_CASE("Merging: later wins, maps are merged") {
  Node base = yaml("a: {x: 1, y: [1, 2]}\nb: 1\nc: {d: 1}");
  merge(base, yaml("a: {y: [3], z: 4}\nb: {n: 1}\nc:"));
  CHECK(canonical(base) == "{a:{x:<1>,y:[<3>,],z:<4>,},b:{n:<1>,},c:{d:<1>,},}");
  merge(base, parse_setting("a.x=9"));
  CHECK(find(base, "a.x")->origin == "--set");
  CHECK(find(base, "a.z")->origin == "a.yaml:1");
  CHECK(find(base, "a.none.deeper") == nullptr);
}

TEST_CASE("Text is shown on one line, whole characters only") {
  CHECK(shown("a\nb\x1b") == "\"a\\u000ab\\u001b\"");
  const std::string shortened = shown(std::string(59, 'x') + "éé");
  CHECK(shortened == "\"" + std::string(59, 'x') + "...\"");
}

}  // namespace strata::config
