#include "tools/deepspeed/deepspeed_reader.hpp"

#include <algorithm>

#include "config/keys.hpp"
#include "text/nearest.hpp"

namespace strata::config {
namespace {

bool any_switch_on(const Node& node, const std::string& name) {
  return std::any_of(node.entries.begin(), node.entries.end(), [&](const Entry& entry) {
    const bool here = entry.key == name && entry.value.kind == NodeKind::Scalar && entry.value.text != "false";
    return here || any_switch_on(entry.value, name);
  });
}

const Node* not_null(const Node* node) {
  return node == nullptr || node->kind == NodeKind::Null ? nullptr : node;
}

}  // namespace

Node scalar_node(const std::string& text, const Place& place, const std::string& origin) {
  Node node;
  node.kind = NodeKind::Scalar;
  node.text = text;
  node.place = place;
  node.origin = origin;
  return node;
}

std::string spelled(const Node& node) {
  if (node.kind == NodeKind::Scalar) return one_line(node.text, 60);
  if (node.kind != NodeKind::Sequence) return node.kind == NodeKind::Map ? "{...}" : "null";
  std::string text;
  for (const Node& item : node.items) text += (text.empty() ? "" : ", ") + spelled(item);
  return one_line("[" + text + "]", 60);
}

DeepSpeedReader::DeepSpeedReader(Node file, const Node& settings, std::string device, const PluginSource& plugins,
                                 const DialectAnswers& answers)
    : file_(std::move(file)), settings_(settings), device_(std::move(device)), plugins_(plugins), answers_(answers) {
  tree.kind = NodeKind::Map;
  tree.place = file_.place;
  tree.origin = file_.origin;
}

void DeepSpeedReader::read(const Node& compat, const Node& allowed) {
  apply_aliases();
  for (const Node& item : allowed.items) allowed_.push_back(item.text);
  if (allowed.kind == NodeKind::Scalar) allowed_.push_back(allowed.text);
  const Node* version = compat.kind == NodeKind::Scalar ? &compat : given("deepspeed_compat");
  const std::string newest = table_.part("version").text;
  compat_ = version == nullptr ? newest : spelled(*version);
  if (compat_.empty() || compat_.find_first_not_of("0123456789.") != std::string::npos)
    throw UserError(version->place, "deepspeed_compat: " + shown(compat_) + ", where a version of DeepSpeed like " +
                                        newest + " is expected");
  refuse_optimizer();
  collect(file_, "");
  choose_precision();
  choose_partitioner();
  optimizer_ = choose_type("optimizer", "optimizers", "optimizer.plugin");
  schedule_ = choose_type("scheduler", "schedules", "learning_rate.plugin");
  for (const Leaf& leaf : leaves_) visit(leaf);
  batch();
  for (const Entry& entry : table_.part("keys").entries)
    if (given(entry.key) == nullptr || dropped_.contains(entry.key)) emit_default(entry.key, entry.value);
  fill();
  choose_momentum();
}

void DeepSpeedReader::apply_aliases() {
  for (const Entry& alias : table_.part("aliases").entries) {
    const std::size_t dot = alias.key.rfind('.');
    const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
    Node* section = begin == 0 ? &file_ : const_cast<Node*>(find(file_, alias.key.substr(0, dot)));
    const std::string old_name = alias.key.substr(begin), new_name = alias.value.text.substr(begin);
    if (section == nullptr || section->get(old_name) == nullptr) continue;
    for (Entry& entry : section->entries) {
      if (entry.key != old_name) continue;
      if (section->get(new_name) != nullptr)
        throw UserError(entry.place,
                        alias.key + " is another name of " + alias.value.text + ", and both are given; keep one");
      entry.key = new_name;
      report.lines.push_back({entry.value.origin, alias.key, "", "read as " + alias.value.text, entry.place.line});
    }
  }
  Node* zero = file_.get("zero_optimization");  // true is an old form of stage 1
  if (zero == nullptr || zero->kind != NodeKind::Scalar) return;
  if (zero->quoted || (zero->text != "true" && zero->text != "false"))
    throw UserError(zero->place,
                    "zero_optimization: " + shown(zero->text) + ", where a section {\"stage\": ...} is expected");
  Node section = *zero;
  section.kind = NodeKind::Map;
  section.text.clear();
  section.put("stage", zero->place, scalar_node(zero->text == "true" ? "1" : "0", zero->place, zero->origin));
  *zero = std::move(section);
}

void DeepSpeedReader::collect(const Node& section, const std::string& path) {
  for (const Entry& entry : section.entries) {
    const std::string full = path.empty() ? entry.key : path + "." + entry.key;
    const std::vector<std::string> below = table_.children(full);
    if (const Node* row = table_.block(full)) {
      block(entry, full, *row);
    } else if (const Node* own = table_.key(full)) {
      leaves_.push_back({full, entry.place, &entry.value, own});
    } else if (below.empty()) {
      unknown(entry, full, table_.children(path));
    } else if (entry.value.kind == NodeKind::Map) {
      collect(entry.value, full);
    } else if (entry.value.kind != NodeKind::Null) {
      throw UserError(entry.value.place, full + ": " + shown(spelled(entry.value)) + ", where a section {\"" +
                                             below.front() + "\": ...} is expected");
    }
  }
}

// DeepSpeed ignores what it does not know at the top. So is it here, unless it looks like a slip of the pen.
void DeepSpeedReader::unknown(const Entry& entry, const std::string& path, const std::vector<std::string>& known) {
  const bool top = path == entry.key;
  if (top && (is_allowed(path) || near(entry.key, known).empty()))
    return line({path, entry.place, &entry.value, nullptr}, "ignored, as DeepSpeed ignores it: it has no such key");
  throw UserError(entry.place, "unknown key " + shown(path) + " of a ds_config; " + suggestion(entry.key, known) +
                                   (top ? " DeepSpeed ignores it; --allow " + path + " does so as well" : ""));
}

void DeepSpeedReader::block(const Entry& entry, const std::string& path, const Node& row) {
  const Leaf leaf{path, entry.place, &entry.value, &row};
  const Node& value = entry.value;
  if (const Node* known = row.get("keys")) {
    if (value.kind != NodeKind::Map && value.kind != NodeKind::Null)
      throw UserError(value.place,
                      path + ": " + shown(spelled(value)) + ", where a section {\"enabled\": ...} is expected");
    std::vector<std::string> names;
    for (const Node& item : known->items) names.push_back(item.text);
    for (const Entry& inner : value.entries)
      if (std::find(names.begin(), names.end(), inner.key) == names.end())
        throw UserError(inner.place, "unknown key " + shown(path + "." + inner.key) + " of a ds_config; " +
                                         suggestion(inner.key, names));
  }
  const std::string name = row.get("switch") == nullptr ? "enabled" : text_at(row, "switch");
  const bool on = (value.kind == NodeKind::Scalar && value.text != "false") || any_switch_on(value, name) ||
                  (row.get("present") != nullptr && value.kind == NodeKind::Map && value.get(name) == nullptr);
  if (!on) return line(leaf, "not enabled: nothing to do");
  if (row.get("on") != nullptr) return line(leaf, text_at(row, "on"));
  refuse(leaf, text_at(row, "refuse"));
}

const Node* DeepSpeedReader::given(const std::string& path) const {
  return not_null(find(file_, path));
}

const Node* DeepSpeedReader::set(const std::string& path) const {
  return not_null(find(settings_, path));
}

bool DeepSpeedReader::is_automatic(const std::string& path) const {
  const Node* node = given(path);
  return node != nullptr && is_auto(*node);
}

DeepSpeedReader::Count DeepSpeedReader::count(const std::string& path, const char* minimum) const {
  const Node* node = given(path);
  if (node == nullptr || is_auto(*node)) return {};
  OptionSpec option;
  option.type = "integer";
  option.minimum = minimum;
  return std::get<std::int64_t>(typed_option(*node, option, path));
}

bool DeepSpeedReader::is_allowed(const std::string& path) const {
  return std::find(allowed_.begin(), allowed_.end(), path) != allowed_.end();
}

// Whether the engine, or the plugin that the target names, has such a key. An unknown plugin is for resolve to refuse.
bool DeepSpeedReader::exists(const std::string& target) const {
  if (find_key(target) != nullptr) return true;
  const std::size_t first = target.find('.'), last = target.rfind('.');
  const PluginSlot* slot = plugin_slot(target.substr(0, first));
  if (first == last || slot == nullptr) return false;
  const std::optional<PluginSchema> schema = plugins_.find(slot->kind, target.substr(first + 1, last - first - 1));
  return !schema || std::any_of(schema->options.begin(), schema->options.end(),
                                [&](const OptionSpec& option) { return option.name == target.substr(last + 1); });
}

std::string DeepSpeedReader::expand(std::string target) const {
  const std::pair<std::string, const std::string*> names[] = {{"{partitioner}", &partitioner_},
                                                              {"{precision}", &precision_},
                                                              {"{optimizer}", &optimizer_},
                                                              {"{schedule}", &schedule_}};
  for (const auto& [placeholder, name] : names)
    if (const std::size_t at = target.find(placeholder); at != std::string::npos)
      target.replace(at, placeholder.size(), *name);
  return target;
}

std::string DeepSpeedReader::typed(const Leaf& leaf) const {
  OptionSpec option;
  option.type = text_at(*leaf.row, "type");
  if (option.type == "any") return spelled(*leaf.value);
  if (const Node* choices = leaf.row->get("choices"))
    for (const Node& choice : choices->items) option.choices.push_back(choice.text);
  return to_text(typed_option(*leaf.value, option, leaf.path));
}

std::string DeepSpeedReader::put(const std::string& path, Node value, const Place& place, const std::string& origin) {
  const std::string text = path + " = " + spelled(value);
  value.origin = origin;
  value.place = place;
  for (Node& item : value.items) item.place = place;
  put_at(tree, path, std::move(value));
  const Node* chosen = set(path);
  return chosen == nullptr ? text : text + " (--set makes it " + spelled(*chosen) + ")";
}

std::string DeepSpeedReader::put(const std::string& path, const std::string& value, const Place& place,
                                 const std::string& origin) {
  return put(path, scalar_node(value), place, origin);
}

std::string DeepSpeedReader::put_from(const Leaf& leaf, const std::string& path, const Node& value) {
  return put(path, value, leaf.value->place, leaf.value->origin + " " + leaf.path);
}

std::string DeepSpeedReader::also(const Leaf& leaf, const Node& value) {
  std::string text;
  if (const Node* more = leaf.row->get("also"))
    for (const Entry& entry : more->entries) {
      const std::string target = expand(entry.key);
      if (exists(target)) text += ", " + put_from(leaf, target, entry.value.text == "{value}" ? value : entry.value);
    }
  return text;
}

void DeepSpeedReader::line(const Leaf& leaf, const std::string& text) {
  report.lines.push_back({leaf.value->origin, leaf.path, spelled(*leaf.value), text, leaf.value->place.line});
}

void DeepSpeedReader::refuse(const Leaf& leaf, const std::string& reason) {
  const bool optional = leaf.row->get("optional") != nullptr;
  if (optional && is_allowed(leaf.path)) return line(leaf, "left aside, as --allow says: " + reason);
  throw UserError(leaf.place, leaf.path + ": " + shown(spelled(*leaf.value)) + " is refused: " + reason +
                                  (optional ? ", or run without it by --allow " + leaf.path : ""));
}

}  // namespace strata::config
