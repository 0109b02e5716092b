// What plugins are told when a run begins.
#include <strata/options.hpp>
#include <strata/run_context.hpp>

#include "plan/dry_run.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(AskingOptions)

struct Seen {
  std::vector<std::string> devices;  // by run that began
  bool worked_before = false;
} seen;

// Keeps a buffer from the beginning on, and asks for a slot in each step.
class Asking final : public Optimizer {
 public:
  Asking(PluginContext&, const AskingOptions&) {}
  void run_begins(RunContext& run) override {
    seen.devices.push_back(run.device().type());
    kept_ = run.store().allocate(Category::Optimizer, Tier::Device, "kept", 11, at::kFloat);
    slots_ = &run.slots();
  }
  std::vector<StateTensor> state(const PieceInfo&) const override {
    if (slots_ == nullptr) seen.worked_before = true;
    return {};
  }
  void step(std::span<Piece* const>, int, const StepScalars&) override {
    slots_->release(slots_->acquire(Category::Staging, 100));
  }

 private:
  at::Tensor kept_;
  SlotPool* slots_ = nullptr;
};

std::int64_t optimizer_bytes(const Ledger& ledger) {
  return ledger.peak[static_cast<std::size_t>(Category::Optimizer)][static_cast<std::size_t>(Tier::Device)];
}

}  // namespace

TEST_CASE("a plugin gets the run's device and memory first, and a dry run counts it") {
  const Config config;
  const std::vector<std::string> settings{config.data(), "optimizer.plugin=asking"};
  const auto plugins = [] {
    return std::vector<ProgramPlugin>{{PluginKind::Model,
                                       "small_one",
                                       [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); },
                                       {},
                                       {}},
                                      program_plugin<Optimizer, Asking, AskingOptions>("asking")};
  };
  std::vector<std::string> with_model = settings;
  with_model.push_back("model.plugin=small_one");
  seen = {};
  on_engines(
      1, config.file(), with_model,
      [](const LocalRank& rank) {
        rank.engine.train_batch(rank.engine.batches());
        CHECK(optimizer_bytes(rank.run.session().store().ledger()) == 11 * 4);
      },
      plugins());
  CHECK(seen.devices == std::vector<std::string>{"cpu"});
  const resolve::ResolvedRun resolved =
      read_program_config(nullptr, config.file(), with_model, plugins(), {1, "the test"});
  CHECK(optimizer_bytes(plan::dry_run(resolved.config, *resolved.registry, 0).ledger) == 11 * 4);
  CHECK(seen.devices == std::vector<std::string>{"cpu", "meta"});
  CHECK_FALSE(seen.worked_before);
}
