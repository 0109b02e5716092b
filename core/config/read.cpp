#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "config/tree_builder.hpp"

namespace strata::config {
namespace {

Format format_of(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".yaml" || extension == ".yml") return Format::Yaml;
  if (extension == ".toml") return Format::Toml;
  if (extension == ".json") return Format::Json;
  throw UserError({path}, "the name must end in .yaml, .yml, .toml or .json, which says how to read the file");
}

std::string bytes_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) throw UserError({path}, "no such config file");
  if (error) throw UserError({path}, "the config file cannot be read: " + error.message());
  if (std::filesystem::is_directory(status)) throw UserError({path}, "a folder, where a config file was expected");
  if (!std::filesystem::is_regular_file(status))
    throw UserError({path}, "not a regular file, so no config is read from it");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::size_t{1} << 21, '\0');  // more than a config may have: what is too large shows as too large
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file && !file.eof())
    throw UserError({path}, std::string("the config file cannot be read: ") + std::strerror(errno));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
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
    throw UserError({source}, shown(text) + ": a value on one line is expected");
  try {
    node = parse_yaml(SourceText(text, source));
  } catch (const UserError& error) {
    throw UserError(std::string(error.what()) + " in the value " + shown(text));
  }
  // On one line, a section or list that starts no bracket is in block style: `a: b`, `- a`.
  const bool collection = node.kind == NodeKind::Map || node.kind == NodeKind::Sequence;
  const std::size_t first = text.find_first_not_of(" \t");
  if (collection && text[first] != '{' && text[first] != '[') {
    throw UserError({source},
                    shown(text) + ": write a list as [a, b], a section as {a: b} and text that has `: ` in quotes");
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
    throw UserError({source}, shown(argument) + " is not of the form section.key=value");
  Node node = parse_value(argument.substr(equals + 1), source);
  if (node.kind == NodeKind::Null)
    throw UserError({source}, shown(argument) + " gives no value; an empty text is written \"\"");
  if (std::count(path.begin(), path.end(), '.') >= maximum_depth)
    throw UserError({source}, shown(argument) + " is nested too deep");
  Node tree = empty_section({source}, source);
  put_at(tree, path, std::move(node));
  return tree;
}

}  // namespace strata::config
