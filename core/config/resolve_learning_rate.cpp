#include "config/resolve_learning_rate.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "config/keys.hpp"

namespace strata::config {
namespace {

const std::map<std::string, Schedule> kSchedules{
    {"constant", Schedule::Constant},
    {"linear", Schedule::Linear},
    {"cosine", Schedule::Cosine},
    {"wsd", Schedule::Wsd},
    {"lr_range_test", Schedule::LrRangeTest},
    {"one_cycle", Schedule::OneCycle},
    {"warmup_lr", Schedule::WarmupLr},
    {"warmup_decay_lr", Schedule::WarmupDecayLr},
    {"warmup_cosine_lr", Schedule::WarmupCosineLr},
};

// Reads typed values of the section and lists them.
class Reader {
 public:
  Reader(const Node& tree, std::vector<Resolved>& listing) : tree_(tree), listing_(listing) {}

  template <typename Value>
  Value read(const std::string& name) {
    const Node& node = present(path(name));
    if (is_auto(node))
      throw UserError(node.place, path(name) + ": auto has no rule here; give the value (" + documentation(name) + ")");
    const OptionValue value = typed_option(node, find_key(path(name))->option, path(name));
    listing_.push_back({path(name), value, node.origin});
    return std::get<Value>(value);
  }

  // `derived` where the config says auto; `origin` says what that is.
  template <typename Value>
  Value read_or(const std::string& name, Value derived, const std::string& origin) {
    if (!is_automatic(name)) return read<Value>(name);
    listing_.push_back({path(name), derived, origin});
    return derived;
  }

  bool is_automatic(const std::string& name) const {
    const Node* node = find(tree_, path(name));
    return node == nullptr || is_auto(*node);
  }
  bool is_given(const std::string& name) const { return find(tree_, path(name)) != nullptr; }
  const Place& place(const std::string& name) const { return present(path(name)).place; }

  // The values of every other schedule's section: of the right type, and no more.
  void check_sections_but(const std::string& section) const {
    for (const Key& key : keys()) {
      const std::string& name = key.option.name;
      const Node* node = find(tree_, name);
      const bool in_section = name.starts_with(path("")) && name.find('.', path("").size()) != std::string::npos;
      if (!in_section || name.starts_with(path(section + ".")) || node == nullptr) continue;
      if (key.automatic.empty() || !is_auto(*node)) typed_option(*node, key.option, name);
    }
  }

 private:
  static std::string path(const std::string& name) { return "learning_rate." + name; }
  static const std::string& documentation(const std::string& name) {
    return find_key(path(name))->option.documentation;
  }
  const Node& present(const std::string& full) const {
    if (const Node* node = find(tree_, full)) return *node;
    throw UserError(tree_.place, full + " must be given: " + find_key(full)->option.documentation);
  }

  const Node& tree_;
  std::vector<Resolved>& listing_;
};

WarmupType warmup_type(Reader& reader, const std::string& section) {
  return reader.read<std::string>(section + ".warmup_type") == "linear" ? WarmupType::Linear : WarmupType::Log;
}

WarmupStableDecay read_wsd(Reader& reader, const LearningRate& rate) {
  WarmupStableDecay wsd;
  const std::int64_t room = std::max<std::int64_t>(rate.steps - rate.warmup, 1);
  const std::int64_t tenth = std::clamp<std::int64_t>(rate.steps / 10, 1, room);
  wsd.decay_steps = reader.read_or("wsd.decay_steps", tenth, "a tenth of train.steps");
  if (wsd.decay_steps > room)
    throw UserError(reader.place("wsd.decay_steps"),
                    "learning_rate.wsd.decay_steps is " + std::to_string(wsd.decay_steps) + "; after warmup " +
                        std::to_string(rate.warmup) + " train.steps " + std::to_string(rate.steps) + " leaves " +
                        std::to_string(room) + "; decay over fewer steps, or train longer");
  const std::string style = reader.read<std::string>("wsd.decay_style");
  wsd.decay_style = style == "cosine"        ? DecayStyle::Cosine
                    : style == "minus_sqrt"  ? DecayStyle::MinusSqrt
                    : style == "exponential" ? DecayStyle::Exponential
                                             : DecayStyle::Linear;
  return wsd;
}

RangeTest read_range_test(Reader& reader) {
  RangeTest test;
  test.min_lr = reader.read<double>("lr_range_test.lr_range_test_min_lr");
  test.step_size = reader.read<std::int64_t>("lr_range_test.lr_range_test_step_size");
  test.step_rate = reader.read<double>("lr_range_test.lr_range_test_step_rate");
  test.staircase = reader.read<bool>("lr_range_test.lr_range_test_staircase");
  return test;
}

OneCycle read_one_cycle(Reader& reader, const LearningRate& rate) {
  OneCycle cycle;
  cycle.min_lr = reader.read<double>("one_cycle.cycle_min_lr");
  cycle.max_lr = reader.read_or("one_cycle.cycle_max_lr", rate.base, "learning_rate.base");
  cycle.first_step_size = reader.read<std::int64_t>("one_cycle.cycle_first_step_size");
  cycle.second_step_size =
      reader.read_or("one_cycle.cycle_second_step_size", cycle.first_step_size, "cycle_first_step_size");
  cycle.first_stair_count = reader.read<std::int64_t>("one_cycle.cycle_first_stair_count");
  cycle.second_stair_count =
      reader.read_or("one_cycle.cycle_second_stair_count", cycle.first_stair_count, "cycle_first_stair_count");
  cycle.decay_step_size = reader.read<std::int64_t>("one_cycle.decay_step_size");
  cycle.decay_lr_rate = reader.read<double>("one_cycle.decay_lr_rate");
  if (reader.read<bool>("one_cycle.cycle_momentum"))
    throw UserError(reader.place("one_cycle.cycle_momentum"),
                    "learning_rate.one_cycle.cycle_momentum: true, and no optimizer here takes a momentum that changes "
                    "from step to step; set it to false (in a ds_config scheduler.params.cycle_momentum, whose default "
                    "is true), and the optimizer keeps its own");
  for (const char* name : {"cycle_min_mom", "cycle_max_mom", "decay_mom_rate"})  // of no effect without it
    reader.read<double>(std::string("one_cycle.") + name);
  return cycle;
}

Warmup read_warmup(Reader& reader, const std::string& section, const LearningRate& rate) {
  Warmup warmup;
  warmup.min_lr = reader.read<double>(section + ".warmup_min_lr");
  warmup.max_lr = reader.read_or(section + ".warmup_max_lr", rate.base, "learning_rate.base");
  warmup.num_steps = reader.read<std::int64_t>(section + ".warmup_num_steps");
  warmup.type = warmup_type(reader, section);
  if (rate.schedule == Schedule::WarmupDecayLr)
    warmup.total_num_steps = reader.read_or(section + ".total_num_steps", rate.steps, "train.steps");
  return warmup;
}

WarmupCosine read_warmup_cosine(Reader& reader, const LearningRate& rate) {
  WarmupCosine warmup;
  warmup.min_ratio = reader.read<double>("warmup_cosine_lr.warmup_min_ratio");
  warmup.num_steps = reader.read<std::int64_t>("warmup_cosine_lr.warmup_num_steps");
  warmup.type = warmup_type(reader, "warmup_cosine_lr");
  warmup.cos_min_ratio = reader.read<double>("warmup_cosine_lr.cos_min_ratio");
  warmup.total_num_steps = reader.read_or("warmup_cosine_lr.total_num_steps", rate.steps, "train.steps");
  return warmup;
}

// The key that takes its value from base when it is auto; empty when base always enters, "-" when it never does.
std::string key_beside_base(Schedule schedule) {
  switch (schedule) {
    case Schedule::LrRangeTest:
      return "-";
    case Schedule::OneCycle:
      return "one_cycle.cycle_max_lr";
    case Schedule::WarmupLr:
      return "warmup_lr.warmup_max_lr";
    case Schedule::WarmupDecayLr:
      return "warmup_decay_lr.warmup_max_lr";
    default:
      return "";
  }
}

bool reads_base(const Reader& reader, Schedule schedule) {
  const std::string beside = key_beside_base(schedule);
  return beside.empty() || (beside != "-" && reader.is_automatic(beside));
}

}  // namespace

LearningRate resolve_learning_rate(const Node& tree, std::int64_t steps, std::vector<Resolved>& listing) {
  Reader reader(tree, listing);
  LearningRate rate;
  rate.steps = steps;
  const std::string schedule = reader.read<std::string>("schedule");
  rate.schedule = kSchedules.at(schedule);
  if (reads_base(reader, rate.schedule) || reader.is_given("base")) rate.base = reader.read<double>("base");
  rate.warmup = reader.read<std::int64_t>("warmup");
  rate.final_ratio = reader.read<double>("final_ratio");
  switch (rate.schedule) {
    case Schedule::Constant:
    case Schedule::Linear:
    case Schedule::Cosine:
      break;
    case Schedule::Wsd:
      rate.wsd = read_wsd(reader, rate);
      break;
    case Schedule::LrRangeTest:
      rate.lr_range_test = read_range_test(reader);
      break;
    case Schedule::OneCycle:
      rate.one_cycle = read_one_cycle(reader, rate);
      break;
    case Schedule::WarmupLr:
    case Schedule::WarmupDecayLr:
      rate.warmup_lr = read_warmup(reader, schedule, rate);
      break;
    case Schedule::WarmupCosineLr:
      rate.warmup_cosine_lr = read_warmup_cosine(reader, rate);
      break;
  }
  reader.check_sections_but(schedule);
  return rate;
}

}  // namespace strata::config
