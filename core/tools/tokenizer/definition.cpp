#include "tools/tokenizer/definition.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "text/json.hpp"
#include "tools/tokenizer/byte_characters.hpp"
#include "tools/tokenizer/normalization.hpp"
#include "tools/tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

// Gemma's, the largest of 2026, has 33 MB.
constexpr text::JsonLimits file_limits{std::size_t{256} << 20, std::size_t{1} << 24};

// Of an added token, which is looked for from every place of a text.
constexpr std::size_t longest_added = 1024;

std::string character_token(unsigned byte) {
  std::string token;
  append_utf8(character_of_byte(static_cast<unsigned char>(byte)), token);
  return token;
}

// No UTF-8 text has the bytes 0xC0, 0xC1 and from 0xF5 on: Pythia's file has no tokens for them.
bool is_in_text(unsigned byte) {
  return byte != 0xc0 && byte != 0xc1 && byte < 0xf5;
}

bool lacks_bytes(const Definition& definition) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (is_in_text(byte) && !definition.vocabulary.contains(character_token(byte))) return true;
  }
  return false;
}

void read_vocabulary(const Value& value, Definition& result) {
  value.check(value.json().is_object() && !value.json().empty(), "it must be an object of tokens and their ids");
  std::set<std::uint32_t> ids;
  for (const auto& [token, id] : value.json().items()) {
    const std::uint32_t number = value[token].id();
    if (!ids.insert(number).second) value[token].refuse("another token has the same id");
    result.vocabulary.emplace(token, number);
  }
}

// The treatment of bytes without a token, as in a tokenizer trained without the full alphabet.
void read_unknown(const Value& model, Definition& result) {
  result.unknown.fuses = model["fuse_unk"].flag(false);
  const Value unknown = model["unk_token"];
  const bool fallback = model["byte_fallback"].flag(false);
  if (!lacks_bytes(result)) return;
  for (unsigned byte = 0; fallback && byte < 256; ++byte) {
    constexpr const char* digits = "0123456789ABCDEF";
    const std::string token = std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
    model["byte_fallback"].check(!result.vocabulary.contains(token),
                                 std::string("it must be false: its vocabulary is not of bytes; ") + families);
  }
  if (unknown.is_null()) return;
  const auto found = result.vocabulary.find(unknown.text());
  unknown.check(found != result.vocabulary.end(), "model.vocab has no such token, and lacks tokens of bytes");
  result.unknown.id = found->second;
}

void read_merges(const Value& value, Definition& result) {
  for (const Value& merge : value.elements()) {
    std::pair<std::string, std::string> parts;
    if (merge.json().is_string()) {
      const std::string text = merge.text();
      const std::size_t space = text.find(' ');
      merge.check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
                  "it must be two tokens separated by a space");
      parts = {text.substr(0, space), text.substr(space + 1)};
    } else {
      const std::vector<Value> both = merge.elements();
      merge.check(both.size() == 2, "it must be a list of two tokens");
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
  dropout.check(dropout.is_null() || dropout.json() == 0, "it must be null: tokens must not be random");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    model[name].check(model[name].is_null() || model[name].json() == "", std::string("it must be empty; ") + families);
  }
  result.ignore_merges = model["ignore_merges"].flag(false);
  read_vocabulary(model["vocab"], result);
  read_unknown(model, result);
  read_merges(model["merges"], result);
}

void read_normalizer(const Value& normalizer, Definition& result) {
  if (normalizer.is_null()) return;
  if (normalizer.type() == "Sequence") {
    for (const Value& part : normalizer["normalizers"].elements()) read_normalizer(part, result);
    return;
  }
  normalizer["type"].check(normalizer.type() == "NFC",
                           std::string("it must be NFC, or a Sequence of NFC; ") + families);
  result.nfc = true;
}

// The ids that the library gives: a token of the vocabulary keeps its own, others follow one after the other.
void read_added(const Value& list, Definition& result) {
  if (list.is_null()) return;
  std::set<std::string> seen, seen_normalized;
  std::uint32_t next = static_cast<std::uint32_t>(result.vocabulary.size());
  for (const Value& token : list.elements()) {
    const std::string content = token["content"].text();
    if (content.empty()) continue;  // as in the library
    token["content"].check(content.size() <= longest_added, "it must have at most 1024 bytes");
    AddedToken added{content, token["id"].id()};
    added.normalized = token["normalized"].flag(true);
    added.single_word = token["single_word"].flag(false);
    added.strips_left = token["lstrip"].flag(false);
    added.strips_right = token["rstrip"].flag(false);
    token["content"].check(seen.insert(added.content).second, "it occurs twice");
    if (added.normalized && result.nfc) {
      std::string changed;
      token["content"].check(seen_normalized.emplace(normalized(content, changed)).second,
                             "NFC makes it equal to another added token, and of two such tokens Hugging Face's library "
                             "finds one by chance; set \"normalized\" to false for one of them");
    }
    const auto known = result.vocabulary.find(added.content);
    const std::uint32_t wanted = known == result.vocabulary.end() ? next : known->second;
    token["id"].check(added.id == wanted, "Hugging Face's library gives this token the id " + std::to_string(wanted) +
                                              ": save the file again with that library");
    if (added.id >= next) next = added.id + 1;
    result.added.push_back(std::move(added));
  }
}

void read_template(const Value& value, Definition& result) {
  bool text_seen = false;
  for (const Value& piece : value["single"].elements()) {
    if (piece.json().contains("Sequence")) {
      piece.check(!text_seen && piece["Sequence"]["id"].json() == "A", "it must have one text, A");
      text_seen = true;
      continue;
    }
    const std::string name = piece["SpecialToken"]["id"].text();
    for (const Value& id : value["special_tokens"][name]["ids"].elements()) {
      (text_seen ? result.behind : result.before).push_back(id.id());
    }
  }
  value["single"].check(text_seen, "it must have one text, A");
}

std::uint32_t id_of_pair(const Value& pair) {
  const std::vector<Value> both = pair.elements();
  pair.check(both.size() == 2, "it must be a token and its id");
  return both[1].id();
}

void read_post_processor(const Value& value, Definition& result) {
  if (value.is_null()) return;
  const std::string type = value.type();
  if (type == "ByteLevel") return;  // changes offsets only
  if (type == "Sequence") {
    for (const Value& part : value["processors"].elements()) read_post_processor(part, result);
    return;
  }
  value.check(result.before.empty() && result.behind.empty(), "there is already another template");
  if (type == "TemplateProcessing") return read_template(value, result);
  value["type"].check(type == "RobertaProcessing" || type == "BertProcessing",
                      "it must be ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or Sequence");
  result.before.push_back(id_of_pair(value["cls"]));
  result.behind.push_back(id_of_pair(value["sep"]));
}

Definition::Decoder read_decoder(const Value& decoder) {
  if (decoder.is_null()) return Definition::Decoder::Spaced;
  if (decoder.type() != "Sequence") {
    decoder["type"].check(decoder.type() == "ByteLevel", std::string("it must be ByteLevel; ") + families);
    return Definition::Decoder::Bytes;
  }
  const std::vector<Value> parts = decoder["decoders"].elements();
  if (parts.empty()) return Definition::Decoder::Joined;
  decoder["decoders"].check(parts.size() == 1, std::string("it must be one ByteLevel; ") + families);
  return read_decoder(parts.front());
}

// transformers applies both only on request: cut or filled documents are not training data.
void read_lengths(const Value& file, Definition& result) {
  for (const char* name : {"truncation", "padding"}) {
    if (file[name].is_null()) continue;
    file[name].check(file[name].json().is_object(), "it must be an object or null");
    result.notes.push_back(file[name].told() +
                           "; it is not used: texts are neither truncated nor padded, as by default in transformers");
  }
}

text::JsonDocument read_file(const std::string& path) {
  try {
    return text::read_json(InputFile(path), file_limits);
  } catch (const UserError& error) {
    throw UserError("{}; a tokenizer.json is required", error.what());
  }
}

}  // namespace

Definition read_definition(const std::string& path) {
  const text::JsonDocument document = read_file(path);
  const Value::Json& json = document.json();
  const Value file(path, "", json);
  if (!json.contains("model")) {
    throw UserError(Place{path}, "has no key 'model'; give the tokenizer.json that Hugging Face's library saves");
  }
  file.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  file["version"].check(!json.contains("version") || file["version"].json() == "1.0", "it must be \"1.0\"");
  Definition result;
  read_lengths(file, result);
  read_model(file["model"], result);
  read_normalizer(file["normalizer"], result);
  result.word_steps = read_word_steps(file["pre_tokenizer"]);
  result.decoder = read_decoder(file["decoder"]);
  read_added(file["added_tokens"], result);
  read_post_processor(file["post_processor"], result);
  return result;
}

void refuse_tokens_beside(const std::string& folder, const Definition& definition) {
  const auto check = [&](const std::string& file, const std::string& content) {
    const auto is_it = [&](const AddedToken& token) { return token.content == content; };
    if (std::ranges::any_of(definition.added, is_it)) return;
    throw UserError(Place{file},
                    "adds the token {}, which tokenizer.json lacks; save the tokenizer again with Hugging Face's "
                    "library (save_pretrained), or give --tokenizer the tokenizer.json alone",
                    text::shown(content));
  };
  std::error_code ignored;
  const auto file_of = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  if (const std::string file = file_of("tokenizer_config.json"); std::filesystem::exists(file, ignored)) {
    const text::JsonDocument document = text::read_json(InputFile(file), file_limits);
    const Value::Json& json = document.json();
    if (const auto decoder = json.find("added_tokens_decoder"); decoder != json.end() && decoder->is_object()) {
      for (const Value::Json& token : *decoder)
        if (token.is_object() && token.contains("content") && token["content"].is_string())
          check(file, token["content"].get<std::string>());
      return;  // transformers does not look at the older file then
    }
  }
  if (const std::string file = file_of("added_tokens.json"); std::filesystem::exists(file, ignored)) {
    const text::JsonDocument document = text::read_json(InputFile(file), file_limits);
    for (const auto& [content, id] : document.json().items()) check(file, content);
  }
}

}  // namespace strata::tokenizer
