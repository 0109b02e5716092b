// What the readers of all spellings share.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/tree.hpp"

namespace strata::config {

// The bytes of one config file and the way between offsets in it and places.
class SourceText {
 public:
  // Throws UserError when the bytes are no UTF-8 text (control characters count as none) or more than a config can be.
  SourceText(std::string_view bytes, std::string name);

  const std::string& text() const { return text_; }
  const std::string& name() const { return name_; }
  bool blank() const;  // nothing but white space

  // Columns count characters, not bytes.
  Place place(std::size_t offset) const;
  Place place(int line, int column) const { return {name_, line, column}; }
  std::size_t offset(int line, int column) const;

  // "train.yaml:12" without the folders.
  std::string origin(const Place& place) const;

 private:
  void check_characters() const;

  std::string text_;
  std::string name_;
  std::vector<std::size_t> line_starts_{0};
  // The place that was asked for last: the next one mostly follows it, and a line may be as long as the file.
  mutable std::size_t last_offset_ = 0;
  mutable std::ptrdiff_t characters_before_ = 0;  // in its line
};

// Bytes that a config may have.
inline constexpr std::size_t largest_config = std::size_t{1} << 20;

// What a node and all within it count: 1 for each value, and more for long texts. A whole config may count most_values.
std::size_t weight(const Node& node);
inline constexpr std::size_t most_values = 20000;

// Turns the events of a parser into a tree and enforces the rules that hold in every spelling.
class TreeBuilder {
 public:
  explicit TreeBuilder(const SourceText& source) : source_(source) {}

  // Each throws UserError with the place when a rule is broken (see read_file).
  void begin_map(const Place& place) { begin(NodeKind::Map, place); }
  void begin_sequence(const Place& place) { begin(NodeKind::Sequence, place); }
  const Node& end();  // the collection just finished, valid until the next call
  const Node& scalar(const Place& place, std::string text, bool quoted);
  const Node& null(const Place& place);
  const Node& copy(const Node& node);  // the subtree of an alias
  void key(const Place& place, const std::string& text);

  // Inside a map, between entries.
  bool wants_key() const { return !open_.empty() && open_.back().node.kind == NodeKind::Map && !open_.back().has_key; }
  std::string path() const;  // of what comes next: "train.steps"
  std::string here() const;  // the same as the front of a message: "train.steps: ", or nothing at the top
  Node finish();

 private:
  struct Open {
    Node node;
    std::map<std::string, int> lines;  // of the keys
    std::string key;
    Place key_place;
    bool has_key = false;
  };
  void begin(NodeKind kind, const Place& place);
  const Node& add(Node node);
  Node made(NodeKind kind, const Place& place) const;

  const SourceText& source_;
  std::vector<Open> open_;
  Node root_;
  std::size_t values_ = 0;
};

// The parsers, one file each; the result may be any node. Throw UserError.
Node parse_yaml(const SourceText& source);
Node parse_toml(const SourceText& source);
Node parse_json(const SourceText& source);

}  // namespace strata::config
