#include "tokenizer/definition.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "text/json.hpp"
#include "tokenizer/byte_characters.hpp"
#include "tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

using Json = nlohmann::json;

constexpr const char* families = "Strata reads the byte-level BPE of GPT-2, GPT-NeoX, Llama 3 and Qwen2";

// A value of the file and where it stands.
class Value {
 public:
  Value(const std::string& file, std::string key, const Json& json)
      : file_(file), key_(std::move(key)), json_(json.is_null() ? nothing() : json) {}

  const Json& json() const { return json_; }
  const std::string& key() const { return key_; }
  bool is_null() const { return json_.is_null(); }

  [[noreturn]] void refuse(const std::string& rule) const {
    std::string text = json_.dump(-1, ' ', true);
    if (text.size() > 160) text = text.substr(0, 157) + "...";
    throw UserError(Place{file_}, key_ + " is " + text + "; " + rule);
  }
  void check(bool holds, const std::string& rule) const {
    if (!holds) refuse(rule);
  }

  // A key's value, null where it is not there.
  Value operator[](const std::string& name) const {
    check(json_.is_object(), "an object belongs there, as in a tokenizer.json of Hugging Face's library");
    const auto found = json_.find(name);
    return {file_, key_.empty() ? name : key_ + "." + name, found == json_.end() ? nothing() : *found};
  }
  std::vector<Value> elements() const {
    check(json_.is_array(), "a list belongs there");
    std::vector<Value> all;
    for (std::size_t index = 0; index < json_.size(); ++index) {
      all.emplace_back(file_, key_ + "[" + std::to_string(index) + "]", json_[index]);
    }
    return all;
  }
  std::string text() const {
    check(json_.is_string(), "a string belongs there");
    return json_.get<std::string>();
  }
  std::uint32_t id() const {
    check(json_.is_number_unsigned() && json_.get<std::uint64_t>() < INT32_MAX, "a token's id belongs there");
    return json_.get<std::uint32_t>();
  }
  bool flag(bool missing) const {
    if (is_null()) return missing;
    check(json_.is_boolean(), "true or false belongs there");
    return json_.get<bool>();
  }
  void only(std::initializer_list<std::string> known) const {
    for (const auto& [name, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), name) == known.end()) (*this)[name].refuse("Strata does not know it");
    }
  }

 private:
  static const Json& nothing() {
    static const Json json;
    return json;
  }
  const std::string& file_;
  std::string key_;
  const Json& json_;
};

std::string type_of(const Value& value) {
  return value["type"].text();
}

constexpr text::JsonLimits file_limits{std::size_t{512} << 20, std::size_t{1} << 24};

text::JsonDocument read_json(const std::string& path) {
  try {
    return text::read_json(InputFile(path), file_limits);
  } catch (const UserError& error) {
    throw UserError(std::string(error.what()) + "; a tokenizer.json belongs there");
  }
}

void read_vocabulary(const Value& value, Definition& result) {
  value.check(value.json().is_object() && !value.json().empty(), "an object of tokens and their ids belongs there");
  std::set<std::uint32_t> ids;
  for (const auto& [token, id] : value.json().items()) {
    const std::uint32_t number = value[token].id();
    if (!ids.insert(number).second) value[token].refuse("another token has the same id");
    result.vocabulary.emplace(token, number);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(character_of_byte(static_cast<unsigned char>(byte)), token);
    value[token].check(result.vocabulary.contains(token),
                       std::string("the token of byte ") + std::to_string(byte) +
                           " is missing, and a byte-level vocabulary has one for each byte; " + families);
  }
}

void read_merges(const Value& value, Definition& result) {
  for (const Value& merge : value.elements()) {
    std::pair<std::string, std::string> parts;
    if (merge.json().is_string()) {
      const std::string text = merge.text();
      const std::size_t space = text.find(' ');
      merge.check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
                  "two tokens with a space between them belong there");
      parts = {text.substr(0, space), text.substr(space + 1)};
    } else {
      const std::vector<Value> both = merge.elements();
      merge.check(both.size() == 2, "two tokens belong there");
      parts = {both[0].text(), both[1].text()};
    }
    for (const std::string& token : {parts.first, parts.second, parts.first + parts.second}) {
      merge.check(result.vocabulary.contains(token), "model.vocab has no token '" + token + "'");
    }
    result.merges.push_back(std::move(parts));
  }
}

void read_model(const Value& model, Definition& result) {
  const Value type = model["type"];
  type.check(type.is_null() || type.json() == "BPE", std::string("it must be \"BPE\"; ") + families);
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  const Value dropout = model["dropout"];
  dropout.check(dropout.is_null() || dropout.json() == 0, "it must be null: tokens may not depend on chance");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    model[name].check(model[name].is_null() || model[name].json() == "", std::string("it must be empty; ") + families);
  }
  model["byte_fallback"].check(!model["byte_fallback"].flag(false),
                               std::string("it must be false: its vocabulary is not of bytes; ") + families);
  const Value unknown = model["unk_token"];
  unknown.check(unknown.is_null(), "it must be null: every byte has a token, so none is unknown");
  result.ignore_merges = model["ignore_merges"].flag(false);
  read_vocabulary(model["vocab"], result);
  read_merges(model["merges"], result);
}

void read_normalizer(const Value& normalizer, Definition& result) {
  if (normalizer.is_null()) return;
  normalizer.check(type_of(normalizer) == "NFC", "it must be null or of type \"NFC\"");
  result.nfc = true;
}

void read_byte_level(const Value& value, bool alone, Definition& result) {
  const bool splits = value["use_regex"].flag(true);
  result.prefix_space = value["add_prefix_space"].flag(true);
  value.check(splits == alone, alone ? "use_regex must be true: without words BPE would run over whole documents"
                                     : "use_regex must be false behind a Split, as in Llama 3 and Qwen2");
  value.check(alone || !result.prefix_space, "add_prefix_space must be false behind a Split, as in Llama 3 and Qwen2");
}

void read_split(const Value& split, Definition& result) {
  split["behavior"].check(split["behavior"].json() == "Isolated", "it must be \"Isolated\"");
  split["invert"].check(!split["invert"].flag(false), "it must be false");
  const Value expression = split["pattern"]["Regex"];
  const std::optional<SplitPattern> pattern = split_pattern(expression.text());
  if (!pattern) expression.refuse(std::string("it is none of the expressions that Strata knows; ") + families);
  result.pattern = *pattern;
}

void read_pre_tokenizer(const Value& value, Definition& result) {
  value.check(!value.is_null(),
              std::string("a ByteLevel, or a Sequence of a Split and a ByteLevel, belongs there; ") + families);
  if (type_of(value) == "ByteLevel") return read_byte_level(value, true, result);
  value.check(type_of(value) == "Sequence", std::string("its type must be ByteLevel or Sequence; ") + families);
  const std::vector<Value> parts = value["pretokenizers"].elements();
  value.check(parts.size() == 2 && type_of(parts[0]) == "Split" && type_of(parts[1]) == "ByteLevel",
              std::string("the Sequence must be a Split and a ByteLevel; ") + families);
  read_split(parts[0], result);
  read_byte_level(parts[1], false, result);
}

// The ids that the library gives: a token of the vocabulary keeps its own, others follow one after the other.
void read_added(const Value& list, Definition& result) {
  if (list.is_null()) return;
  std::set<std::string> seen;
  std::uint32_t next = static_cast<std::uint32_t>(result.vocabulary.size());
  for (const Value& token : list.elements()) {
    Definition::AddedToken added{token["content"].text(), token["id"].id(), token["normalized"].flag(true)};
    token["content"].check(!added.content.empty(), "it must have at least one character");
    token["content"].check(seen.insert(added.content).second, "it is there twice");
    for (const char* name : {"single_word", "lstrip", "rstrip"}) {
      token[name].check(!token[name].flag(false), std::string("it must be false; ") + families);
    }
    const auto known = result.vocabulary.find(added.content);
    const std::uint32_t wanted = known == result.vocabulary.end() ? next : known->second;
    token["id"].check(added.id == wanted, "Hugging Face's library gives this token the id " + std::to_string(wanted) +
                                              ": save the file with it once more");
    if (added.id >= next) next = added.id + 1;
    result.added.push_back(std::move(added));
  }
}

void read_template(const Value& value, Definition& result) {
  bool text_seen = false;
  for (const Value& piece : value["single"].elements()) {
    if (piece.json().contains("Sequence")) {
      piece.check(!text_seen && piece["Sequence"]["id"].json() == "A", "a template has one text, A");
      text_seen = true;
      continue;
    }
    const std::string name = piece["SpecialToken"]["id"].text();
    for (const Value& id : value["special_tokens"][name]["ids"].elements()) {
      (text_seen ? result.behind : result.before).push_back(id.id());
    }
  }
  value["single"].check(text_seen, "a template has one text, A");
}

void read_post_processor(const Value& value, Definition& result) {
  if (value.is_null()) return;
  const std::string type = type_of(value);
  if (type == "ByteLevel") return;  // changes offsets only
  if (type == "TemplateProcessing") {
    value.check(result.before.empty() && result.behind.empty(), "there is another template already");
    return read_template(value, result);
  }
  value.check(type == "Sequence", "its type must be ByteLevel, TemplateProcessing or Sequence");
  for (const Value& part : value["processors"].elements()) read_post_processor(part, result);
}

}  // namespace

Definition read_definition(const std::string& path) {
  const text::JsonDocument document = read_json(path);
  const Json& json = document.json();
  const Value file(path, "", json);
  if (!json.is_object() || !json.contains("model")) {
    throw UserError(Place{path}, "has no key 'model'; name the tokenizer.json that Hugging Face's library saves");
  }
  file.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  file["version"].check(file["version"].json() == "1.0", "it must be \"1.0\"");
  for (const char* name : {"truncation", "padding"}) {
    file[name].check(file[name].is_null(), "it must be null: documents are packed whole; set it so in the file");
  }
  Definition result;
  read_model(file["model"], result);
  read_normalizer(file["normalizer"], result);
  read_pre_tokenizer(file["pre_tokenizer"], result);
  const Value decoder = file["decoder"];
  decoder.check(!decoder.is_null() && type_of(decoder) == "ByteLevel",
                std::string("it must be a ByteLevel; ") + families);
  read_added(file["added_tokens"], result);
  read_post_processor(file["post_processor"], result);
  return result;
}

}  // namespace strata::tokenizer
