#include "config/source_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

namespace strata::config {
namespace {

constexpr std::size_t largest_file = 1 << 20;

bool is_continuation(char letter) {
  return (static_cast<unsigned char>(letter) & 0xC0) == 0x80;
}

// The length of the UTF-8 sequence at the front; 0 when it is none (overlong forms, surrogates and beyond U+10FFFF
// included).
std::size_t sequence_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length), is_continuation)) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return wrong ? 0 : length;
}

}  // namespace

SourceText::SourceText(std::string_view bytes, std::string name) : name_(std::move(name)) {
  if (bytes.substr(0, 3) == "\xEF\xBB\xBF") bytes.remove_prefix(3);  // a byte order mark, as Windows editors leave it
  if (bytes.size() > largest_file) throw UserError({name_}, "larger than 1 MiB, so this is no config file");
  text_ = bytes;
  for (std::size_t at = 0; at < text_.size(); ++at) {
    if (text_[at] == '\n') line_starts_.push_back(at + 1);
  }
  check_characters();
}

void SourceText::check_characters() const {
  for (std::size_t at = 0; at < text_.size();) {
    const std::string_view rest = std::string_view(text_).substr(at);
    const auto code = static_cast<unsigned char>(rest[0]);
    const bool control = (code < 0x20 && code != '\t' && code != '\n' && code != '\r') || code == 0x7f;
    const std::size_t length = control ? 0 : sequence_length(rest);
    if (length == 0) {
      std::array<char, 8> byte{};
      std::snprintf(byte.data(), byte.size(), "0x%02x", code);
      throw UserError(place(at), std::string("byte ") + byte.data() + " is not UTF-8 text; is this a config file?");
    }
    at += length;
  }
}

bool SourceText::blank() const {
  return text_.find_first_not_of(" \t\r\n") == std::string::npos;
}

Place SourceText::place(std::size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const std::size_t start = *std::prev(after);
  const auto begin = text_.begin();
  const auto characters =
      std::count_if(begin + static_cast<std::ptrdiff_t>(start), begin + static_cast<std::ptrdiff_t>(offset),
                    [](char letter) { return !is_continuation(letter); });
  return {name_, static_cast<int>(after - line_starts_.begin()), static_cast<int>(characters) + 1};
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

}  // namespace strata::config
