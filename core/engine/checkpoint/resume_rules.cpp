#include "checkpoint/resume_rules.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include "checkpoint/save_checkpoint.hpp"
#include "checkpoint/state_shard.hpp"
#include "config/keys.hpp"
#include "text/first_of.hpp"

namespace strata::checkpoint {

namespace {

// 0 for a text that is none.
std::int64_t whole_number(const std::string& text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string folder_of(const TrainingCheckpoint& saved) {
  return saved.folder.string();
}

std::map<std::string, config::OptionValue> settings_of(const config::RunConfig& config) {
  const auto settings = saved_settings(config);
  return {settings.begin(), settings.end()};
}

}  // namespace

void check_settings(const TrainingCheckpoint& saved, const config::RunConfig& config) {
  const std::map<std::string, config::OptionValue> now = settings_of(config);
  for (const auto& [key, then] : saved.config) {
    const auto value = now.find(key);
    if (config::effect_of(key).affects != config::Affects::Samples || value == now.end() ||
        config::means(then, value->second))
      continue;
    if (then.starts_with('/'))
      continue;  // a plugin's path, as checkpoints held it once; check_model() compares what it made
    throw UserError(
        "{}: was saved with {} = {}, and this run has {}; a resumed run must keep it: set {} back, or start anew from "
        "exported weights (strata checkpoint export, model.init)",
        folder_of(saved), key, then, config::to_text(value->second), key);
  }
  if (saved.pending && config.step_policy != config::StepPolicy::Delayed)
    throw UserError(
        "{}: was saved with step_policy = delayed and holds a gradient with a pending update, and this run has {}; set "
        "step_policy: delayed, or start anew from exported weights (strata checkpoint export, model.init)",
        folder_of(saved), choice_name(STRATA_STEP_POLICIES, static_cast<int>(config.step_policy)));
  const std::string* const steps = saved.setting("train.steps");
  if (config.data.order == config::DataOrder::Own && steps != nullptr && *steps != std::to_string(config.train.steps))
    throw UserError(
        "{}: was saved with train.steps = {}, and this run has {}; the data plugin's own order depends on the total "
        "number of samples: set train.steps back",
        folder_of(saved), *steps, config.train.steps);
  if (saved.step > config.train.steps)
    throw UserError("{}: has {} steps, and train.steps is {}; raise train.steps, or resume from an earlier checkpoint",
                    folder_of(saved), saved.step, config.train.steps);
}

std::string differing_settings(const TrainingCheckpoint& saved, const config::RunConfig& config,
                               const step::RunLearningRate& learning_rate) {
  const std::map<std::string, config::OptionValue> now = settings_of(config);
  std::set<std::string> other_plugins;  // slots whose options cannot be compared: "partitioner."
  for (const auto& [key, value] : now)
    if (const std::string* const then = saved.setting(key);
        key.ends_with(".plugin") && (then == nullptr || !config::means(*then, value)))
      other_plugins.insert(key.substr(0, key.size() - std::string_view("plugin").size()));
  std::string text;
  const auto add = [&](const std::string& key, const std::string& then, const std::string& value) {
    const config::Affects affects = config::effect_of(key).affects;
    if (affects != config::Affects::Numbers && affects != config::Affects::Samples) return;
    if (std::ranges::any_of(other_plugins, [&](const std::string& slot) {
          return key.starts_with(slot) && key != slot + "plugin" &&
                 key.find('.', slot.size()) != std::string::npos;  // SLOT.PLUGIN.OPTION
        }))
      return;
    if (key != "train.steps") text += (text.empty() ? "" : ", ") + key + ": " + then + " -> " + value;
  };
  for (const auto& [key, then] : saved.config) {
    const auto value = now.find(key);
    if (value == now.end())
      add(key, then, "not set");
    else if (!config::means(then, value->second))
      add(key, then, config::to_text(value->second));
  }
  for (const auto& [key, value] : now)
    if (saved.setting(key) == nullptr) add(key, "not set", config::to_text(value));
  const std::string* const steps = saved.setting("train.steps");  // what the learning rate's fall is measured by
  if (steps != nullptr && *steps != std::to_string(config.train.steps) &&
      !learning_rate.same_over(whole_number(*steps)))
    text += format("{}train.steps: {} -> {}", text.empty() ? "" : ", ", *steps, config.train.steps);
  return text;
}

void check_model(const TrainingCheckpoint& saved, const std::vector<LayerInfo>& layers) {
  const std::vector<SavedParameter> expected = saved_parameters(layers);
  std::map<std::string, const SavedParameter*> there;
  for (const SavedParameter& parameter : saved.parameters) there[parameter.name] = &parameter;
  const std::string advice =
      "; it was saved from another model: use the model and settings of that run (strata checkpoint info)";
  for (const SavedParameter& parameter : expected) {
    const auto found = there.find(parameter.name);
    if (found == there.end()) throw UserError("{}: holds no parameter {}{}", folder_of(saved), parameter.name, advice);
    if (found->second->shape != parameter.shape)
      throw UserError("{}: holds {} of shape {}, and this model's is {}{}", folder_of(saved), parameter.name,
                      format_shape(found->second->shape), format_shape(parameter.shape), advice);
    there.erase(found);
  }
  if (!there.empty())
    throw UserError("{}: holds a parameter {}, which this model does not have{}", folder_of(saved),
                    there.begin()->first, advice);
}

namespace {

// The checkpoint's replica groups that trained by themselves: whether there were any, and how many have
// something of their own in it.
struct SavedGroups {
  bool any = false;
  int number = 0;
};

SavedGroups saved_groups(const std::vector<std::string>& states) {
  SavedGroups found{std::ranges::find(states, outer_momentum) != states.end()};
  const auto has_own = [&](int group) {
    return std::ranges::any_of(states,
                               [&](const std::string& state) { return state.ends_with(name_of_group("", group)); });
  };
  while (found.any && has_own(found.number)) ++found.number;
  return found;
}

// `states`: of a trained parameter.
void check_groups(const TrainingCheckpoint& saved, const std::vector<std::string>& states, const stage::Stage& stage) {
  const SavedGroups then = saved_groups(states);
  const int now = stage.updates.local() ? stage.updates.local()->groups() : 0;
  if (then.any == stage.updates.local().has_value() && (then.number == 0 || then.number == now)) return;
  const auto text = [](bool any, int groups) {
    return !any          ? std::string("one optimizer state for all ranks")
           : groups == 0 ? "the weights of groups of ranks that train independently"
                         : "state of each of " + std::to_string(groups) + " groups of ranks that train independently";
  };
  throw UserError(
      "{}: holds {}, and with its step_policy and partitioner this run has {}; resume with those of the run that saved "
      "it, or start anew from exported weights (strata checkpoint export, model.init)",
      folder_of(saved), text(then.any, then.number), text(stage.updates.local().has_value(), now));
}

// The states of an entry, and as what they are saved.
std::map<std::string, at::ScalarType> expected_states(const state::OptimizerState::Entry& entry, bool pending,
                                                      const std::vector<std::string>& there,
                                                      const stage::Stage& stage) {
  std::map<std::string, at::ScalarType> expected{{master_state, stage.values.buffers().dtype(entry.weights())}};
  for (const StateTensor& tensor : entry.states)
    for (const std::string& name : saved_names(tensor.name, stage.updates.local())) expected[name] = tensor.dtype;
  if (pending && entry.trainable)
    expected[state::OptimizerState::kept_gradient] = stage.values.buffers().dtype(entry.kept);
  if (!stage.updates.local() || !entry.trainable) return expected;
  expected[outer_momentum] = at::kFloat;
  for (const std::string& name : saved_names(master_state, stage.updates.local()))
    if (std::ranges::find(there, name) != there.end()) expected[name] = stage.values.buffers().dtype(entry.master);
  return expected;
}

}  // namespace

void check_optimizer_state(const TrainingCheckpoint& saved, const RangeSource& source, const stage::Stage& stage) {
  for (const state::OptimizerState::Entry& entry : stage.updates.state().entries()) {
    const std::string& parameter = entry.piece.info.parameter;
    const std::vector<std::string> there = source.states(parameter);
    if (entry.trainable) check_groups(saved, there, stage);
    const std::map<std::string, at::ScalarType> expected =
        expected_states(entry, saved.pending.has_value(), there, stage);
    std::vector<std::string> names;
    for (const auto& [name, dtype] : expected) names.push_back(name);
    const auto list = [](const std::vector<std::string>& all) { return text::first_of(all, all.size()); };
    if (there != names)
      throw UserError(
          "{}: holds {} of {}, and {} needs {} here; resume with the optimizer and the frozen parameters of the run "
          "that saved it",
          folder_of(saved), list(there), parameter, stage.plugins.optimizer.name, list(names));
    for (const StateTensor& tensor : entry.states) {
      const std::int64_t needed = tensor.elements(PieceInfo::whole(entry.span->info));
      const std::int64_t held = source.elements(parameter, saved_names(tensor.name, stage.updates.local()).front());
      if (held != needed)
        throw UserError(
            "{}: holds {} elements of the {} of {}, and {} needs {}; resume with the optimizer of the run that saved "
            "it",
            folder_of(saved), held, tensor.name, parameter, stage.plugins.optimizer.name, needed);
    }
    for (const auto& [name, dtype] : expected)
      if (source.dtype(parameter, name) != dtype)
        throw UserError(
            "{}: holds the {} of {} in {}, and this run keeps it in {}; resume with the precision and the optimizer's "
            "options of the run that saved it",
            folder_of(saved), name, parameter, c10::toString(source.dtype(parameter, name)), c10::toString(dtype));
  }
}

}  // namespace strata::checkpoint
