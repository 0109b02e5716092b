// What a row of keys.yaml does with a value, and the rules: what several keys decide together.
#include <strings.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "config/keys.hpp"
#include "config/merge_trees.hpp"
#include "deepspeed/deepspeed.hpp"
#include "deepspeed/deepspeed_file.hpp"
#include "deepspeed/deepspeed_table.hpp"
#include "text/nearest.hpp"

namespace strata::config {
namespace {

using Count = std::optional<std::int64_t>;

Node scalar(std::string text) {
  Node node;
  node.kind = NodeKind::Scalar;
  node.text = std::move(text);
  return node;
}

std::string first_part(const std::string& path) {
  return path.substr(0, path.find('.'));
}

bool any_switch_on(const Node& node, const std::string& name) {
  return std::any_of(node.entries.begin(), node.entries.end(), [&](const Entry& entry) {
    const bool here = entry.key == name && entry.value.kind == NodeKind::Scalar && entry.value.text != "false";
    return here || any_switch_on(entry.value, name);
  });
}

const Node* without_case(const Node& names, const std::string& name) {
  for (const Entry& entry : names.entries)
    if (strcasecmp(entry.key.c_str(), name.c_str()) == 0) return &entry.value;
  return nullptr;
}

// The device that the defaults and the settings choose: a ds_config says nothing of it.
std::string chosen_device(const std::vector<Node>& trees, const PluginSource& plugins) {
  std::vector<Node> others{trees.front()};
  if (trees.size() > 2) others.push_back(trees[2]);
  Node tree = combine(std::move(others), plugins);
  tree.place = trees[1].place;
  settle_automatic(tree, plugins, /*on_one_host=*/false);  // the device does not depend on it
  const Node* device = find(tree, "device.plugin");
  return device == nullptr ? "" : plugin_name(*plugin_slot("device"), device->text, plugins);
}

class DeepSpeedTranslation {
 public:
  DeepSpeedTranslation(std::vector<Node>& trees, const PluginSource& plugins, const DialectAnswers& answers)
      : device_(chosen_device(trees, plugins)),
        plugins_(plugins),
        answers_(answers),
        file_(trees[1], report.lines),
        settings_(trees.size() > 2 ? trees[2] : Node{}) {
    tree.kind = NodeKind::Map;
    tree.place = file_.root().place;
    tree.origin = file_.root().origin;
  }

  // `compat` and `allowed` are the settings deepspeed_compat and deepspeed_allow.
  void read(const Node* compat, const Node* allowed) {
    choose_version(compat);
    if (allowed != nullptr && allowed->kind == NodeKind::Scalar) allowed_.push_back(allowed->text);
    if (allowed != nullptr)
      for (const Node& item : allowed->items) allowed_.push_back(item.text);
    for (const Entry& type : deepspeed_table("types").entries) choose_type(type.key, type.value);
    keys_ = file_.keys(allowed_);
    choose_precision();
    choose_partitioner();
    for (const DeepSpeedKey& key : keys_) visit(key);
    batch();
    for (const Entry& row : deepspeed_table("keys").entries)
      if (file_.given(row.key) == nullptr || dropped_.contains(row.key)) emit_default(row.key, row.value);
    fill();
    choose_momentum();
  }

  Node tree;
  Translation report;

 private:
  // What --set says.
  const Node* set(const std::string& path) const {
    const Node* node = find(settings_, path);
    return node == nullptr || node->kind == NodeKind::Null ? nullptr : node;
  }

  // Whether the engine, or the plugin that the target names, has such a key. An unknown plugin is for resolve to
  // refuse.
  bool exists(const std::string& target) const {
    if (find_key(target) != nullptr) return true;
    const std::size_t first = target.find('.'), last = target.rfind('.');
    const PluginSlot* slot = plugin_slot(target.substr(0, first));
    if (first == last || slot == nullptr) return false;
    const std::optional<PluginSchema> schema = plugins_.find(slot->kind, target.substr(first + 1, last - first - 1));
    return !schema || std::any_of(schema->options.begin(), schema->options.end(),
                                  [&](const OptionSpec& option) { return option.name == target.substr(last + 1); });
  }

  // With what was chosen in the place of {partitioner} and its like.
  std::string expand(std::string text) const {
    for (const auto& [name, chosen] : chosen_)
      if (const std::size_t at = text.find("{" + name + "}"); at != std::string::npos)
        text.replace(at, name.size() + 2, chosen);
    return text;
  }

  // The value in one spelling; throws UserError when its type is wrong.
  std::string typed(const DeepSpeedKey& key) const { return to_text(file_.typed(key.path, *key.value)); }

  Count count(const std::string& path) const { return file_.value<std::int64_t>(path, "1"); }

  // Puts a value of ours; what was put, for a line: "a.b = c", and that --set changes it.
  std::string put(const std::string& path, Node value, const Place& place, const std::string& origin) {
    const std::string text = path + " = " + spelled(value);
    value.origin = origin;
    value.place = place;
    for (Node& item : value.items) item.place = place;
    put_at(tree, path, std::move(value));
    const Node* chosen = set(path);
    return chosen == nullptr ? text : text + " (--set makes it " + spelled(*chosen) + ")";
  }

  std::string put_from(const DeepSpeedKey& key, const std::string& path, const Node& value) {
    return put(path, value, key.value->place, key.value->origin + " " + key.path);
  }

  std::string also(const DeepSpeedKey& key) {
    std::string text;
    if (const Node* more = key.row->get("also"))
      for (const Entry& entry : more->entries) {
        const std::string target = expand(entry.key);
        if (exists(target))
          text += ", " + put_from(key, target, entry.value.text == "{value}" ? *key.value : entry.value);
      }
    return text;
  }

  void line(const DeepSpeedKey& key, const std::string& text, const std::string& derived = "") {
    report.lines.push_back({key.value->origin, key.path, spelled(*key.value), text, key.value->place.line, derived});
  }

  // Returns when that is allowed.
  void refuse(const DeepSpeedKey& key, const std::string& reason) {
    const bool optional = key.row->get("optional") != nullptr;
    if (optional && std::find(allowed_.begin(), allowed_.end(), key.path) != allowed_.end())
      return line(key, "left aside, as --allow says: " + reason);
    throw UserError(key.place, key.path + ": " + shown(spelled(*key.value)) + " is refused: " + reason +
                                   (optional ? ", or run without it by --allow " + key.path : ""));
  }

  void visit(const DeepSpeedKey& key) {
    if (key.row == nullptr) return line(key, "ignored, as DeepSpeed ignores it: it has no such key");
    if (key.row->get("type") == nullptr) return block(key);
    if (key.value->kind == NodeKind::Null) return line(key, "as if left out");
    if (key.row->get("slot") != nullptr) return say_chosen(key);
    if (first_part(key.path) == "pipeline" && !is_pipelined()) return pipeline(key);
    const std::string name = text_at(*key.row, "rule");
    if (!name.empty() && rule(key, name)) return;
    if (is_auto(*key.value)) return automatic(key);
    take(key, typed(key));
  }

  void block(const DeepSpeedKey& key) {
    const Node &row = *key.row, &value = *key.value;
    const std::string name = row.get("switch") == nullptr ? "enabled" : text_at(row, "switch");
    const bool on = (value.kind == NodeKind::Scalar && value.text != "false") || any_switch_on(value, name) ||
                    (row.get("present") != nullptr && value.kind == NodeKind::Map && value.get(name) == nullptr);
    if (!on) return line(key, "not enabled: nothing to do");
    if (row.get("on") != nullptr) return line(key, text_at(row, "on"));
    refuse(key, text_at(row, "refuse"));
  }

  void take(const DeepSpeedKey& key, const std::string& canonical) {
    const Node& row = *key.row;
    const std::string target = expand(text_at(row, "to"));
    for (const std::string& notes : {std::string("notes"), "notes_on." + device_, std::string("elsewhere")}) {
      const Node* by_value = find(row, notes);
      if (by_value == nullptr || by_value->get(canonical) == nullptr) continue;
      if (notes != "elsewhere" || !exists(target)) return line(key, text_at(*by_value, canonical));
    }
    if (const Node* at = row.get("at_stage"); at != nullptr && at->text != stage_)
      return refuse(key, "of stage " + at->text + " only; leave it out");
    const Node* values = row.get("values");
    const Node* value = values == nullptr ? key.value : values->get(canonical);
    if (!target.empty() && value != nullptr) {
      if (!exists(target)) return without_target(key);
      const std::string text = put_from(key, target, *value);
      return line(key, text + also(key));
    }
    if (row.get("refuse") != nullptr) return refuse(key, text_at(row, "refuse"));
    std::string text = expand(text_at(row, "note"));
    if (const Node* unit = row.get("multiple_of");
        unit != nullptr && std::stoll(canonical) % std::stoll(unit->text) != 0)
      text += "; " + text_at(row, "warning");
    line(key, text);
  }

  // What was chosen has no such option.
  void without_target(const DeepSpeedKey& key) {
    const std::string elsewhere = text_at(*key.row, "elsewhere"), reason = text_at(*key.row, "refuse");
    if (!elsewhere.empty()) return line(key, elsewhere);
    refuse(key,
           reason.empty() ? expand(text_at(*deepspeed_table("types").get(first_part(key.path)), "lacks")) : reason);
  }

  void automatic(const DeepSpeedKey& key) {
    const Node* rule = key.row->get("auto");
    if (rule == nullptr) {
      const std::vector<Node>& drop = deepspeed_table("drop_auto").items;
      if (std::none_of(drop.begin(), drop.end(), [&](const Node& name) { return name.text == first_part(key.path); }))
        throw UserError(key.value->place, key.path + ": \"auto\" has no rule here; give the value, or leave it out");
      dropped_.insert(key.path);
      return line(key, "as if left out, as DeepSpeed reads it");
    }
    const std::string target = expand(text_at(*key.row, "to"));
    if (!exists(target)) return without_target(key);
    if (const Node* chosen = set(target)) return line(key, target + " = " + spelled(*chosen) + ", as --set says");
    if (rule->kind == NodeKind::Sequence) return hidden_size_rule(key, target, *rule);
    if (rule->text == "derive") {
      const Key* ours = find_key(target);
      return line(key,
                  target + " is derived" + (ours == nullptr ? ", as when it is left out" : ": " + ours->automatic));
    }
    line(key, put_from(key, target, rule->text.starts_with("[") ? parse_value(rule->text, "") : *rule));
  }

  void hidden_size_rule(const DeepSpeedKey& key, const std::string& target, const Node& rule) {
    const std::string factor = rule.items.at(0).text, power = rule.items.at(1).text;
    const std::string formula = factor + " x (hidden size" + (power == "1" ? ")" : ")^" + power);
    if (!answers_.hidden_size) {
      report.asks_hidden_size = true;
      return line(key, formula + ", and the model is not known here; left at the default of " + target);
    }
    const double value = std::stod(factor) * std::pow(static_cast<double>(*answers_.hidden_size), std::stod(power));
    const std::string text = put_from(key, target, scalar(std::to_string(static_cast<std::int64_t>(value))));
    line(key, text + also(key) + ", " + formula + " of " + std::to_string(*answers_.hidden_size));
  }

  // DeepSpeed's default, where it is not ours.
  void emit_default(const std::string& path, const Node& row) {
    const std::string top = first_part(path), target = expand(text_at(row, "to"));
    if ((top == "optimizer" || top == "scheduler") && file_.given(top) == nullptr) return;
    if (target.empty() || !exists(target)) return;
    const Place& place = file_.root().place;
    if (row.get("required") != nullptr)
      throw UserError(file_.given(top)->place,
                      path + " must be given: " + chosen_["learning_rate"] + " has no default for it");
    std::string value = text_at(row, "default");
    if (const Node* with = row.get("default_with"))
      for (const auto& [slot, chosen] : chosen_)
        if (const Node* its = with->get(chosen)) value = its->text;
    const Node* moved = deepspeed_table("moved").get(path);
    const std::string compat = chosen_["version"];
    if (moved != nullptr && is_older(compat, text_at(*moved, "before"))) value = text_at(*moved, "default");
    if (value.empty() || find(tree, target) != nullptr) return;
    Node source = scalar(value);
    source.place = place;
    source.origin = "DeepSpeed" + (moved != nullptr ? " " + compat : "") + "'s default of";
    const DeepSpeedKey key{path, place, &source, &row};
    const std::string text = put_from(key, target, source);
    if (moved != nullptr) report.lines.push_back({"deepspeed_compat " + compat, path, "left out", text});
    also(key);
  }

  void fill() {
    for (const Entry& entry : deepspeed_table("fill").entries) {
      const std::string without = text_at(entry.value, "without"), unless = text_at(entry.value, "unless_given");
      if (find(tree, entry.key) != nullptr || set(entry.key) != nullptr) continue;
      if (!without.empty() && file_.given(without) != nullptr) continue;
      if (!unless.empty() && file_.given(first_part(unless)) != nullptr && !file_.is_automatic(unless)) continue;
      const std::string text = put(entry.key, *entry.value.get("value"), file_.root().place, "not in a ds_config");
      report.lines.push_back({text_at(entry.value, "why"), "", "", text + "; --set " + entry.key + "=... changes it"});
    }
  }

  void choose_version(const Node* compat) {
    const Node* given =
        compat != nullptr && compat->kind == NodeKind::Scalar ? compat : file_.given("deepspeed_compat");
    const std::string newest = deepspeed_table("version").text, version = given == nullptr ? newest : spelled(*given);
    if (version.empty() || version.find_first_not_of("0123456789.") != std::string::npos)
      throw UserError(given->place, "deepspeed_compat: " + shown(version) + ", where a version of DeepSpeed like " +
                                        newest + " is expected");
    chosen_["version"] = version;
  }

  // The plugin of a section of ours; --set wins.
  void choose(const std::string& slot, const std::string& plugin, const Place& place, const std::string& origin) {
    put(slot + ".plugin", scalar(plugin), place, origin);
    const Node* set_to = set(slot + ".plugin");
    chosen_[slot] = set_to == nullptr ? plugin : set_to->text;
  }

  void say_chosen(const DeepSpeedKey& key) {
    const std::string path = text_at(*key.row, "slot") + ".plugin";
    if (const Node* chosen = set(path)) return line(key, path + " = " + spelled(*chosen) + ", as --set says");
    const Node& ours = *find(tree, path);
    const bool says_why = is_auto(*key.value) && path == "precision.plugin";
    line(key, path + " = " + spelled(ours) + (says_why ? ": " + ours.origin : ""));
  }

  void choose_precision() {
    const bool fp16 = file_.value<bool>("fp16.enabled").value_or(false);
    const bool bf16 = file_.value<bool>("bf16.enabled").value_or(false);
    const Node* enabled = file_.given(fp16 ? "fp16.enabled" : "bf16.enabled");
    if (fp16 && bf16)
      throw UserError(enabled->place,
                      "fp16.enabled and bf16.enabled are both true, and a run has one of them; set one to false");
    if (fp16 || bf16) {
      const std::string name = fp16 ? "fp16" : "bf16";
      return choose("precision", name, enabled->place, enabled->origin + " " + name + ".enabled");
    }
    const Node* automatic = file_.is_automatic("bf16.enabled") ? deepspeed_table("auto_bf16").get(device_) : nullptr;
    if (automatic != nullptr)
      return choose("precision", automatic->text, file_.root().place,
                    "\"auto\" is " + automatic->text + " on device " + device_);
    const bool asked = file_.is_automatic("fp16.enabled") || file_.is_automatic("bf16.enabled");
    choose("precision", "fp32", file_.root().place,
           asked ? "\"auto\" is off, as Hugging Face's --fp16 and --bf16 are" : "neither fp16 nor bf16 is enabled");
  }

  void choose_partitioner() {
    const std::string stage_key = "zero_optimization.stage";
    const Node* given = file_.given(stage_key);
    stage_ = std::to_string(file_.value<std::int64_t>(stage_key, "0").value_or(0));
    const Node* partitioner = deepspeed_table("stages").get(stage_);
    if (partitioner == nullptr)
      throw UserError(given->place, stage_key + ": " + stage_ + ", and there are the stages 0, 1, 2 and 3");
    std::string origin = given == nullptr ? "DeepSpeed's default of " + stage_key : given->origin + " " + stage_key;
    std::string chosen_by;
    for (const DeepSpeedKey& key : keys_) {
      if (key.row == nullptr || key.row->get("chooses") == nullptr) continue;
      if (key.value->kind != NodeKind::Scalar || is_auto(*key.value)) continue;
      if (key.row->get("notes")->get(typed(key)) != nullptr || text_at(*key.row, "at_stage") != stage_) continue;
      if (!chosen_by.empty())
        throw UserError(key.place, key.path + " and " + chosen_by + " both choose groups of ranks; keep one");
      chosen_by = key.path;
      partitioner = key.row->get("chooses");
      origin = key.value->origin + " " + key.path;
    }
    choose("partitioner", partitioner->text, given == nullptr ? file_.root().place : given->place, origin);
  }

  // The plugin that a block names by its `type`; where there is no block, what --set says. Its parameters are looked at
  // later: a refused type may have some that no other has.
  void choose_type(const std::string& block, const Node& types) {
    const std::string path = block + ".type", slot = text_at(types, "slot");
    if (const Node* chosen = set(slot + ".plugin")) chosen_[slot] = chosen->text;
    if (file_.given(block) == nullptr) return;
    const Node* type = file_.given(path);
    const Node& known = *types.get("known");
    if (type == nullptr || type->kind != NodeKind::Scalar)
      throw UserError(file_.given(block)->place,
                      path + " must be given: a name, as in \"" + known.entries.front().key + "\"");
    if (const Node* reason = without_case(*types.get("refused"), type->text))
      throw UserError(type->place, path + ": " + shown(type->text) + " is refused: " + reason->text);
    const Node* name = without_case(known, type->text);
    if (name == nullptr) {
      std::vector<std::string> names;
      for (const Entry& entry : known.entries) names.push_back(entry.key);
      throw UserError(type->place, path + ": " + shown(type->text) + " is unknown; " + suggestion(type->text, names));
    }
    choose(slot, name->text, type->place, type->origin + " " + path);
    if (block == "scheduler") chosen_[slot] = name->text;  // the file has its parameters, whatever --set says
  }

  // Where the schedule cycles the momentum, DeepSpeed sets both of Adam's betas, the second to 0.99, and leaves
  // optimizers without betas alone.
  void choose_momentum() {
    const auto chosen = [&](const std::string& path) { return set(path) == nullptr ? find(tree, path) : set(path); };
    const std::string cycles = expand("learning_rate.{learning_rate}.cycle_momentum");
    const Node *cycled = chosen(cycles), *optimizer = chosen("optimizer.plugin");
    if (cycled == nullptr || cycled->text != "true" || optimizer == nullptr) return;
    const std::string betas = "optimizer." + optimizer->text + ".betas";
    const bool has_betas = exists(betas);
    const std::string text =
        put(has_betas ? betas : cycles, has_betas ? parse_value("[0.9, 0.99]", "") : scalar("false"), cycled->place,
            "DeepSpeed's OneCycle");
    report.lines.push_back({has_betas ? "DeepSpeed's OneCycle cycles the first of Adam's betas and sets the second"
                                      : "DeepSpeed's OneCycle cycles no momentum but Adam's",
                            "", "", text});
  }

  // False: the row goes on as any other.
  bool rule(const DeepSpeedKey& key, const std::string& name) {
    if (name == "batch") return true;  // all three at once: batch()
    if (name == "pipeline") return pipeline(key), true;
    if (name == "csv_monitor") return csv_monitor(key), true;
    if (name != "adam_w_mode") throw Bug("keys.yaml names an unknown rule " + name);
    const bool decays = file_.value<double>("optimizer.params.weight_decay").value_or(0) != 0;
    if (key.value->text != "false" || decays) return false;
    return line(key, "without weight decay both modes are the same"), true;
  }

  // One folder of ours from three keys.
  void csv_monitor(const DeepSpeedKey& key) {
    const auto text = [&](const std::string& path) {
      return file_.value<std::string>(path).value_or(text_at(*deepspeed_table("keys").get(path), "default"));
    };
    if (!is_auto(*key.value)) typed(key);
    if (!file_.value<bool>("csv_monitor.enabled").value_or(false))
      return line(key, "csv_monitor is not enabled: nothing to do");
    if (key.path != "csv_monitor.enabled") return line(key, "part of metrics.csv");
    const std::filesystem::path folder = text("csv_monitor.output_path");
    line(key, put_from(key, "metrics.csv", scalar((folder / text("csv_monitor.job_name")).string())));
  }

  std::int64_t stages() const { return count("pipeline.stages").value_or(1); }

  bool is_pipelined() const {
    if (file_.is_automatic("pipeline.enabled"))
      throw UserError(file_.given("pipeline.enabled")->place,
                      "pipeline.enabled: \"auto\" has no rule here; give true or false, or leave it out");
    if (file_.given("pipeline.enabled") == nullptr) return stages() > 1;
    return *file_.value<bool>("pipeline.enabled");
  }

  void pipeline(const DeepSpeedKey& key) {
    if (key.path == "pipeline.enabled")
      return line(key, is_pipelined() ? "parallel.pipeline = " + std::to_string(stages()) : "no pipeline");
    if (!is_pipelined()) {
      if (!is_auto(*key.value)) typed(key);
      return line(key, "the pipeline is not enabled: nothing to do");
    }
    if (key.path == "pipeline.stages") {
      std::string text = put_from(key, "parallel.pipeline", scalar(std::to_string(stages())));
      if (stages() > 1 && file_.given("pipeline.schedule") == nullptr)
        text += ", " + put_from(key, "scheduler.plugin", scalar("1f1b"));
      return line(key, text);
    }
    if (key.path == "pipeline.schedule") return line(key, put_from(key, "scheduler.plugin", scalar(typed(key))));
    const Count samples = count("pipeline.micro_batch_size");
    if (key.path == "pipeline.micro_batch_size")
      return line(key,
                  samples ? "train.micro_batch = " + std::to_string(*samples) : "as train_micro_batch_size_per_gpu");
    const Count own = samples ? samples : count("train_micro_batch_size_per_gpu");
    if (is_auto(*key.value) || (own && count(key.path) == own)) return line(key, "as micro_batch_size");
    refuse(key, text_at(*key.row, "refuse"));
  }

  // train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps: what is known is handed on, and
  // resolve derives or compares the rest (batch.hpp). A batch of which nothing but "auto" is known is Hugging Face's.
  void batch() {
    const std::string all = deepspeed_table("automatic_batch").text;
    const Count total = count("train_batch_size");
    Count own = count("train_micro_batch_size_per_gpu"),
          samples = is_pipelined() ? count("pipeline.micro_batch_size") : std::nullopt;
    std::string automatic;  // the key whose "auto" is a whole batch
    if (!own && !total && set("train.micro_batch") == nullptr && set("train.global_batch") == nullptr) {
      for (const char* path : {"train_batch_size", "train_micro_batch_size_per_gpu"})
        if (file_.is_automatic(path)) automatic = path;
      if (automatic.empty() && !samples)
        throw UserError(file_.root().place,
                        "no batch size in this ds_config; give train_batch_size or train_micro_batch_size_per_gpu "
                        "(\"auto\" is " +
                            all + " samples a device), or --set train.micro_batch=N");
    }
    if (!automatic.empty()) {
      own = std::stoll(all);
      if (!samples && set("train.accumulation") == nullptr) {
        report.automatic_batch = *own;
        report.automatic_batch_place = file_.given(automatic)->place;
        samples = answers_.micro_batch.value_or(*own);
      }
    }
    const Count accumulation = micro_batches(samples, own, total);
    hand_on("train_micro_batch_size_per_gpu", "train.micro_batch", samples ? samples : own, automatic);
    hand_on("gradient_accumulation_steps", "train.accumulation", accumulation, automatic);
    hand_on("train_batch_size", "train.global_batch", total, automatic);
  }

  // How many micro-batches a step has. Where the micro-batch is not DeepSpeed's, `samples`, they are not DeepSpeed's.
  Count micro_batches(Count samples, Count micro, Count total) const {
    const Count accumulation = count("gradient_accumulation_steps");
    if (!samples) return accumulation;
    if (!micro || (!accumulation && total)) return total ? std::nullopt : accumulation;
    const std::int64_t times = accumulation.value_or(1);
    std::int64_t all = 0;
    if (__builtin_mul_overflow(*micro, times, &all))
      throw UserError(file_.given("gradient_accumulation_steps")->place,
                      "gradient_accumulation_steps: " + std::to_string(times) + " x " + std::to_string(*micro) +
                          " samples is more than a 64-bit number holds");
    if (all % *samples != 0)
      throw UserError(file_.given("pipeline.micro_batch_size")->place,
                      "pipeline.micro_batch_size: " + std::to_string(*samples) +
                          " does not divide train_micro_batch_size_per_gpu " + std::to_string(*micro) +
                          " x gradient_accumulation_steps " + std::to_string(times) + "; give a divisor, or \"auto\"");
    return all / *samples;
  }

  // `automatic`: the key whose "auto" is a whole batch; its line says what that is.
  void hand_on(const std::string& path, const std::string& target, Count value, const std::string& automatic) {
    const Node *node = file_.given(path), *chosen = set(target);
    std::string text =
        chosen == nullptr ? target + " is derived" : target + " = " + spelled(*chosen) + ", as --set says";
    if (value) {
      const bool elsewhere = node == nullptr || is_auto(*node);  // another key gave the value
      const std::string source = !elsewhere ? path : !automatic.empty() ? automatic : "pipeline.micro_batch_size";
      const Node& from = *file_.given(source);
      text = put(target, scalar(std::to_string(*value)), from.place,
                 from.origin + " " + (elsewhere && automatic.empty() ? path : source));
    }
    if (node == nullptr) return;
    const bool asks = automatic == path;
    if (asks)
      text += "; \"auto\" is " + deepspeed_table("automatic_batch").text + " samples a device, Hugging Face's default";
    if (asks && report.automatic_batch != 0)
      text += answers_.micro_batch
                  ? "; the micro-batch is " + answers_.micro_batch_origin
                  : ", here in one micro-batch; a run of this file makes smaller ones where memory_budget asks for it";
    const bool settled = value || chosen != nullptr || asks;
    line({path, node->place, node, nullptr}, text, settled ? "" : target);
  }

  const std::string device_;  // that the run will have
  const PluginSource& plugins_;
  const DialectAnswers& answers_;
  DeepSpeedFile file_;
  const Node settings_;
  std::vector<std::string> allowed_;
  std::vector<DeepSpeedKey> keys_;
  std::set<std::string> dropped_;              // "auto" that DeepSpeed reads as left out
  std::map<std::string, std::string> chosen_;  // the plugin of each section of ours, and the `version` of DeepSpeed
  std::string stage_;
};

}  // namespace

Translation DeepSpeed::translate(std::vector<Node>& trees, const PluginSource& plugins,
                                 const DialectAnswers& answers) const {
  strata_check(trees.size() > 1, "a ds_config lies over the defaults");
  Node settings = trees.size() > 2 ? trees[2] : Node{};
  if (trees.size() > 2)
    for (const char* key : {"deepspeed_compat", "deepspeed_allow"}) trees[2].remove(key);
  DeepSpeedTranslation translation(trees, plugins, answers);
  translation.read(settings.get("deepspeed_compat"), settings.get("deepspeed_allow"));
  trees[1] = std::move(translation.tree);
  std::vector<DialectLine>& lines = translation.report.lines;
  std::stable_sort(lines.begin(), lines.end(), [](const DialectLine& a, const DialectLine& b) {
    return a.number != 0 && (b.number == 0 || a.number < b.number);
  });
  return std::move(translation.report);
}

}  // namespace strata::config
