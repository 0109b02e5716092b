// Tree of a config in any format. Scalars keep their text and place until a schema types them (schema.hpp), so
// equal content gives equal results from YAML, TOML and JSON, `5e8` can be an integer, and every error has a
// place.
#pragma once
#include <strata/error.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace strata::config {

enum class NodeKind { Null, Scalar, Sequence, Map };

struct Entry;

struct Node {
  NodeKind kind = NodeKind::Null;
  std::string text;            // Scalar: text as written; quoted: the content, escapes resolved
  bool quoted = false;         // Scalar: written as a string (in TOML and JSON every string is)
  Place place;                 // place of the value's first character
  std::string origin;          // origin for people: "train.yaml:12", "--set", "--nproc"
  int tree = 0;                // index of its tree among merged ones; set by resolve (run_config.hpp)
  std::vector<Node> items;     // Sequence
  std::vector<Entry> entries;  // Map: entries as written; no duplicate keys

  // Returns the value of a key of this map; null if it is not a map or has no such key. Valid until the map changes.
  const Node* get(std::string_view key) const;
  Node* get(std::string_view key);
  // Replaces the value of `key`, or appends it.
  void put(const std::string& key, const Place& key_place, Node value);
  void remove(std::string_view key);
};

struct Entry {
  std::string key;
  Place place;  // place of the key
  Node value;
};

enum class Format { Yaml, Toml, Json };

// Maximum nesting of sections and lists; deeper ones are an error, not a deep recursion.
inline constexpr int maximum_depth = 64;

// Reads a file: .yaml and .yml are YAML, .toml is TOML, .json is JSON (// and /* */ comments allowed). Always a Map; an
// empty file is an empty one. Throws UserError, one line with the file's name and, for errors in its content, line and
// column: missing, unreadable, a folder, not text, larger than 1 MiB, a syntax error, duplicate keys, `<<`, tags,
// integers with a leading zero, an alias inside its own anchor, a second document, deeper than maximum_depth.
Node read_file(const std::string& path);

// Reads text in memory as read_file() does; `name` is used as the file's name.
Node read_text(std::string_view text, Format format, const std::string& name);

// Parses `a.b=c` as a tree {a: {b: c}}: the value is a YAML scalar or flow collection ([1, 2], {x: 1}). Place and
// origin are `source`. Throws UserError.
Node parse_setting(std::string_view argument, const std::string& source = "--set");

// Parses a scalar, list or flow map in YAML's spelling ("[0.9, 0.999]"). Throws UserError.
Node parse_value(std::string_view text, const std::string& source);

// Returns a map without entries.
Node empty_section(const Place& place = {}, const std::string& origin = "");

// Returns the node at a dotted path ("train.steps"); null if there is none.
const Node* find(const Node& tree, std::string_view path);
Node* find(Node& tree, std::string_view path);

// Puts a value at a dotted path, and adds missing sections above it, with the value's place and origin.
void put_at(Node& tree, std::string_view path, Node value);

// Merges `over` into `base`: maps are merged key by key, anything else replaces. An empty section (Null) leaves a map
// unchanged.
void merge(Node& base, const Node& over);

// Returns text for an error message: control characters escaped, cut to at most `longest` bytes of whole
// characters.
std::string one_line(std::string_view text, std::size_t longest);

// Returns a value in one line of YAML: [{match: "*.bias", weight_decay: 0}].
std::string flow_text(const Node& node);

// Returns a short piece of a file, in quotes, on one line.
std::string shown(std::string_view text);

}  // namespace strata::config
