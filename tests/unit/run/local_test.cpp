// `step_policy: local`: groups of ranks train by themselves, and now and then take a step by the average of their
// weights. Compared with trainings that know nothing of each other, between which the outer step is made here.
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <barrier>
#include <cmath>

#include "local_training_runs.hpp"
#include "plan/dry_run.hpp"

namespace local_training {
namespace {

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
  std::vector<resolve::ResolvedRun> programs;
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
    const stage::MakeGroups make = [&](const config::RunConfig&, const plugins::PluginRegistry&, stage::PluginSet&) {
      return std::make_unique<LocalProvider>(groups[static_cast<std::size_t>(place.group)], place.in_group);
    };
    auto implementation = std::make_unique<Engine::Implementation>(
        std::move(programs[static_cast<std::size_t>(rank)]),
        stage::RankNumbers{place.in_group, layout.per_group, place.in_group}, make);
    run::Run& run = implementation->run;
    Engine engine(std::move(implementation));
    stage::Stage& stage = run.session().stage();
    std::map<std::string, std::int64_t> before;  // elements of the model in front of a parameter
    std::int64_t elements = 0;
    for (const LayerInfo& layer : stage.layers.model())
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
    for (Entry& entry : stage.updates.state().entries()) {
      const std::lock_guard lock(mutex);
      stage.values.buffers().with(entry.master, memory::Access::Read, [&](const at::Tensor& values) {
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
      for (Entry& entry : stage.updates.state().entries()) {
        if (!entry.trainable) continue;
        const std::int64_t at = outer.steps * (fragment_of(entry) + 1) / outer.fragments;
        if ((step + 1) % outer.steps == at % outer.steps || step + 1 == 8) due.push_back(&entry);
      }
      for (const Entry* const entry : due) {
        const std::lock_guard lock(mutex);
        made[name_of(*entry)] = false;
        stage.values.buffers().with(entry->master, memory::Access::Read, [&](const at::Tensor& values) {
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
        stage.values.buffers().with(entry->master, memory::Access::Write,
                                    [&](const at::Tensor& values) { values.copy_(common[name]); });
        stage.updates.state().write_parameter(*entry);
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

void check_masters(const std::map<int, Tensors>& found, const std::map<int, Tensors>& expected, double bound) {
  for (const auto& [rank, tensors] : expected)
    for (const auto& [name, values] : tensors) {
      if (!name.ends_with(" master")) continue;
      CAPTURE(rank, name);
      CHECK((found.at(rank).at(name) - values).abs().max().item<double>() <= bound);
    }
}

// How far the master weights of all ranks are from the expected ones, over how far those have come since the first
// step.
double masters_apart(const Trained& found, const Trained& expected) {
  double apart = 0.0, moved = 0.0;
  for (const auto& [rank, tensors] : expected.states)
    for (const auto& [name, values] : tensors) {
      if (!name.ends_with(" master")) continue;
      const auto squares = [](const at::Tensor& difference) {
        return difference.to(at::kDouble).square().sum().item<double>();
      };
      apart += squares(found.states.at(rank).at(name).to(at::kDouble) - values.to(at::kDouble));
      moved += squares(values.to(at::kDouble) - expected.first_states.at(rank).at(name).to(at::kDouble));
    }
  return std::sqrt(apart / moved);
}

}  // namespace

TEST_CASE("groups that train by themselves compute separate trainings plus an outer step") {
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
    if (!bf16) {
      check_masters(found.states, expected.states, 1e-5);
      continue;
    }
    // In bf16 the two round sums of different orders. A run whose outer step is a tenth too small is further away.
    constexpr double roundings = 0.03;
    CHECK(masters_apart(found, expected) < roundings);
    if (outer.steps > 1) continue;
    Outer smaller = outer;
    smaller.rate *= 0.9;
    CHECK(masters_apart(simulated(config, layout, smaller, 8), expected) > roundings);
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

TEST_CASE("groups send the weights once in local.steps steps, as planned") {
  for (const Layout& layout : layouts()) {
    const Config config;
    const Trained summed = trained(config, layout, of_both(config, layout));
    for (const Outer& outer : {Outer{1}, Outer{4}, Outer{4, 2}}) {
      CAPTURE(layout.settings, outer.steps, outer.fragments);
      const std::vector<std::string> settings = of_run(config, layout, outer);
      const Trained found = trained(config, layout, settings);
      for (const auto& [rank, ledger] : found.ledgers) {
        CAPTURE(rank);
        const resolve::ResolvedRun resolved =
            read_program_config(nullptr, config.file(), settings, {}, {layout.ranks(), "the test"});
        const plan::DryRun planned = plan::dry_run(resolved.config, *resolved.registry, rank);
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

}  // namespace local_training
