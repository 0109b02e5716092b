// What is refused, and how it is said.
#include <strata/error.hpp>
#include <strata/optimizer.hpp>

#include <filesystem>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "error_of.hpp"
#include "run.hpp"

namespace strata {
namespace {

class WithoutMomentum final : public Optimizer {
 public:
  std::vector<StateTensor> state(const PieceInfo&) const override { return {}; }
  void step(std::span<Piece* const>, int, const StepScalars&) override {}
};

class Odd final : public LearningRate {
 public:
  Odd(double rate, std::optional<double> momentum) : rate_(rate), momentum_(momentum) {}
  double rate(std::int64_t, const TrainingRun&) const override { return rate_; }
  std::optional<double> momentum(std::int64_t, const TrainingRun&) const override { return momentum_; }

 private:
  double rate_;
  std::optional<double> momentum_;
};

std::string refusal(const std::string& name, const fakes::OptionTexts& options, const RunSettings& run = {}) {
  return error_of<UserError>([&] { learning_rate_of(name, options, run).check(); });
}

}  // namespace

TEST_CASE("a schedule without the base that it needs is refused where the config names it") {
  CHECK_THAT(refusal("cosine", {}, {100, 0, {}}), Contains("c.yaml:4") && Contains("learning_rate/cosine: ") &&
                                                      Contains("learning_rate.base must be given"));
  CHECK(refusal("warmup_lr", {{"warmup_max_lr", "1"}}, {100, 0, {}}) == "");
  CHECK_THAT(refusal("warmup_lr", {}, {100, 0, {}}), Contains("learning_rate.base must be given"));
}

TEST_CASE("a base changes the rates of every schedule, or is refused") {
  const std::string begin = "libstrata_learning_rate_";
  int schedules = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PLUGIN_FOLDER)) {
    const std::string file = entry.path().stem().string();
    if (!file.starts_with(begin)) continue;
    const std::string name = file.substr(begin.size());
    std::vector<fakes::OptionTexts> options{{}};
    for (const char* const option : {"cycle_max_lr", "warmup_max_lr"})  // those that replace the base
      if (fakes::PluginLibrary(entry.path().string()).values().contains(option)) options.push_back({{option, "0.02"}});
    for (const fakes::OptionTexts& own : options) {
      const std::string said = refusal(name, own, {100, 0, 1e-3});
      CAPTURE(name, own.size(), said);
      if (said.empty()) {
        const auto one = learning_rate_of(name, own, {100, 0, 1e-3}),
                   other = learning_rate_of(name, own, {100, 0, 2e-3});
        bool acts = false;
        for (int update = 0; update < 100; ++update) acts = acts || one.rate(update) != other.rate(update);
        CHECK(acts);
      } else {
        CHECK_THAT(said, Contains("c.yaml:4") && Contains("learning_rate.base has no effect: learning_rate/" + name));
        CHECK(refusal(name, own, {100, 0, {}}) == "");
      }
    }
    ++schedules;
  }
  CHECK(schedules >= 9);
  CHECK_THAT(refusal("one_cycle", {{"cycle_max_lr", "0.02"}}), Contains("learning_rate.base has no effect"));
}

TEST_CASE("a base rate is accepted with rules that have rates of their own") {
  config::RunConfig config = config_of("warmup_lr", {{"warmup_max_lr", "0.02"}}, {});
  config.parameters.push_back({.learning_rate_factor = 2.0});
  step::RunLearningRate(config, *plugins::open_registry("")).check();
}

TEST_CASE("impossible settings of a schedule are refused with the value and the rule") {
  CHECK_THAT(refusal("wsd", {{"decay_steps", "91"}}, {100, 10}),
             Contains("c.yaml:4") && Contains("decay_steps is 91") && Contains("leaves 90"));
  CHECK(refusal("wsd", {{"decay_steps", "90"}}, {100, 10}) == "");
  CHECK_THAT(refusal("one_cycle", {{"cycle_max_lr", "-0.5"}}), Contains("cycle_max_lr") && Contains("-1, 0"));
  CHECK_THAT(refusal("warmup_lr", {{"warmup_max_lr", "-0.5"}}), Contains("warmup_max_lr"));
  CHECK_THAT(refusal("one_cycle", {{"cycle_momentum", "true"}, {"cycle_max_mom", "1"}}), Contains("below 1"));
  for (const auto& [option, without] :
       {std::pair("cycle_min_mom", "cycle_momentum"), std::pair("cycle_max_mom", "cycle_momentum"),
        std::pair("decay_mom_rate", "cycle_momentum"), std::pair("decay_lr_rate", "decay_step_size"),
        std::pair("decay_step_size", "decay_lr_rate or decay_mom_rate")})
    CHECK_THAT(refusal("one_cycle", {{option, option == std::string("decay_step_size") ? "3" : "0.5"}}),
               Contains(option) && Contains("has no effect without " + std::string(without)));
  CHECK_THAT(refusal("one_cycle", {{"cycle_momentum", "true"},
                                   {"cycle_first_step_size", "5"},
                                   {"decay_step_size", "1"},
                                   {"decay_mom_rate", "0.1"}}),
             Contains("decay_mom_rate") && Contains("update 99"));
}

TEST_CASE("a momentum for an optimizer that takes none is refused with both names") {
  WithoutMomentum optimizer;
  const stage::NamedPlugin<Optimizer> named{&optimizer, "optimizer/plain"};
  learning_rate_of("cosine").check_momentum(named);
  const std::string text = error_of<UserError>([&] {
    learning_rate_of("one_cycle", {{"cycle_momentum", "true"}}).check_momentum(named);
  });
  CHECK_THAT(text, Contains("c.yaml:4") && Contains("learning_rate/one_cycle gives every update a momentum") &&
                       Contains("optimizer/plain takes none"));
}

TEST_CASE("a rate or a momentum that cannot be is the plugin's fault") {
  const config::RunConfig config = config_of("constant", {}, {100, 0, {}});
  const auto fault = [&](double rate, std::optional<double> momentum) {
    Odd odd(rate, momentum);
    return error_of<Bug>([&] { step::RunLearningRate({&odd, "learning_rate/odd"}, config).check(); });
  };
  CHECK(fault(0.0, 0.0) == "");
  CHECK_THAT(fault(-1e-9, {}), Contains("learning_rate/odd gives update 0 the learning rate"));
  CHECK_THAT(fault(std::numeric_limits<double>::quiet_NaN(), {}), Contains("finite"));
  CHECK_THAT(fault(std::numeric_limits<double>::infinity(), {}), Contains("finite"));
  CHECK_THAT(fault(1.0, 1.0), Contains("momentum 1") && Contains("below 1"));
  CHECK_THAT(fault(1.0, -0.1), Contains("at least 0"));
}

}  // namespace strata
