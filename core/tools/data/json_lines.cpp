#include "tools/data/json_lines.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace strata::cli {
namespace {

constexpr std::size_t most = std::size_t{1} << 16;  // bytes looked at together

std::string_view without_spaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view without_mark(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

// {"KEY":
bool begins_as_object(std::string_view text) {
  if (!text.starts_with('{')) return false;
  text = without_spaces(text.substr(1));
  if (!text.starts_with('"')) return false;
  std::size_t end = 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return end < text.size() && without_spaces(text.substr(end + 1)).starts_with(':');
}

bool is_object(std::string_view line) {
  return begins_as_object(line) && nlohmann::json::accept(line);
}

}  // namespace

bool begins_with_objects(const InputFile& file, int lines) {
  std::string block(most, '\0');
  std::uint64_t position = 0;
  for (int found = 0; found < lines;) {
    block.resize(std::min<std::uint64_t>(most, file.size() - position));
    file.read_at(position, block.data(), block.size());
    const std::string_view read = position == 0 ? without_mark(block) : std::string_view(block);
    std::string_view text = without_spaces(read);
    position += block.size() - text.size();
    if (text.empty()) {
      if (position == file.size()) return false;
      continue;
    }
    std::size_t end = text.find('\n');
    const bool whole = end != std::string_view::npos || position + text.size() == file.size();
    if (!(whole ? is_object(text.substr(0, end)) : begins_as_object(text))) return false;
    if (++found == lines) return true;
    // Behind the line.
    position += std::min(end, text.size());
    while (end == std::string_view::npos && position < file.size()) {
      block.resize(std::min<std::uint64_t>(most, file.size() - position));
      file.read_at(position, block.data(), block.size());
      end = std::string_view(block).find('\n');
      position += std::min(end, block.size());
    }
    if (position == file.size()) return false;
  }
  return true;
}

bool begins_with_list(const InputFile& file) {
  std::string block(std::min<std::uint64_t>(file.size(), most), '\0');
  file.read_at(0, block.data(), block.size());
  const std::string_view text = without_spaces(without_mark(block));
  return text.starts_with('[') && begins_as_object(without_spaces(text.substr(1)));
}

}  // namespace strata::cli
