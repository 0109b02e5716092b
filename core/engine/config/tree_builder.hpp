// Code shared by the readers of all formats.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/tree.hpp"

namespace strata::config {

// Bytes of a config file, with conversion between offsets and places.
class SourceText {
 public:
  // Throws UserError when the bytes are not UTF-8 text without control characters, or more than a config may have.
  SourceText(std::string_view bytes, std::string name);

  const std::string& text() const { return text_; }
  const std::string& name() const { return name_; }
  bool blank() const;  // true: only white space

  // Returns the place of an offset. Columns count characters, not bytes.
  Place place(std::size_t offset) const;
  Place place(int line, int column) const { return {name_, line, column}; }
  std::size_t offset(int line, int column) const;

  // Returns "train.yaml:12", without the folders.
  std::string origin(const Place& place) const;

 private:
  void check_characters() const;

  std::string text_;
  std::string name_;
  std::vector<std::size_t> line_starts_{0};
  // Last requested place: the next one usually follows it, and a line may be as long as the file.
  mutable std::size_t last_offset_ = 0;
  mutable std::ptrdiff_t characters_before_ = 0;  // characters before it in its line
};

// Maximum bytes of a config.
inline constexpr std::size_t largest_config = std::size_t{1} << 20;

// Returns the weight of a node: 1 per value within it, more for long texts. A config may weigh up to most_values.
std::size_t weight(const Node& node);
inline constexpr std::size_t most_values = 20000;

// Turns the events of a parser into a tree and enforces the rules that hold in every spelling.
class TreeBuilder {
 public:
  explicit TreeBuilder(const SourceText& source) : source_(source) {}

  // Takes a parser's event. Throws UserError with the place when a rule is broken (see read_file).
  void begin_map(const Place& place) { begin(NodeKind::Map, place); }
  void begin_sequence(const Place& place) { begin(NodeKind::Sequence, place); }
  const Node& end();  // returns the finished collection, valid until the next call
  const Node& scalar(const Place& place, std::string text, bool quoted);
  const Node& null(const Place& place);
  const Node& copy(const Node& node);  // copies the subtree of an alias
  void key(const Place& place, const std::string& text);

  // True inside a map, between entries.
  bool wants_key() const { return !open_.empty() && open_.back().node.kind == NodeKind::Map && !open_.back().has_key; }
  std::string path() const;  // path of the next value: "train.steps"
  std::string here() const;  // path as a message's prefix: "train.steps: ", or "" at the top
  Node finish();

 private:
  struct Open {
    Node node;
    std::map<std::string, int> lines;  // lines of the keys
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

// Parses a source, each format in its own file; the result may be any node. Throws UserError.
Node parse_yaml(const SourceText& source);
Node parse_toml(const SourceText& source);
Node parse_json(const SourceText& source);

}  // namespace strata::config
