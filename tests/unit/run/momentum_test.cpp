// A momentum that the learning rate's schedule gives: it reaches the optimizer, and a resumed run goes on with it.
#include <strata/engine.hpp>

#include "program.hpp"

namespace strata {
namespace {

const std::vector<std::string> cycle{"learning_rate.plugin=one_cycle", "learning_rate.one_cycle.cycle_min_lr=0.01",
                                     "learning_rate.one_cycle.cycle_first_step_size=3"};

std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

std::vector<double> losses_of(Engine& engine, unsigned begin, unsigned end) {
  std::vector<double> losses;
  for (unsigned step = begin; step < end; ++step) losses.push_back(engine.train_batch(random_batches(step)).loss);
  return losses;
}

}  // namespace

TEST_CASE("a cycled momentum changes the training and resumes bit by bit") {
  const std::string optimizer = GENERATE("optimizer={plugin: adamw}", "optimizer={plugin: sgd, sgd: {momentum: 0.9}}");
  CAPTURE(optimizer);
  const Config config;
  const std::vector<std::string> own = with(cycle, {optimizer});
  const std::vector<std::string> cycled =
      with(own, {"learning_rate.one_cycle.cycle_momentum=true", "learning_rate.one_cycle.cycle_min_mom=0.3"});
  Engine plain = initialize(small_model(), config.file(), own);
  Engine whole = initialize(small_model(), config.file(), cycled);
  const std::vector<double> expected = losses_of(whole, 0, 8);
  const std::vector<double> without = losses_of(plain, 0, 8);
  CHECK(expected.front() == without.front());  // before any update
  CHECK(expected.back() != without.back());

  Engine first = initialize(small_model(), config.file(), with(cycled, {"checkpoint.path=" + (config / "saved")}));
  losses_of(first, 0, 4);
  const std::string folder = first.save_checkpoint();
  Engine second = initialize(small_model(), config.file(), cycled);
  REQUIRE(second.resume(folder));
  CHECK(losses_of(second, 4, 8) == std::vector<double>(expected.begin() + 4, expected.end()));
}

TEST_CASE("a momentum for an optimizer without one is refused before the first step") {
  const Config config;
  const std::string text = error_of<UserError>([&] {
    initialize(small_model(), config.file(),
               with(cycle, {"learning_rate.one_cycle.cycle_momentum=true", "optimizer.plugin=sgd"}));
  });
  CHECK_THAT(text, Contains("learning_rate/one_cycle gives every update a momentum") &&
                       Contains("optimizer/sgd takes none with these options"));
}

}  // namespace strata
