// One small config for every key of a ds_config: what its line says, or its refusal. The cases are in verdicts.txt.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "catch.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"
#include "translation.hpp"

namespace strata::config {
namespace {

struct Case {
  std::string key, value, context, expected;
};

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<Case> cases() {
  std::ifstream file(STRATA_DEEPSPEED_VERDICTS);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> fields;
    for (std::size_t at = 0; at != std::string::npos;) {
      const std::size_t bar = line.find(" |", at);
      fields.push_back(trimmed(line.substr(at, bar - at)));
      at = bar == std::string::npos ? bar : bar + 2;
    }
    REQUIRE(fields.size() == 4);
    cases.push_back({fields[0], fields[1], fields[2], fields[3]});
  }
  return cases;
}

// The value keeps its spelling: it is put in as text.
std::string config_of(const Case& one) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(one.context);
  std::string pointer = "/" + one.key;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  json[nlohmann::ordered_json::json_pointer(pointer)] = "@@";
  std::string text = json.dump();
  return text.replace(text.find("\"@@\""), 4, one.value);
}

bool gives_a_batch(const std::string& text) {
  return text.find("\"train_batch_size\"") != std::string::npos ||
         text.find("\"train_micro_batch") != std::string::npos;
}

}  // namespace

TEST_CASE("Every key of a ds_config has its verdict") {
  int tried = 0;
  for (const Case& one : cases()) {
    const std::string text = config_of(one);
    INFO(text);
    const bool refused = one.expected.starts_with("!");
    // Keys that a ds_config cannot be known by stand beside one that it can.
    const Translated result = translated(
        text, gives_a_batch(text) ? std::vector<std::string>{} : std::vector<std::string>{"train.micro_batch=1"});
    if (refused) {
      CHECK(result.error.starts_with("ds_config.json:"));
      CHECK(result.error.find(one.expected.substr(1)) != std::string::npos);
      CHECK(result.error.find('\n') == std::string::npos);
      if (result.error.find(one.expected.substr(1)) == std::string::npos) CHECK(result.error == one.expected);
    } else {
      CHECK(result.error == "");
      std::string key = one.key;
      if (key == "zero_optimization") key = "zero_optimization.stage";
      std::string lines;
      for (const resolve::DialectLine& line : result.report.lines) lines += line.key + ": " + line.text + "\n";
      INFO(lines);
      // Of an old name the line of the new one counts as well.
      CHECK((one.expected.empty() ? !line_of(result, key).empty() : lines.find(one.expected) != std::string::npos));
    }
    ++tried;
  }
  CHECK(tried > 300);
}

TEST_CASE("Every row of the table is tested") {
  std::set<std::string> tested;
  for (const Case& one : cases()) tested.insert(one.key);
  for (const char* part : {"keys", "blocks", "aliases"})
    for (const Entry& row : deepspeed::deepspeed_table(part).entries) {
      const bool below = std::any_of(tested.begin(), tested.end(),
                                     [&](const std::string& key) { return key.starts_with(row.key + "."); });
      INFO(row.key);
      CHECK((tested.contains(row.key) || below));
    }
}

TEST_CASE("Every row of the table has an effect and only known words") {
  const std::set<std::string> words{"type",         "choices",  "to",          "values",      "also",      "default",
                                    "default_with", "auto",     "notes",       "notes_on",    "note",      "refuse",
                                    "optional",     "required", "multiple_of", "warning",     "elsewhere", "rule",
                                    "chooses",      "at_stage", "slot",        "default_rule"};
  for (const Entry& row : deepspeed::deepspeed_table("keys").entries) {
    INFO(row.key);
    CHECK(row.value.get("type") != nullptr);
    for (const Entry& word : row.value.entries) CHECK(words.contains(word.key));
    const auto has = [&](const char* word) { return row.value.get(word) != nullptr; };
    CHECK((has("to") || has("note") || has("refuse") || has("rule") || has("slot")));
    CHECK((!has("values") || has("refuse") || row.value.get("values")->entries.size() == 2));
  }
}

}  // namespace strata::config
