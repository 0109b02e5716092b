#include "data/jsonl.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace strata::data {
namespace {

using Json = nlohmann::json;

// The library's texts hold the place in its own words ("parse error at line 1, column 5: ..."); the reason follows it.
std::string reason_of(const Json::exception& error) {
  std::string text = error.what();
  const std::size_t place = text.find("] ");
  if (place != std::string::npos) text.erase(0, place + 2);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, 200);
}

}  // namespace

void for_each_line(const InputFile& file,
                   const std::function<void(std::string_view, std::int64_t, std::uint64_t)>& visit) {
  std::vector<char> block(std::size_t{1} << 20);
  std::string begun;  // the part of a line that earlier blocks held
  std::int64_t number = 0;
  for (std::uint64_t at = 0; at < file.size();) {
    const std::size_t count = std::min<std::uint64_t>(block.size(), file.size() - at);
    file.read_at(at, block.data(), count);
    std::string_view rest(block.data(), count);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      const std::uint64_t so_far = at + count - (rest.size() - end - 1);
      if (begun.empty()) {
        visit(rest.substr(0, end), ++number, so_far);
      } else {
        visit(begun.append(rest.substr(0, end)), ++number, so_far);
        begun.clear();
      }
      rest.remove_prefix(end + 1);
    }
    begun.append(rest);
    at += count;
  }
  if (!begun.empty()) visit(begun, ++number, file.size());
}

std::string jsonl_text(std::string_view line, const std::string& key, const std::string& file, std::int64_t number) {
  const Place place{file, static_cast<int>(std::min<std::int64_t>(number, INT32_MAX))};
  Json object;
  try {
    object = Json::parse(line);
  } catch (const Json::exception& error) {
    throw UserError(place, "is no JSON: " + reason_of(error));
  }
  if (!object.is_object()) {
    throw UserError(place, std::string("holds ") + object.type_name() + "; each line must be a JSON object like {\"" +
                               key + "\": \"...\"}");
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    std::string keys;
    for (const auto& [name, value] : object.items()) keys += (keys.empty() ? "" : ", ") + name;
    throw UserError(place, "has no key '" + key + "'; --jsonl-key names the one that holds the text" +
                               (keys.empty() || keys.size() > 200 || keys.find('\n') != std::string::npos
                                    ? ""
                                    : " (there is: " + keys + ")"));
  }
  if (!found->is_string()) {
    throw UserError(place, "its '" + key + "' is " + found->type_name() + ", and a string is wanted");
  }
  return std::move(found->get_ref<std::string&>());
}

}  // namespace strata::data
