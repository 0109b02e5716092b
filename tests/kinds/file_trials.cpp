// What readers of text, tokens and tokenizers make of files: many in one process. Each line of standard input is a
// request, each line of standard output what came of it:
//   {"plugins": true}                                          the data plugins that can be loaded
//   {"tokenizer": PATH, "texts": [TEXT, ...]}                  of each text its tokens, them as text, and whether parts
//   of it give the same
//   {"info": PATH, "plugin": NAME or "", "settings": [...]}    what `strata data info` prints; "show" the same
//   {"pack": [INPUT, ...], "output": PATH, ...}                the other keys: options of `strata data pack`
// What a user is to be told of is {"refused": TEXT}, every other error {"failed": TEXT}.
#include <strata/error.hpp>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plugins/engine_plugins.hpp"
#include "tools/data/data_command.hpp"
#include "tools/plugins/plugins.hpp"
#include "tools/tokenizer/tokenizer.hpp"

namespace {

using namespace strata;
using Json = nlohmann::ordered_json;
using Ids = std::vector<std::uint32_t>;

// The tokens of a document whose text is encoded in these parts.
Ids encoded(const tokenizer::Tokenizer& tokenizer, tokenizer::Encoder& encoder,
            const std::vector<std::string_view>& parts) {
  Ids ids = tokenizer.before();
  for (const std::string_view part : parts) encoder.encode(part, ids);
  ids.insert(ids.end(), tokenizer.behind().begin(), tokenizer.behind().end());
  return ids;
}

// A text, cut wherever it may be.
std::vector<std::string_view> parts_of(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t cut = tokenizer.last_cut(text);
    parts.insert(parts.begin(), text.substr(cut));
    text = text.substr(0, cut);
  }
  return parts;
}

Json tokenize(const Json& request) {
  const tokenizer::Tokenizer tokenizer(request["tokenizer"]);
  tokenizer::Encoder encoder(tokenizer);
  Json results = Json::array();
  for (const std::string text : request["texts"]) {
    const Ids ids = encoded(tokenizer, encoder, {text});
    const bool same = encoded(tokenizer, encoder, parts_of(tokenizer, text)) == ids;
    results.push_back({{"ids", ids}, {"text", tokenizer.decode(ids)}, {"same_in_parts", same}});
  }
  return {{"results", results}, {"notes", tokenizer.notes()}};
}

cli::DataFile file_of(const Json& request, const char* key) {
  return {request[key], request["plugin"], request["settings"].get<std::vector<std::string>>()};
}

Json answer(plugins::PluginRegistry& registry, const Json& request) {
  std::ostringstream out, err;
  if (request.contains("plugins")) {
    Json names = Json::array();
    for (const plugins::FoundPlugin* found : cli::usable_plugins(registry))
      if (found->manifest.kind == PluginKind::DataSource) names.push_back(found->manifest.name);
    return {{"plugins", names}};
  }
  if (request.contains("tokenizer") && request.contains("texts")) return tokenize(request);
  if (request.contains("info")) cli::data_info(registry, {file_of(request, "info"), {}, "json"}, out, err);
  if (request.contains("show")) cli::data_show(registry, {file_of(request, "show"), 1}, out);
  if (request.contains("pack")) {
    cli::DataPackOptions options{request["pack"].get<std::vector<std::string>>(), request["output"]};
    options.force = true;
    options.width = request.value("width", "");
    options.jsonl_key = request.value("jsonl_key", "");
    options.as_is = request.value("as_is", false);
    options.tokenizer = request.value("tokenizer", "");
    options.document_end = request.value("document_end", "auto");
    cli::data_pack(options, out, err);
  }
  return {{"out", out.str()}, {"err", err.str()}};
}

}  // namespace

int main() {
  const std::shared_ptr<plugins::PluginRegistry> registry = plugins::open_registry("");
  for (std::string line; std::getline(std::cin, line);) {
    Json answered;
    try {
      answered = answer(*registry, Json::parse(line));
    } catch (const UserError& error) {
      answered = {{"refused", error.what()}};
    } catch (const std::exception& error) {
      answered = {{"failed", error.what()}};
    }
    std::cout << answered.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
}
