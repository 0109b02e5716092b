// The plugins that a ds_config chooses; --set wins.
#include <strings.h>

#include "text/nearest.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"
#include "tools/deepspeed/deepspeed_translation.hpp"

namespace strata::deepspeed {

namespace {

const config::Node* without_case(const config::Node& names, const std::string& name) {
  for (const config::Entry& entry : names.entries)
    if (strcasecmp(entry.key.c_str(), name.c_str()) == 0) return &entry.value;
  return nullptr;
}

}  // namespace

void DeepSpeedTranslation::choose_version(const config::Node* compat) {
  const config::Node* given =
      compat != nullptr && compat->kind == config::NodeKind::Scalar ? compat : file_.given("deepspeed_compat");
  const std::string newest = deepspeed_table("version").text, version = given == nullptr ? newest : spelled(*given);
  if (version.empty() || version.find_first_not_of("0123456789.") != std::string::npos)
    throw UserError(given->place, "deepspeed_compat: {}, where a version of DeepSpeed like {} is expected",
                    config::shown(version), newest);
  chosen_["version"] = version;
}

void DeepSpeedTranslation::choose(const std::string& slot, const std::string& plugin, const Place& place,
                                  const std::string& origin) {
  put(slot + ".plugin", scalar_node(plugin), place, origin);
  const config::Node* set_to = set(slot + ".plugin");
  chosen_[slot] = set_to == nullptr ? plugin : set_to->text;
}

void DeepSpeedTranslation::say_chosen(const DeepSpeedKey& key) {
  const std::string path = text_at(*key.row, "slot") + ".plugin";
  if (const config::Node* chosen = set(path)) return line(key, path + " = " + spelled(*chosen) + ", by --set");
  const config::Node& ours = *config::find(tree, path);
  const bool says_why = config::is_auto(*key.value) && path == "precision.plugin";
  line(key, path + " = " + spelled(ours) + (says_why ? ": " + ours.origin : ""));
}

void DeepSpeedTranslation::choose_precision() {
  const bool fp16 = file_.value<bool>("fp16.enabled").value_or(false);
  const bool bf16 = file_.value<bool>("bf16.enabled").value_or(false);
  const config::Node* enabled = file_.given(fp16 ? "fp16.enabled" : "bf16.enabled");
  if (fp16 && bf16) throw UserError(enabled->place, "fp16.enabled and bf16.enabled are both true; set one to false");
  if (fp16 || bf16) {
    const std::string name = fp16 ? "fp16" : "bf16";
    return choose("precision", name, enabled->place, enabled->origin + " " + name + ".enabled");
  }
  const config::Node* automatic =
      file_.is_automatic("bf16.enabled") ? deepspeed_table("auto_bf16").get(device_) : nullptr;
  if (automatic != nullptr)
    return choose("precision", automatic->text, file_.root().place,
                  "\"auto\" is " + automatic->text + " on device " + device_);
  const bool asked = file_.is_automatic("fp16.enabled") || file_.is_automatic("bf16.enabled");
  choose("precision", "fp32", file_.root().place,
         asked ? "\"auto\" is off, as Hugging Face's --fp16 and --bf16 are" : "neither fp16 nor bf16 is enabled");
}

void DeepSpeedTranslation::choose_partitioner() {
  const std::string stage_key = "zero_optimization.stage";
  const config::Node* given = file_.given(stage_key);
  stage_ = std::to_string(file_.value<std::int64_t>(stage_key, "0").value_or(0));
  const config::Node* partitioner = deepspeed_table("stages").get(stage_);
  if (partitioner == nullptr) throw UserError(given->place, "{} is {}; it must be 0, 1, 2 or 3", stage_key, stage_);
  std::string origin = given == nullptr ? "DeepSpeed's default of " + stage_key : given->origin + " " + stage_key;
  std::string chosen_by;
  for (const DeepSpeedKey& key : keys_) {
    if (key.row == nullptr || key.row->get("chooses") == nullptr) continue;
    if (key.value->kind != config::NodeKind::Scalar || config::is_auto(*key.value)) continue;
    if (key.row->get("notes")->get(typed(key)) != nullptr || text_at(*key.row, "at_stage") != stage_) continue;
    if (!chosen_by.empty())
      throw UserError(key.place, "{} and {} both choose groups of ranks; keep one", key.path, chosen_by);
    chosen_by = key.path;
    partitioner = key.row->get("chooses");
    origin = key.value->origin + " " + key.path;
  }
  choose("partitioner", partitioner->text, given == nullptr ? file_.root().place : given->place, origin);
}

void DeepSpeedTranslation::choose_type(const std::string& block, const config::Node& types) {
  const std::string path = block + ".type", slot = text_at(types, "slot");
  if (const config::Node* chosen = set(slot + ".plugin")) chosen_[slot] = chosen->text;
  if (file_.given(block) == nullptr) return;
  const config::Node* type = file_.given(path);
  const config::Node& known = *types.get("known");
  if (type == nullptr || type->kind != config::NodeKind::Scalar)
    throw UserError(file_.given(block)->place, "{} must be given: a name, as in \"{}\"", path,
                    known.entries.front().key);
  if (const config::Node* reason = without_case(*types.get("refused"), type->text))
    throw UserError(type->place, "{}: {} is refused: {}", path, config::shown(type->text), reason->text);
  const config::Node* name = without_case(known, type->text);
  if (name == nullptr) {
    std::vector<std::string> names;
    for (const config::Entry& entry : known.entries) names.push_back(entry.key);
    throw UserError(type->place, "{}: {} is unknown; {}; classes of torch are not supported", path,
                    config::shown(type->text), text::suggestion(type->text, names));
  }
  choose(slot, name->text, type->place, type->origin + " " + path);
  if (block == "scheduler") chosen_[slot] = name->text;  // the file has its parameters, even if --set replaces it
}

void DeepSpeedTranslation::choose_momentum() {
  const auto chosen = [&](const std::string& path) {
    return set(path) == nullptr ? config::find(tree, path) : set(path);
  };
  const std::string cycles = expand("learning_rate.{learning_rate}.cycle_momentum");
  const config::Node *cycled = chosen(cycles), *optimizer = chosen("optimizer.plugin");
  if (cycled == nullptr || cycled->text != "true" || optimizer == nullptr) return;
  const std::string betas = "optimizer." + optimizer->text + ".betas";
  const bool has_betas = exists(betas);
  const std::string text =
      put(has_betas ? betas : cycles, has_betas ? config::parse_value("[0.9, 0.99]", "") : scalar_node("false"),
          cycled->place, "DeepSpeed's OneCycle");
  report.lines.push_back({has_betas ? "DeepSpeed's OneCycle cycles the first of Adam's betas and sets the second"
                                    : "DeepSpeed's OneCycle cycles no momentum but Adam's",
                          "", "", text});
}

}  // namespace strata::deepspeed
