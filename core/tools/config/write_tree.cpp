#include "tools/config/write_tree.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace strata::cli {
namespace {

bool is_json_number(const std::string& text) {
  if (text.empty() || (text.front() != '-' && (text.front() < '0' || text.front() > '9'))) return false;
  return nlohmann::json::accept(text);
}

bool is_bare_key(const std::string& key) {
  return !key.empty() &&
         key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string::npos;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

// Numbers and truth values stand bare in all three spellings; in quotes they would be text.
std::string scalar(const config::Node& node, config::Format format) {
  const bool bare = !node.quoted && (is_json_number(node.text) || node.text == "true" || node.text == "false");
  if (bare) return node.text;
  const bool word = is_bare_key(node.text) && ((node.text.front() | 0x20) >= 'a') && node.text != "null";
  const bool ambiguous = node.text == "true" || node.text == "false" || node.text == "yes" || node.text == "no";
  return format == config::Format::Yaml && word && !ambiguous ? node.text : quoted(node.text);
}

std::string key_of(const std::string& key) {
  return is_bare_key(key) ? key : quoted(key);
}

std::string inline_value(const config::Node& node, config::Format format, const std::string& path) {
  if (node.kind == config::NodeKind::Scalar) return scalar(node, format);
  if (node.kind == config::NodeKind::Null) {
    if (format == config::Format::Toml)
      throw UserError(node.place, "{} has no value, and TOML has no way to write that; leave the key out", path);
    return "null";
  }
  std::string text;
  for (const config::Node& item : node.items) text += (text.empty() ? "" : ", ") + inline_value(item, format, path);
  for (const config::Entry& entry : node.entries) {
    const std::string key = format == config::Format::Json ? quoted(entry.key) : key_of(entry.key);
    text += (text.empty() ? "" : ", ") + key + (format == config::Format::Toml ? " = " : ": ") +
            inline_value(entry.value, format, path);
  }
  return node.kind == config::NodeKind::Sequence ? "[" + text + "]" : "{" + text + "}";
}

// A section of sections; a list or a scalar stands on its line.
class Writer {
 public:
  explicit Writer(config::Format format) : format_(format) {}

  void yaml(const config::Node& node, const std::string& indent) {
    for (const config::Entry& entry : node.entries) {
      const bool below = entry.value.kind == config::NodeKind::Map && !entry.value.entries.empty();
      text += indent + key_of(entry.key) + ":";
      if (below) {
        text += "\n";
        yaml(entry.value, indent + "  ");
      } else {
        text += " " + inline_value(entry.value, format_, entry.key) + comment(entry.value) + "\n";
      }
    }
  }

  // Values first: behind a section's heading they would belong to it.
  void toml(const config::Node& node, const std::string& path) {
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const config::Entry& entry : node.entries)
      if (entry.value.kind != config::NodeKind::Map)
        text += key_of(entry.key) + " = " + inline_value(entry.value, format_, prefix + entry.key) +
                comment(entry.value) + "\n";
    for (const config::Entry& entry : node.entries) {
      if (entry.value.kind != config::NodeKind::Map) continue;
      const std::string name = prefix + key_of(entry.key);
      const bool sections_only =
          !entry.value.entries.empty() &&
          std::all_of(entry.value.entries.begin(), entry.value.entries.end(),
                      [](const config::Entry& one) { return one.value.kind == config::NodeKind::Map; });
      if (!sections_only) text += (text.empty() ? "[" : "\n[") + name + "]\n";
      toml(entry.value, name);
    }
  }

  void json(const config::Node& node, const std::string& indent) {
    text += "{";
    for (const config::Entry& entry : node.entries) {
      text += (&entry == &node.entries.front() ? "\n" : ",\n") + indent + "  " + quoted(entry.key) + ": ";
      if (entry.value.kind == config::NodeKind::Map && !entry.value.entries.empty())
        json(entry.value, indent + "  ");
      else
        text += inline_value(entry.value, format_, entry.key);
    }
    text += node.entries.empty() ? "}" : "\n" + indent + "}";
  }

  std::string text;

 private:
  // Origins with more than a place: of translated keys.
  std::string comment(const config::Node& node) const {
    return node.origin.find(' ') == std::string::npos ? "" : "  # " + node.origin;
  }

  config::Format format_;
};

}  // namespace

std::string write_tree(const config::Node& tree, config::Format format) {
  Writer writer(format);
  if (format == config::Format::Yaml) writer.yaml(tree, "");
  if (format == config::Format::Toml) writer.toml(tree, "");
  if (format == config::Format::Json) {
    writer.json(tree, "");
    writer.text += "\n";
  }
  return writer.text;
}

}  // namespace strata::cli
