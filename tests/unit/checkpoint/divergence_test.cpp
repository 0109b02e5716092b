// A run that diverges: whichever step poisons the weights, and however often and many checkpoints are kept, one is left
// whose weights give a finite loss, and `latest` and a resumed run take it.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "checkpoint/checkpoint_folder.hpp"
#include "run/training.hpp"
#include "unit/run/ranks.hpp"

using namespace strata;

namespace {

struct Case {
  int every = 1, keep = 1, poison = 1;  // the step that makes the weights huge or, soon, infinite
  int more = 1;                         // steps from that one on
  std::string rate = "1e38";            // 1e20: weights that stay finite, and of no use
};

class Diverging {
 public:
  explicit Diverging(const Case& one) : case_(one) {}

  std::string folder() const { return config_ / "checkpoints"; }

  // Trains up to `steps`, resumed if there is something; what it throws.
  std::string train(int steps, const std::string& rate) const {
    std::string error;
    try {
      on_engines(1, config_.file(), settings(steps, rate), [&](const LocalRank& rank) {
        if (!rank.engine.resume()) rank.run.fill();
        run::train(rank.run, {});
      });
    } catch (const EnvironmentError& ended) {
      error = ended.what();
    }
    return error;
  }

  // The loss of what a resumed run begins with.
  double resumed_loss() const {
    double loss = NAN;
    on_engines(1, config_.file(), settings(100, "0.05"), [&](const LocalRank& rank) {
      if (rank.engine.resume()) loss = rank.engine.evaluate({random_batch(1)});
    });
    return loss;
  }

 private:
  std::vector<std::string> settings(int steps, const std::string& rate) const {
    return {config_.data(),
            "checkpoint.path=" + folder(),
            "checkpoint.every=" + std::to_string(case_.every),
            "checkpoint.keep=" + std::to_string(case_.keep),
            "train.steps=" + std::to_string(steps),
            "precision.fp32.max_consecutive_skips=4",
            "learning_rate.base=" + rate};
  }

  Case case_;
  Config config_;
};

// Drawn by default, all where whole products are asked for.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int every = 1; every <= 4; ++every)
    for (int keep = 0; keep <= 3; ++keep)
      for (int poison = every; poison <= every + 8; ++poison)
        for (const int more : {1, 3, 12})
          for (const char* const rate : {"1e38", "1e20"}) all.push_back({every, keep, poison, more, rate});
  if (std::getenv("STRATA_WHOLE_PRODUCTS") != nullptr) return all;
  std::mt19937 draw(std::random_device{}());
  std::shuffle(all.begin(), all.end(), draw);
  all.resize(8);
  all.push_back({1, 1, 5, 1, "1e38"});  // the last step alone
  all.push_back({1, 1, 5, 3, "1e20"});
  return all;
}

}  // namespace

TEST_CASE("a diverged run leaves a checkpoint whose loss is finite") {
  for (const Case& one : cases()) {
    CAPTURE(one.every, one.keep, one.poison, one.rate, one.more);
    const Diverging run(one);
    REQUIRE(run.train(one.poison, "0.05").empty());
    run.train(one.poison + one.more, one.rate);
    CHECK(std::isfinite(run.resumed_loss()));
    CHECK(checkpoint::read_latest(run.folder()).is_finite());
    const checkpoint::CheckpointFolder folder(run.folder());
    std::int64_t finite = 0;
    for (const std::int64_t step : folder.steps())
      finite += checkpoint::TrainingCheckpoint::read(folder.of_step(step)).is_finite() ? 1 : 0;
    CHECK(finite >= 1);
    if (one.keep > 0) CHECK(finite <= std::max(one.keep, 1));
  }
}

TEST_CASE("a folder without a finite checkpoint is resumed only from a named checkpoint") {
  const Diverging run({1, 3, 0});
  run.train(3, "1e38");
  const checkpoint::CheckpointFolder folder(run.folder());
  REQUIRE_FALSE(folder.steps().empty());
  std::string error;
  try {
    run.resumed_loss();
  } catch (const UserError& refused) {
    error = refused.what();
  }
  CHECK_THAT(error, Contains("not finite") && Contains("--resume " + run.folder()));
}
