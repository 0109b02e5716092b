#include "tools/deepspeed/deepspeed_file.hpp"

#include <algorithm>

#include "text/nearest.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"

namespace strata::config {
namespace {

// `true` is an old form of stage 1.
void expand_stage(Node& zero) {
  if (zero.kind != NodeKind::Scalar) return;
  if (zero.quoted || (zero.text != "true" && zero.text != "false"))
    throw UserError(zero.place, "zero_optimization: {}, where a section {{\"stage\": ...}} is expected",
                    shown(zero.text));
  Node stage = zero;
  stage.text = zero.text == "true" ? "1" : "0";
  zero.kind = NodeKind::Map;
  zero.text.clear();
  zero.put("stage", stage.place, stage);
}

void collect(const Node& section, const std::string& path, const std::vector<std::string>& allowed,
             std::vector<DeepSpeedKey>& keys) {
  const std::vector<std::string> known = deepspeed_children(path);
  for (const Entry& entry : section.entries) {
    const std::string full = path.empty() ? entry.key : path + "." + entry.key;
    const Node* block = deepspeed_table("blocks").get(full);
    const Node* row = block != nullptr ? block : deepspeed_table("keys").get(full);
    const std::vector<std::string> below = deepspeed_children(full);
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
      const bool waived = std::find(allowed.begin(), allowed.end(), full) != allowed.end();
      if (!path.empty() || (!waived && !near(entry.key, known).empty()))
        throw UserError(entry.place, "unknown key {} of a ds_config; {}{}", shown(full), suggestion(entry.key, known),
                        path.empty() ? " DeepSpeed ignores it; --allow " + full + " does so as well" : "");
      keys.push_back({full, entry.place, &entry.value, nullptr});
      continue;
    }
    if (!below.empty() && entry.value.kind != NodeKind::Map && entry.value.kind != NodeKind::Null)
      throw UserError(entry.value.place, "{}: {}, where a section {{\"{}\": ...}} is expected", full,
                      shown(spelled(entry.value)), below.front());
    if (row != nullptr) keys.push_back({full, entry.place, &entry.value, row});
    if (!below.empty()) collect(entry.value, full, allowed, keys);
  }
}

}  // namespace

std::string spelled(const Node& node) {
  if (node.kind == NodeKind::Scalar) return one_line(node.text, 60);
  if (node.kind != NodeKind::Sequence) return node.kind == NodeKind::Map ? "{...}" : "null";
  std::string text;
  for (const Node& item : node.items) text += (text.empty() ? "" : ", ") + spelled(item);
  return one_line("[" + text + "]", 60);
}

DeepSpeedFile::DeepSpeedFile(Node file, std::vector<DialectLine>& lines) : root_(std::move(file)) {
  for (const Entry& alias : deepspeed_table("aliases").entries) {
    const std::size_t dot = alias.key.rfind('.'), name = dot == std::string::npos ? 0 : dot + 1;
    const std::string former = alias.key.substr(name), present = alias.value.text.substr(name);
    Node* section = name == 0 ? &root_ : const_cast<Node*>(find(root_, alias.key.substr(0, dot)));
    if (section == nullptr) continue;
    for (Entry& entry : section->entries) {
      if (entry.key != former) continue;
      if (section->get(present) != nullptr)
        throw UserError(entry.place, "{} is another name of {}, and both are given; keep one", alias.key,
                        alias.value.text);
      entry.key = present;
      lines.push_back({entry.value.origin, alias.key, "", "read as " + alias.value.text, entry.place.line});
    }
  }
  if (Node* zero = root_.get("zero_optimization")) expand_stage(*zero);
}

const Node* DeepSpeedFile::given(const std::string& path) const {
  const Node* node = find(root_, path);
  return node == nullptr || node->kind == NodeKind::Null ? nullptr : node;
}

bool DeepSpeedFile::is_automatic(const std::string& path) const {
  return given(path) != nullptr && is_auto(*given(path));
}

OptionValue DeepSpeedFile::typed(const std::string& path, const Node& value, const char* minimum) const {
  const Node& row = *deepspeed_table("keys").get(path);
  OptionSpec option;
  option.type = text_at(row, "type");
  option.minimum = minimum;
  if (option.type == "any") return spelled(value);
  if (const Node* choices = row.get("choices"))
    for (const Node& choice : choices->items) option.choices.push_back(choice.text);
  return typed_option(value, option, path);
}

std::vector<DeepSpeedKey> DeepSpeedFile::keys(const std::vector<std::string>& allowed) const {
  std::vector<DeepSpeedKey> keys;
  collect(root_, "", allowed, keys);
  return keys;
}

}  // namespace strata::config
