// `step_policy: local`: groups of ranks train by themselves, and now and then take a step by the average of their
// weights. Compared with trainings that know nothing of each other, between which the outer step is made here.
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <map>
#include <sstream>

#include "dry_run/dry_run.hpp"
#include "far_memory.hpp"
#include "ranks.hpp"

using namespace strata;

namespace local_test {
namespace {

using Tensors = std::map<std::string, at::Tensor>;
using Entry = state::OptimizerState::Entry;

// How a run is laid out: groups of `per_group` ranks.
struct Layout {
  int groups = 2;
  int per_group = 1;
  int shards = 1;  // data-parallel ranks of a group
  std::vector<std::string> settings = {};
  int ranks() const { return groups * per_group; }
};

struct Outer {
  int steps = 3, fragments = 1;
  double rate = 0.7, momentum = 0.9;
};

std::vector<Layout> layouts() {
  return {{2, 1, 1, {}},
          {2, 2, 2, {"precision.plugin=bf16", "partitioner.hybrid.stage=1"}},
          {3, 2, 2, {"train.global_batch=36", "optimizer.plugin=sgd", "optimizer.sgd.momentum=0.9"}},
          {2, 2, 2, {"precision.plugin=bf16", "precision.bf16.master=bf16"}},
          {2, 2, 1, {"parallel.tensor=2", "model.tie_embeddings=true"}},
          {2, 2, 1, {"parallel.pipeline=2", "model.tie_embeddings=true"}},
          {2, 2, 2, {"optimizer.plugin=adamw_8bit", "parameters=[{match: '*bias*', trainable: false}]"}}};
}

std::vector<std::string> of_both(const Config& config, const Layout& layout) {
  std::vector<std::string> settings{config.data(),
                                    "model.plugin=gpt_neox",
                                    "model.hidden_size=16",
                                    "model.intermediate_size=32",
                                    "model.layers=2",
                                    "model.heads=2",
                                    "model.vocabulary=31",
                                    "train.global_batch=24",
                                    "train.micro_batch=2",
                                    "train.accumulation=auto",
                                    "train.clip=0.3",
                                    "train.steps=8",
                                    "learning_rate.plugin=constant",
                                    "learning_rate.base=0.02",
                                    "learning_rate.warmup=2",
                                    "optimizer.adamw.epsilon=1e-3",
                                    "optimizer.adamw_8bit.epsilon=1e-3",
                                    "partitioner.plugin=hybrid",
                                    "partitioner.hybrid.shard_size=" + std::to_string(layout.shards)};
  settings.insert(settings.end(), layout.settings.begin(), layout.settings.end());
  return settings;
}

std::vector<std::string> of_run(const Config& config, const Layout& layout, const Outer& outer) {
  std::vector<std::string> settings = of_both(config, layout);
  const auto add = [&](const std::string& key, const auto& value) {
    std::ostringstream text;
    text << value;
    settings.push_back(key + "=" + text.str());
  };
  add("step_policy", "local");
  add("local.steps", outer.steps);
  add("local.rate", outer.rate);
  add("local.momentum", outer.momentum);
  add("local.fragments", outer.fragments);
  return settings;
}

Batch batch_of(unsigned seed) {
  Batch batch = random_batch(seed, seed % 3 == 0 ? 4 : 0);
  batch.tokens = batch.tokens.remainder(31);
  return batch;
}

// Of the step and the data-parallel rank of the run; some of the targets count for nothing.
std::vector<Batch> batches_of(const Engine& engine, std::int64_t step, int data_rank) {
  std::vector<Batch> batches;
  for (std::int64_t m = 0; m < engine.accumulation(); ++m)
    batches.push_back(batch_of(static_cast<unsigned>(step * 1000 + data_rank * 50 + m)));
  return batches;
}

struct Trained {
  std::vector<double> losses, norms, evaluated;
  std::map<int, Tensors> states;        // by rank: by parameter, begin and state
  std::map<int, Tensors> first_states;  // after the first step
  std::map<int, Ledger> ledgers;
  std::map<int, std::int64_t> sent;  // between groups
};

// A program's plugin that no config here chooses: the model is the config's.
std::vector<ProgramPlugin> far() {
  return {program_plugin<OffloadDevice, FarMemory, FarOptions>("far")};
}

Tensors states_of(runtime::Run& run) {
  const runtime::StageState& stage = run.session().stage();
  Tensors found;
  for (const Entry& entry : stage.optimizer_state->entries()) {
    const std::string name = entry.piece.info.parameter + " from " + std::to_string(entry.piece.info.begin) + " ";
    const auto keep = [&](const std::string& state, const BufferRange& range) {
      if (range.buffer == nullptr) return;
      stage.buffers->with(range, state::Access::Read,
                          [&](const at::Tensor& values) { found[name + state] = values.clone(); });
    };
    keep("master", entry.master);
    keep("common", entry.common);
    keep("outer momentum", entry.outer_momentum);
    for (std::size_t i = 0; i < entry.states.size(); ++i) keep(entry.states[i].name, entry.state[i]);
  }
  return found;
}

void check_same(const std::map<int, Tensors>& found, const std::map<int, Tensors>& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& [rank, tensors] : expected)
    for (const auto& [name, values] : tensors) {
      CAPTURE(rank, name);
      CHECK(at::equal(found.at(rank).at(name), values));
    }
}

void check_masters(const std::map<int, Tensors>& found, const std::map<int, Tensors>& expected, double bound) {
  for (const auto& [rank, tensors] : expected)
    for (const auto& [name, values] : tensors) {
      if (!name.ends_with(" master")) continue;
      CAPTURE(rank, name);
      CHECK((found.at(rank).at(name) - values).abs().max().item<double>() <= bound);
    }
}

struct What {
  int until = 8;
  bool evaluates = false;
  std::string resumes = {}, saves = {}, exports = {};
};

Trained trained(const Config& config, const Layout& layout, std::vector<std::string> settings, const What& what = {}) {
  Trained result;
  std::mutex mutex;
  if (!what.saves.empty()) settings.push_back("checkpoint.path=" + what.saves);
  const auto train = [&](const LocalRank& rank) {
    Trained mine;
    Tensors first;
    runtime::Session& session = rank.run.session();
    if (!what.resumes.empty()) rank.engine.resume(what.resumes);
    while (rank.engine.steps_done() < what.until) {
      const std::int64_t step = rank.engine.steps_done();
      const StepResult made = rank.engine.train_batch(batches_of(rank.engine, step, rank.engine.data_rank()));
      mine.losses.push_back(made.loss);
      mine.norms.push_back(made.gradient_norm);
      if (step == 0) first = states_of(rank.run);
      if (step == 3) session.store().reset_peaks();  // by then all slots are made
      if (what.evaluates) mine.evaluated.push_back(rank.engine.evaluate({batch_of(7)}));
    }
    if (what.evaluates && what.until == 0) mine.evaluated.push_back(rank.engine.evaluate({batch_of(7)}));
    if (!what.saves.empty()) rank.engine.save_checkpoint();
    if (!what.exports.empty()) rank.engine.export_weights(what.exports);
    const std::lock_guard lock(mutex);
    const int number = rank.engine.rank();
    result.losses = mine.losses;
    result.norms = mine.norms;
    result.evaluated = mine.evaluated;
    result.first_states[number] = first;
    result.states[number] = states_of(rank.run);
    result.ledgers[number] = session.store().ledger();
    if (const auto group = session.groups().find("partitioner.replicate"); group != session.groups().end())
      result.sent[number] = group->second->traffic().total_bytes();
  };
  on_engines(layout.ranks(), config.file(), settings, train, far());
  return result;
}

// A rank's place in its run: group ranks are those of the layout, stage by stage.
struct Place {
  int group = 0, in_group = 0, data_rank = 0;  // of the whole run
};

// The ranks of a run are numbered stage by stage, in a stage data-parallel rank by data-parallel rank, and last by
// tensor rank.
Place place_of(const Layout& layout, int rank) {
  const int inner = layout.per_group / layout.shards;  // stages or tensor ranks
  const bool stages = std::ranges::count(layout.settings, "parallel.pipeline=2") > 0;
  const int data = layout.groups * layout.shards;
  const int data_rank = stages ? rank % data : rank / inner;
  const int inside = stages ? rank / data : rank % inner;
  const int shard = data_rank % layout.shards;
  return {data_rank / layout.shards, stages ? inside * layout.shards + shard : shard * inner + inside, data_rank};
}

// The same by one training for each group, which are told nothing but what the outer step makes of their masters.
Trained simulated(const Config& config, const Layout& layout, const Outer& outer, int steps) {
  std::vector<std::string> settings = of_both(config, layout);
  const int global_batch = layout.groups == 3 ? 36 : 24;
  settings.push_back("train.global_batch=" + std::to_string(global_batch / layout.groups));
  std::vector<LocalGroups> groups(static_cast<std::size_t>(layout.groups));
  std::vector<runtime::ResolvedRun> programs;
  for (int rank = 0; rank < layout.ranks(); ++rank)
    programs.push_back(read_program_config(nullptr, config.file(), settings, {}, {layout.per_group, "the test"}));
  load_plugins(programs[0]);
  Trained result;
  std::mutex mutex;
  std::barrier<> all(layout.ranks());
  std::map<std::string, std::map<int, at::Tensor>> masters;  // by group
  std::map<std::string, at::Tensor> common, momentum;        // fp64
  std::map<std::string, bool> made;
  std::map<std::int64_t, std::map<int, std::pair<double, double>>> told;  // by step and group: loss sum, norm
  std::map<std::int64_t, std::map<int, double>> counted;
  const auto train = [&](int rank) {
    const Place place = place_of(layout, rank);
    const runtime::MakeGroups make = [&](const config::RunConfig&, const plugin_host::PluginRegistry&,
                                         runtime::PluginSet&) {
      return std::make_unique<LocalProvider>(groups[static_cast<std::size_t>(place.group)], place.in_group);
    };
    auto implementation = std::make_unique<Engine::Implementation>(
        std::move(programs[static_cast<std::size_t>(rank)]),
        runtime::RankNumbers{place.in_group, layout.per_group, place.in_group}, make);
    runtime::Run& run = implementation->run;
    Engine engine(std::move(implementation));
    runtime::StageState& stage = run.session().stage();
    std::map<std::string, std::int64_t> before;  // elements of the model in front of a parameter
    std::int64_t elements = 0;
    for (const LayerInfo& layer : stage.model_layers)
      for (const ParameterInfo& parameter : layer.parameters)
        if (before.emplace(parameter.tie.empty() ? parameter.name : parameter.tie, elements).second)
          elements += parameter.elements();
    const auto fragment_of = [&](const Entry& entry) {
      const ParameterInfo& first = entry.flat->info().parameters.front().info;
      return before.at(first.tie.empty() ? first.name : first.tie) * outer.fragments / elements;
    };
    const auto name_of = [&](const Entry& entry) {  // the same in all groups
      return std::to_string(place.in_group) + " " + entry.piece.info.parameter + " from " +
             std::to_string(entry.piece.info.begin);
    };
    for (Entry& entry : stage.optimizer_state->entries()) {
      const std::lock_guard lock(mutex);
      stage.buffers->with(entry.master, state::Access::Read, [&](const at::Tensor& values) {
        common[name_of(entry)] = values.to(at::kDouble).clone();
        momentum[name_of(entry)] = at::zeros_like(common[name_of(entry)]);
      });
    }
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::vector<Batch> batches = batches_of(engine, step, place.data_rank);
      const StepResult found = engine.train_batch(batches);
      {
        const std::lock_guard lock(mutex);
        told[step][place.group] = {found.loss, found.gradient_norm};
        std::int64_t tokens = 0;
        for (const Batch& batch : batches) tokens += batch.targets.ne(-100).sum().item<std::int64_t>();
        if (place.in_group % (layout.per_group / layout.shards) == 0 || layout.per_group == layout.shards)
          counted[step][place.group] += static_cast<double>(tokens);
        if (step == 0) result.first_states[rank] = states_of(run);
      }
      std::vector<Entry*> due;
      for (Entry& entry : stage.optimizer_state->entries()) {
        if (!entry.trainable) continue;
        const std::int64_t at = outer.steps * (fragment_of(entry) + 1) / outer.fragments;
        if ((step + 1) % outer.steps == at % outer.steps || step + 1 == 8) due.push_back(&entry);
      }
      for (const Entry* const entry : due) {
        const std::lock_guard lock(mutex);
        made[name_of(*entry)] = false;
        stage.buffers->with(entry->master, state::Access::Read, [&](const at::Tensor& values) {
          masters[name_of(*entry)][place.group] = values.to(at::kDouble).clone();
        });
      }
      all.arrive_and_wait();
      for (const Entry* const entry : due) {
        const std::lock_guard lock(mutex);
        const std::string name = name_of(*entry);
        if (!std::exchange(made[name], true)) {
          at::Tensor average = at::zeros_like(common[name]);
          for (const auto& [group, values] : masters[name]) average += values / layout.groups;
          const at::Tensor gradient = common[name] - average;
          momentum[name] = outer.momentum * momentum[name] + gradient;
          common[name] = common[name] - outer.rate * (gradient + outer.momentum * momentum[name]);
        }
        stage.buffers->with(entry->master, state::Access::Write,
                            [&](const at::Tensor& values) { values.copy_(common[name]); });
        stage.optimizer_state->write_parameter(*entry);
      }
      run.session().publish_values();
      all.arrive_and_wait();
    }
    const std::lock_guard lock(mutex);
    result.states[rank] = states_of(run);
  };
  in_threads(layout.ranks(), [&](int rank) {
    try {
      train(rank);
    } catch (...) {
      all.arrive_and_drop();
      throw;
    }
  });
  for (const auto& [step, of_groups] : told) {
    double loss = 0.0, squares = 0.0, tokens = 0.0;
    for (const auto& [group, numbers] : of_groups) {
      loss += numbers.first * counted[step][group];
      tokens += counted[step][group];
      squares += numbers.second * numbers.second / layout.groups;
    }
    result.losses.push_back(loss / tokens);
    result.norms.push_back(std::sqrt(squares));
  }
  return result;
}

void check_near(const std::vector<double>& found, const std::vector<double>& expected, double bound) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(found[i] - expected[i]) <= bound * std::abs(expected[i]));
  }
}

}  // namespace

TEST_CASE("groups that train by themselves compute what as many trainings and an outer step written by hand do") {
  const Outer outer = GENERATE(Outer{}, Outer{.steps = 4, .fragments = 2}, Outer{1, 1, 1.0, 0.0});
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.ranks(), layout.settings, outer.steps, outer.fragments);
    const Config config;
    const Trained found = trained(config, layout, of_run(config, layout, outer));
    const Trained expected = simulated(config, layout, outer, 8);
    const bool bf16 = std::ranges::count(layout.settings, "precision.plugin=bf16") > 0;
    check_near(found.losses, expected.losses, bf16 ? 1e-2 : 1e-5);
    check_near(found.norms, expected.norms, bf16 ? 5e-2 : 1e-4);
    if (outer.steps > 1 && layout.groups == 2) check_same(found.first_states, expected.first_states);  // bit by bit
    if (!bf16) check_masters(found.states, expected.states, 1e-5);
  }
}

TEST_CASE("after every step, without momentum and at rate 1, all groups have the mean of their weights") {
  const Layout layout{2, 2, 2, {}};
  const Config config;
  const Trained found = trained(config, layout, of_run(config, layout, {1, 1, 1.0, 0.0}), {.until = 1});
  std::vector<std::string> apart = of_run(config, layout, {50, 1, 1.0, 0.0});
  const Trained alone = trained(config, layout, apart, {.until = 1});
  int different = 0;
  for (int rank = 0; rank < 4; ++rank)
    for (const auto& [name, values] : found.states.at(rank)) {
      if (!name.ends_with(" master")) continue;
      const at::Tensor mean = (alone.states.at(rank).at(name) + alone.states.at((rank + 2) % 4).at(name)) / 2;
      CAPTURE(rank, name);
      CHECK((values - mean).abs().max().item<double>() <= 2e-7);
      CHECK(at::equal(values, found.states.at((rank + 2) % 4).at(name)));
      different += at::equal(alone.states.at(rank).at(name), alone.states.at((rank + 2) % 4).at(name)) ? 0 : 1;
    }
  CHECK(different > 0);
}

TEST_CASE("a local run resumes bit by bit, from a step after which weights were averaged and from one between") {
  for (const Outer& outer : {Outer{}, Outer{.steps = 4, .fragments = 2}})
    for (const Layout& layout : layouts()) {
      const Config config;
      const std::vector<std::string> settings = of_run(config, layout, outer);
      const Trained whole = trained(config, layout, settings);
      for (const int at : {3, 4, 5}) {
        CAPTURE(layout.settings, outer.fragments, at);
        const std::string folder = config / ("saved" + std::to_string(at));
        trained(config, layout, settings, {.until = at, .saves = folder});
        const Trained rest = trained(config, layout, settings, {.resumes = folder + "/step-" + std::to_string(at)});
        CHECK(rest.losses == std::vector<double>(whole.losses.begin() + at, whole.losses.end()));
        check_same(rest.states, whole.states);
      }
    }
}

TEST_CASE("evaluations and exports have the weights that groups had in common last, and the training goes on") {
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.settings);
    const Config config;
    const std::vector<std::string> settings = of_run(config, layout, {});
    const std::string folder = config / "exported";
    const Trained plain = trained(config, layout, settings, {.until = 5});
    const Trained evaluated = trained(config, layout, settings, {.until = 5, .evaluates = true, .exports = folder});
    CHECK(evaluated.losses == plain.losses);
    check_same(evaluated.states, plain.states);
    CHECK(evaluated.evaluated[3] == evaluated.evaluated[2]);  // averaged after steps 3 and 6
    CHECK(evaluated.evaluated[2] != evaluated.evaluated[1]);
    std::vector<std::string> anew = settings;
    anew.push_back("model.init=" + folder);
    CHECK(trained(config, layout, anew, {.until = 0, .evaluates = true}).evaluated.front() ==
          evaluated.evaluated.back());
  }
}

TEST_CASE("groups send the weights once in local.steps steps, as the plan says, which counts what they keep") {
  for (const Layout& layout : layouts()) {
    const Config config;
    for (const Outer& outer : {Outer{1}, Outer{4}, Outer{4, 2}}) {
      CAPTURE(layout.settings, outer.steps, outer.fragments);
      const std::vector<std::string> settings = of_run(config, layout, outer);
      const Trained found = trained(config, layout, settings);
      const Trained summed = trained(config, layout, of_both(config, layout));
      for (const auto& [rank, ledger] : found.ledgers) {
        CAPTURE(rank);
        const runtime::ResolvedRun resolved =
            read_program_config(nullptr, config.file(), settings, {}, {layout.ranks(), "the test"});
        const runtime::DryRun planned = runtime::dry_run(resolved.config, *resolved.registry, rank);
        CHECK(planned.ledger.peak == ledger.peak);
        CHECK(planned.ledger.total_peak == ledger.total_peak);
        // The last step is one after which all fragments are averaged, whatever was due.
        const std::int64_t rounds = 8 / outer.steps;
        CHECK(found.sent.at(rank) <= planned.averages.total_bytes() * (rounds + (outer.fragments > 1 ? 1 : 0)));
        CHECK(found.sent.at(rank) >= planned.averages.total_bytes() * rounds);
        if (outer.fragments > 1) continue;
        CHECK(found.sent.at(rank) == planned.averages.total_bytes() * rounds);
        if (layout.settings.empty()) CHECK(found.sent.at(rank) * outer.steps == summed.sent.at(rank));
      }
    }
  }
}

TEST_CASE("a checkpoint of groups that train by themselves is refused by another number of them, and by none") {
  const Config config;
  const Layout four{4, 1, 1, {}}, two{2, 2, 2, {}};
  for (const int at : {3, 4}) {
    const std::string folder = config / ("saved" + std::to_string(at));
    trained(config, two, of_run(config, two, {}), {.until = at, .saves = folder});
    const What what{.resumes = folder + "/step-" + std::to_string(at)};
    CHECK_THAT(error_of([&] { trained(config, four, of_run(config, four, {}), what); }),
               Contains("holds what each of 2 groups of ranks has that train by themselves") &&
                   Contains("this run has what each of 4 groups"));
    CHECK_THAT(error_of([&] { trained(config, two, of_both(config, two), what); }),
               Contains("this run has one optimizer state for all ranks") && Contains("strata checkpoint export"));
  }
  trained(config, two, of_both(config, two), {.until = 2, .saves = config / "plain"});
  CHECK_THAT(error_of([&] { trained(config, two, of_run(config, two, {}), {.resumes = config / "plain/step-2"}); }),
             Contains("holds one optimizer state for all ranks"));
}

TEST_CASE("what cannot be combined with local training is refused, with the rule and what to do") {
  const Config config;
  const Layout two{2, 1, 1, {}};
  const auto said = [&](const std::vector<std::string>& more, const Outer& outer) {
    std::vector<std::string> settings = of_run(config, two, outer);
    settings.insert(settings.end(), more.begin(), more.end());
    return error_of([&] { trained(config, two, settings, {.until = 1}); });
  };
  const auto refused = [&](const std::vector<std::string>& more, const std::string& found, const std::string& rule,
                           const std::string& remedy, const Outer& outer = {}) {
    CHECK_THAT(said(more, outer), Contains("step_policy is local, and " + found) && Contains(rule) &&
                                      Contains(remedy + ", or set step_policy: plain"));
  };
  refused({"partitioner.plugin=zero1"}, "with its options partitioner/zero1 has no ranks that own the same slices",
          "a group of ranks that hold all slices once", "replicates across them");
  refused({"partitioner.hybrid.secondary_shard=true"}, "with its options partitioner/hybrid has no ranks", "", "");
  refused({"partitioner.hybrid.shard_size=2"}, "partitioner/hybrid makes one group of the 2 data-parallel ranks",
          "two groups or more", "make the groups smaller or take more ranks");
  refused({"optimizer.plugin=lamb"}, "optimizer/lamb needs sums over the ranks of a stage", "several groups",
          "choose an optimizer that updates each piece by itself");
  refused({"optimizer.plugin=schedule_free"}, "optimizer/schedule_free trains at other weights than its masters",
          "what is averaged", "choose an optimizer that trains at its masters");
  refused({"offload.optimizer.plugin=cpu"}, "offload.optimizer is set", "averaged on the device",
          "leave offload.optimizer out");
  refused({}, "local.fragments is 4 and local.steps 3", "each fragment is averaged at a step of its own",
          "set local.fragments to at most local.steps", {.steps = 3, .fragments = 4});
  refused({}, "local.fragments is 5 and the model has 4 layers", "fragments are made of layers", "at most that number",
          {.steps = 9, .fragments = 5});
  CHECK_THAT(said({"scheduler.plugin=pipedream", "partitioner.hybrid.stage=1", "train.clip=0"}, {}),
             Contains("step_policy is not plain"));
  CHECK_THAT(said({"offload=auto"}, {}), Contains("offload is automatic, and step_policy is local"));
}

}  // namespace local_test
