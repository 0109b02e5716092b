#include "config/tree_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/locale/utf.hpp>
#include <filesystem>

namespace strata::config {
namespace {

bool is_continuation(char letter) {
  return (static_cast<unsigned char>(letter) & 0xC0) == 0x80;
}

// "007", "-01.5", "00e3": octal to some readers, decimal to others, an error to TOML and JSON.
bool has_leading_zero(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text.starts_with('0') && text.find_first_of("0123456789_", 1) == 1 &&
         text.find_first_not_of("0123456789_.eE+-") == std::string_view::npos;
}

constexpr std::size_t longest_key = 1000;  // bytes

}  // namespace

std::size_t weight(const Node& node) {
  constexpr std::size_t text_of_a_value = 256;  // bytes
  std::size_t sum = 1 + node.text.size() / text_of_a_value;
  for (const Node& item : node.items) sum += weight(item);
  for (const Entry& entry : node.entries) sum += entry.key.size() / text_of_a_value + weight(entry.value);
  return sum;
}

SourceText::SourceText(std::string_view bytes, std::string name) : name_(std::move(name)) {
  if (bytes.substr(0, 3) == "\xEF\xBB\xBF") bytes.remove_prefix(3);  // a byte order mark, as Windows editors leave it
  if (bytes.size() > largest_config) throw UserError(Place{name_}, "larger than 1 MiB, so this is no config file");
  text_ = bytes;
  for (std::size_t at = 0; at < text_.size(); ++at) {
    if (text_[at] == '\n') line_starts_.push_back(at + 1);
  }
  check_characters();
}

void SourceText::check_characters() const {
  namespace utf = boost::locale::utf;
  for (auto at = text_.begin(); at != text_.end();) {
    const auto first = at;
    const utf::code_point code = utf::utf_traits<char>::decode(at, text_.end());
    const bool control = (code < 0x20 && code != '\t' && code != '\n' && code != '\r') || code == 0x7f;
    if (utf::is_valid_codepoint(code) && !control) continue;
    throw UserError(
        place(static_cast<std::size_t>(first - text_.begin())),
        fmt::format("byte 0x{:02x} is not UTF-8 text; is this a config file?", static_cast<unsigned char>(*first)));
  }
}

bool SourceText::blank() const {
  return text_.find_first_not_of(" \t\r\n") == std::string::npos;
}

Place SourceText::place(std::size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const std::size_t start = *std::prev(after);
  if (last_offset_ < start || last_offset_ > offset) {
    last_offset_ = start;
    characters_before_ = 0;
  }
  const auto begin = text_.begin();
  characters_before_ +=
      std::count_if(begin + static_cast<std::ptrdiff_t>(last_offset_), begin + static_cast<std::ptrdiff_t>(offset),
                    [](char letter) { return !is_continuation(letter); });
  last_offset_ = offset;
  return {name_, static_cast<int>(after - line_starts_.begin()), static_cast<int>(characters_before_) + 1};
}

std::size_t SourceText::offset(int line, int column) const {
  if (line < 1 || static_cast<std::size_t>(line) > line_starts_.size()) return text_.size();
  std::size_t at = line_starts_[static_cast<std::size_t>(line) - 1];
  for (int passed = 1; passed < column && at < text_.size(); ++passed) {
    do ++at;
    while (at < text_.size() && is_continuation(text_[at]));
  }
  return at;
}

std::string SourceText::origin(const Place& place) const {
  const std::string file = std::filesystem::path(place.file).filename().string();
  return place.line > 0 ? file + ":" + std::to_string(place.line) : file;
}

std::string TreeBuilder::path() const {
  std::string path;
  for (const Open& open : open_) {
    if (open.has_key) path += (path.empty() ? "" : ".") + open.key;
  }
  return path;
}

std::string TreeBuilder::here() const {
  const std::string inside = path();
  return inside.empty() ? "" : inside + ": ";
}

Node TreeBuilder::made(NodeKind kind, const Place& place) const {
  Node node;
  node.kind = kind;
  node.place = place;
  node.origin = source_.origin(place);
  return node;
}

void TreeBuilder::begin(NodeKind kind, const Place& place) {
  if (open_.size() >= static_cast<std::size_t>(maximum_depth)) {
    throw UserError(place, "nested deeper than {} sections", maximum_depth);
  }
  open_.push_back({made(kind, place), {}, "", {}, false});
}

const Node& TreeBuilder::end() {
  Node node = std::move(open_.back().node);
  open_.pop_back();
  return add(std::move(node));
}

const Node& TreeBuilder::scalar(const Place& place, std::string text, bool quoted) {
  if (!quoted && has_leading_zero(text)) {
    throw UserError(place, "{}: {} has a leading zero; leave it out, or quote the value if it is text", path(),
                    shown(text));
  }
  if (text.find('\0') != std::string::npos) throw UserError(place, "{}text with a zero byte in it", here());
  Node node = made(NodeKind::Scalar, place);
  node.text = std::move(text);
  node.quoted = quoted;
  return add(std::move(node));
}

const Node& TreeBuilder::null(const Place& place) {
  // An absent value has no place of its own: parsers report the next token's.
  const bool after_key = !open_.empty() && open_.back().has_key;
  return add(made(NodeKind::Null, after_key ? open_.back().key_place : place));
}

const Node& TreeBuilder::copy(const Node& node) {
  values_ += weight(node) - weight({});
  return add(node);
}

void TreeBuilder::key(const Place& place, const std::string& text) {
  Open& open = open_.back();
  const std::string outer = path();
  const std::string full = outer + (outer.empty() ? "" : ".") + text;
  if (text.empty() || text.find('\0') != std::string::npos)
    throw UserError(place, "a key without a name{}", outer.empty() ? "" : " in " + outer);
  if (text.size() > longest_key) throw UserError(place, "a key of {} bytes: {}", text.size(), shown(text));
  if (text == "<<")
    throw UserError(place, "merge keys (<<) are not supported; write the entries out{}",
                    outer.empty() ? "" : " in " + outer);
  const auto [first, added] = open.lines.try_emplace(text, place.line);
  if (!added) {
    throw UserError(place, "key {} is given twice, first on line {}; keep one", shown(full), first->second);
  }
  open.key = text;
  open.key_place = place;
  open.has_key = true;
}

const Node& TreeBuilder::add(Node node) {
  if (++values_ > most_values) {
    throw UserError(node.place, "more than {} values, so this is no config file", most_values);
  }
  if (open_.empty()) return root_ = std::move(node);
  Open& open = open_.back();
  if (open.node.kind == NodeKind::Sequence) return open.node.items.emplace_back(std::move(node));
  open.has_key = false;
  return open.node.entries.emplace_back(Entry{open.key, open.key_place, std::move(node)}).value;
}

Node TreeBuilder::finish() {
  return std::move(root_);
}

}  // namespace strata::config
