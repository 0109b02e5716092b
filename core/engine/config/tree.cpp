#include "config/tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/printable.hpp"

namespace strata::config {

const Node* Node::get(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

Node* Node::get(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).get(key));
}

void Node::put(const std::string& key, const Place& key_place, Node value) {
  if (Node* present = get(key)) {
    *present = std::move(value);
  } else {
    entries.push_back({key, key_place, std::move(value)});
  }
}

void Node::remove(std::string_view key) {
  std::erase_if(entries, [&](const Entry& entry) { return entry.key == key; });
}

Node empty_section(const Place& place, const std::string& origin) {
  Node node;
  node.kind = NodeKind::Map;
  node.place = place;
  node.origin = origin;
  return node;
}

const Node* find(const Node& tree, std::string_view path) {
  const Node* node = &tree;
  while (node != nullptr) {
    const std::size_t dot = path.find('.');
    node = node->get(path.substr(0, dot));
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  return node;
}

Node* find(Node& tree, std::string_view path) {
  return const_cast<Node*>(find(std::as_const(tree), path));
}

void put_at(Node& tree, std::string_view path, Node value) {
  Node* section = &tree;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    const std::string name(path.substr(0, dot));
    if (section->get(name) == nullptr) section->put(name, value.place, empty_section(value.place, value.origin));
    section = section->get(name);
    path.remove_prefix(dot + 1);
  }
  const Place place = value.place;
  section->put(std::string(path), place, std::move(value));
}

void merge(Node& base, const Node& over) {
  if (base.kind == NodeKind::Map && over.kind == NodeKind::Null) return;
  if (base.kind != NodeKind::Map || over.kind != NodeKind::Map) {
    base = over;
    return;
  }
  base.place = over.place;
  base.origin = over.origin;
  base.tree = over.tree;
  for (const Entry& entry : over.entries) {
    if (Node* present = base.get(entry.key)) {
      merge(*present, entry.value);
    } else {
      base.entries.push_back(entry);
    }
  }
}

std::string one_line(std::string_view text, std::size_t longest) {
  return text::one_line(text, longest);
}

std::string flow_text(const Node& node) {
  if (node.kind == NodeKind::Scalar) return node.quoted ? "\"" + node.text + "\"" : node.text;
  std::vector<std::string> parts;
  for (const Node& item : node.items) parts.push_back(flow_text(item));
  for (const Entry& entry : node.entries) parts.push_back(entry.key + ": " + flow_text(entry.value));
  const std::string inside = fmt::format("{}", fmt::join(parts, ", "));
  return node.kind == NodeKind::Map ? "{" + inside + "}" : "[" + inside + "]";
}

std::string shown(std::string_view text) {
  return '"' + one_line(text, 60) + '"';
}

}  // namespace strata::config
