// [Note: raw text] toml++ returns typed values; the tree holds texts as written, so scalars are cut from the source at
// the place that toml++ reports.
#include <toml++/toml.h>

#include <algorithm>
#include <utility>

#include "config/tree_builder.hpp"

namespace strata::config {
namespace {

// `a.a.a...` makes one table per dot, and toml++ frees them recursively: a line must be short enough for the stack.
constexpr std::size_t longest_line = 4096;

void check_lines(const SourceText& source) {
  const std::string& text = source.text();
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    if (end - start > longest_line)
      throw UserError(source.place(start), "a line longer than 4096 characters; break it");
    start = end + 1;
  }
}

class Walk {
 public:
  explicit Walk(const SourceText& source) : source_(source), builder_(source) {}

  Node whole(const toml::table& table) {
    walk_table(table, source_.place(1, 1));
    return builder_.finish();
  }

 private:
  Place place(const toml::source_region& region, const Place& otherwise) const {
    if (!region.begin) return otherwise;
    return source_.place(static_cast<int>(region.begin.line), static_cast<int>(region.begin.column));
  }

  void walk_table(const toml::table& table, const Place& where) {
    std::vector<std::pair<const toml::key*, const toml::node*>> items;
    for (const auto& [key, value] : table) items.emplace_back(&key, &value);
    // toml++ sorts by name; people want the order they wrote.
    std::stable_sort(items.begin(), items.end(), [](const auto& left, const auto& right) {
      return left.first->source().begin < right.first->source().begin;
    });
    builder_.begin_map(where);
    for (const auto& [key, value] : items) {
      const Place key_place = place(key->source(), where);
      builder_.key(key_place, std::string(key->str()));
      walk(*value, key_place);
    }
    builder_.end();
  }

  void walk(const toml::node& node, const Place& otherwise) {
    const Place where = place(node.source(), otherwise);
    if (const toml::table* table = node.as_table()) {
      walk_table(*table, where);
    } else if (const toml::array* array = node.as_array()) {
      builder_.begin_sequence(where);
      for (const toml::node& item : *array) walk(item, where);
      builder_.end();
    } else if (const auto* text = node.as_string()) {
      builder_.scalar(where, text->get(), true);
    } else {
      builder_.scalar(where, written(where), false);
    }
  }

  // A number, boolean or date as it stands in the source.
  std::string written(const Place& where) const {
    const std::string& text = source_.text();
    const std::size_t begin = source_.offset(where.line, where.column);
    const std::size_t end = text.find_first_of(" \t\r\n,]}#", begin);
    return text.substr(begin, end == std::string::npos ? end : end - begin);
  }

  const SourceText& source_;
  TreeBuilder builder_;
};

}  // namespace

Node parse_toml(const SourceText& source) {
  check_lines(source);
  try {
    return Walk(source).whole(toml::parse(std::string_view(source.text())));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw UserError(source.place(static_cast<int>(at.line), static_cast<int>(at.column)), "not valid TOML: {}",
                    one_line(error.description(), 160));
  }
}

}  // namespace strata::config
