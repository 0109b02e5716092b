#include "tools/deepspeed/deepspeed_file.hpp"

#include <algorithm>

#include "text/nearest.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"

namespace strata::deepspeed {
namespace {

// `true` is an old form of stage 1.
void expand_stage(config::Node& zero) {
  if (zero.kind != config::NodeKind::Scalar) return;
  if (zero.quoted || (zero.text != "true" && zero.text != "false"))
    throw UserError(zero.place, "zero_optimization: {}, where a section {{\"stage\": ...}} is expected",
                    config::shown(zero.text));
  config::Node stage = zero;
  stage.text = zero.text == "true" ? "1" : "0";
  zero.kind = config::NodeKind::Map;
  zero.text.clear();
  zero.put("stage", stage.place, stage);
}

void collect(const config::Node& section, const std::string& path, const std::vector<std::string>& allowed,
             std::vector<DeepSpeedKey>& keys) {
  const std::vector<std::string> known = deepspeed_children(path);
  for (const config::Entry& entry : section.entries) {
    const std::string full = path.empty() ? entry.key : path + "." + entry.key;
    const config::Node* block = deepspeed_table("blocks").get(full);
    const config::Node* row = block != nullptr ? block : deepspeed_table("keys").get(full);
    const std::vector<std::string> below = deepspeed_children(full);
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
      const bool waived = std::find(allowed.begin(), allowed.end(), full) != allowed.end();
      if (!path.empty() || (!waived && !text::near(entry.key, known).empty()))
        throw UserError(entry.place, "unknown key {} of a ds_config; {}{}", config::shown(full),
                        text::suggestion(entry.key, known),
                        path.empty() ? " DeepSpeed ignores it; --allow " + full + " does so as well" : "");
      keys.push_back({full, entry.place, &entry.value, nullptr});
      continue;
    }
    if (!below.empty() && entry.value.kind != config::NodeKind::Map && entry.value.kind != config::NodeKind::Null)
      throw UserError(entry.value.place, "{}: {}, where a section {{\"{}\": ...}} is expected", full,
                      config::shown(spelled(entry.value)), below.front());
    if (row != nullptr) keys.push_back({full, entry.place, &entry.value, row});
    if (!below.empty()) collect(entry.value, full, allowed, keys);
  }
}

}  // namespace

std::string spelled(const config::Node& node) {
  if (node.kind == config::NodeKind::Scalar) return config::one_line(node.text, 60);
  if (node.kind != config::NodeKind::Sequence) return node.kind == config::NodeKind::Map ? "{...}" : "null";
  std::string text;
  for (const config::Node& item : node.items) text += (text.empty() ? "" : ", ") + spelled(item);
  return config::one_line("[" + text + "]", 60);
}

DeepSpeedFile::DeepSpeedFile(config::Node file, std::vector<resolve::DialectLine>& lines) : root_(std::move(file)) {
  for (const config::Entry& alias : deepspeed_table("aliases").entries) {
    const std::size_t dot = alias.key.rfind('.'), name = dot == std::string::npos ? 0 : dot + 1;
    const std::string former = alias.key.substr(name), present = alias.value.text.substr(name);
    config::Node* section =
        name == 0 ? &root_ : const_cast<config::Node*>(config::find(root_, alias.key.substr(0, dot)));
    if (section == nullptr) continue;
    for (config::Entry& entry : section->entries) {
      if (entry.key != former) continue;
      if (section->get(present) != nullptr)
        throw UserError(entry.place, "{} is another name of {}, and both are given; keep one", alias.key,
                        alias.value.text);
      entry.key = present;
      lines.push_back({entry.value.origin, alias.key, "", "read as " + alias.value.text, entry.place.line});
    }
  }
  if (config::Node* zero = root_.get("zero_optimization")) expand_stage(*zero);
}

const config::Node* DeepSpeedFile::given(const std::string& path) const {
  const config::Node* node = config::find(root_, path);
  return node == nullptr || node->kind == config::NodeKind::Null ? nullptr : node;
}

bool DeepSpeedFile::is_automatic(const std::string& path) const {
  return given(path) != nullptr && config::is_auto(*given(path));
}

OptionValue DeepSpeedFile::typed(const std::string& path, const config::Node& value, const char* minimum) const {
  const config::Node& row = *deepspeed_table("keys").get(path);
  OptionSpec option;
  option.type = text_at(row, "type");
  option.minimum = minimum;
  if (option.type == "any") return spelled(value);
  if (const config::Node* choices = row.get("choices"))
    for (const config::Node& choice : choices->items) option.choices.push_back(choice.text);
  return config::typed_option(value, option, path);
}

std::vector<DeepSpeedKey> DeepSpeedFile::keys(const std::vector<std::string>& allowed) const {
  std::vector<DeepSpeedKey> keys;
  collect(root_, "", allowed, keys);
  return keys;
}

}  // namespace strata::deepspeed
