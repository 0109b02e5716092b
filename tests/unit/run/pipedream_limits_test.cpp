// Scheduler pipedream: what its copies of weights take, and what it cannot be combined with.
#include "piped_stack.hpp"
#include "plan/dry_run.hpp"

using namespace piped_stack;

TEST_CASE("the copies of weights are in the ledger, and the dry run counts them") {
  const Config config;
  for (const auto& [version, copies] :
       {std::pair{"stash", std::array{2, 1, 0}}, std::pair{"vertical", std::array{2, 2, 2}},
        std::pair{"2bw", std::array{1, 1, 1}}}) {
    const PipedLayout layout{3, 1, {}};
    const std::vector<std::string> settings = piped(layout, version, 0, "sgd");
    for (const auto& [rank, ledger] : run_of_stack(config, layout, settings).ledgers) {
      CAPTURE(version, rank);
      const auto held = [&, &counted = ledger](Category category) {
        return counted.now[static_cast<std::size_t>(category)][static_cast<std::size_t>(Tier::Device)];
      };
      // Every flat parameter of this model takes less than the pool's granule.
      const int layers = rank == 2 ? 2 : 1;
      CHECK(held(Category::Gathered) == 512 * layers * copies[static_cast<std::size_t>(rank)]);
      const resolve::ResolvedRun resolved =
          read_program_config(nullptr, config.file(), settings, stack(), {layout.ranks(), "the test"});
      const Ledger planned = plan::dry_run(resolved.config, *resolved.registry, rank).ledger;
      CHECK(planned.peak == ledger.peak);
      CHECK(planned.total_peak == ledger.total_peak);
    }
  }
}

TEST_CASE("limits of stages that update within the step are refused on all ranks") {
  const Config config;
  const PipedLayout layout{2, 1, {}};
  const auto said = [&](const std::vector<std::string>& more, const char* version = "stash") {
    std::vector<std::string> settings = piped(layout, version, 0, "sgd");
    settings.insert(settings.end(), more.begin(), more.end());
    return error_of<UserError>([&] { run_of_stack(config, layout, settings); });
  };
  CHECK_THAT(said({"train.clip=1"}),
             Contains("train.clip is 1, and scheduler/pipedream updates within the step: the norm of the whole "
                      "gradient is known only after the updates; set train.clip: 0"));
  CHECK_THAT(said({"step_policy=delayed"}),
             Contains("step_policy is not plain, and") && Contains("set step_policy: plain"));
  CHECK_THAT(said({"precision.plugin=fp16"}),
             Contains("precision/fp16 finds its loss scale by skipping steps that overflow") &&
                 Contains("a static loss scale"));
  CHECK_THAT(said({"partitioner.plugin=zero3"}),
             Contains("partitioner/zero3 releases parameters") && Contains("ZeRO stage 1 or 2"));
  CHECK_THAT(said({"model.plugin=tied_stack"}),
             Contains("the parameter embedding.weight is used by layers of several chunks, and scheduler/pipedream "
                      "updates within the step"));
  CHECK_THAT(said({"scheduler.pipedream.micro_batches_per_update=5"}),
             Contains("micro_batches_per_update is 5 and does not divide the 12 micro-batches of a step"));
  CHECK_THAT(said({"scheduler.pipedream.micro_batches_per_update=1"}, "2bw"),
             Contains("version is 2bw, which needs at least 2, the number of stages"));
  CHECK(said({"precision.plugin=fp16", "precision.fp16.loss_scale=64"}).empty());
}

TEST_CASE("pipedream ends a run whose targets are ignored, or whose gradient is not finite") {
  const Config config;
  const PipedLayout layout{1, 1, {}};
  const auto step = [&](Engine& engine, int ignored) {
    std::vector<Batch> batches;
    for (int k = 0; k < micro_batches_of_stack; ++k) batches.push_back(both_halves(0, k));
    if (ignored > 0) batches[3].targets.select(0, 0).fill_(-100);
    engine.train_batch(batches);
  };
  const auto trained_once = [&](std::vector<std::string> more, int ignored) {
    std::vector<std::string> settings = piped(layout, "stash", 1, "sgd");
    settings.insert(settings.end(), more.begin(), more.end());
    on_engines(
        1, config.file(), settings,
        [&](const LocalRank& rank) {
          for (int i = 0; i < 3; ++i) step(rank.engine, ignored);
        },
        stack());
  };
  CHECK_THAT(error_of<UserError>([&] { trained_once({}, 1); }),
             Contains("step 1: 5 of 240 targets are ignored, and scheduler/pipedream updates within the step"));
  CHECK_THAT(error_of<EnvironmentError>([&] {
               trained_once({"learning_rate.base=1e30", "learning_rate.warmup=0"}, 0);
             }),
             Contains("the gradient is not finite, and scheduler/pipedream has updated weights by it"));
}
