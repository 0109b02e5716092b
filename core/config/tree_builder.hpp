// Turns the events of a parser into a tree and enforces the rules that hold in every spelling. Used by the readers
// only.
#pragma once
#include <string>
#include <vector>

#include "config/source_text.hpp"
#include "config/tree.hpp"

namespace strata::config {

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
  std::size_t nodes_ = 0;
};

// The parsers, one file each; the result may be any node. Throw UserError.
Node parse_yaml(const SourceText& source);
Node parse_toml(const SourceText& source);
Node parse_json(const SourceText& source);

}  // namespace strata::config
