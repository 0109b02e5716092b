#include <strata/input_file.hpp>

#include <algorithm>
#include <filesystem>

#include "config/tree_builder.hpp"

namespace strata::config {
namespace {

Format format_of(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".yaml" || extension == ".yml") return Format::Yaml;
  if (extension == ".toml") return Format::Toml;
  if (extension == ".json") return Format::Json;
  throw UserError(Place{path}, "the name of a config file must end in .yaml, .yml, .toml or .json");
}

std::string bytes_of(const std::string& path) {
  try {
    const InputFile file(path);
    std::string bytes(std::min<std::uint64_t>(file.size(), largest_config + 1), '\0');
    file.read_at(0, bytes.data(), bytes.size());
    return bytes;
  } catch (const MissingFile&) {
    throw UserError(Place{path}, "this config file does not exist");
  }
}

void stamp(Node& node, const std::string& source) {
  node.place = {source};
  node.origin = source;
  for (Node& item : node.items) stamp(item, source);
  for (Entry& entry : node.entries) {
    entry.place = {source};
    stamp(entry.value, source);
  }
}

}  // namespace

Node read_text(std::string_view text, Format format, const std::string& name) {
  const SourceText source(text, name);
  Node node = format == Format::Yaml   ? parse_yaml(source)
              : format == Format::Toml ? parse_toml(source)
                                       : parse_json(source);
  if (node.kind == NodeKind::Null) return empty_section({name}, source.origin({name}));
  if (node.kind != NodeKind::Map)
    throw UserError(node.place, "a config is a set of sections (`train: ...`), not a list or a single value");
  return node;
}

Node read_file(const std::string& path) {
  const Format format = format_of(path);
  return read_text(bytes_of(path), format, path);
}

Node parse_value(std::string_view text, const std::string& source) {
  Node node;
  if (text.find('\n') != std::string_view::npos)
    throw UserError(Place{source}, "{}: a value on one line is expected", shown(text));
  try {
    node = parse_yaml(SourceText(text, source));
  } catch (const UserError& error) {
    throw UserError("{} in the value {}", error.what(), shown(text));
  }
  // On one line, a section or list that starts no bracket is in block style: `a: b`, `- a`.
  const bool collection = node.kind == NodeKind::Map || node.kind == NodeKind::Sequence;
  const std::size_t first = text.find_first_not_of(" \t");
  if (collection && text[first] != '{' && text[first] != '[') {
    throw UserError(Place{source}, "{}: write a list as [a, b], a section as {{a: b}} and text that has `: ` in quotes",
                    shown(text));
  }
  stamp(node, source);
  return node;
}

Node parse_setting(std::string_view argument, const std::string& source) {
  const std::size_t equals = argument.find('=');
  const std::string_view path = argument.substr(0, equals);
  const bool named = !path.empty() && path.front() != '.' && path.back() != '.' &&
                     path.find("..") == std::string_view::npos && path.find_first_of(" \t\n") == std::string_view::npos;
  if (equals == std::string_view::npos || !named)
    throw UserError(Place{source}, "{} is not of the form section.key=value", shown(argument));
  Node node = parse_value(argument.substr(equals + 1), source);
  if (node.kind == NodeKind::Null)
    throw UserError(Place{source}, "{} has no value; an empty text is written \"\"", shown(argument));
  if (std::count(path.begin(), path.end(), '.') >= maximum_depth)
    throw UserError(Place{source}, "{} is nested too deep", shown(argument));
  Node tree = empty_section({source}, source);
  put_at(tree, path, std::move(node));
  return tree;
}

}  // namespace strata::config
