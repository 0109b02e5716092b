// Statistics of layers: each is one figure of the run, the same at any layout.
#include <strata/options.hpp>

#include <cmath>
#include <mutex>

#include "ranks.hpp"

using namespace strata;

namespace {

constexpr std::int64_t counted_layers = 6;

at::Tensor valid_of(const MicroBatch& batch) {
  return batch.targets.ne(-100);
}

// Reports how many tokens count, and the largest and the summed squares of its activations for them. Under a
// name of its own: the first sample of the step, which a step that begins ahead computes before the last one ended.
struct CountedHidden final : OneMatrix {
  CountedHidden(ModelContext& context, std::int64_t rows, std::int64_t columns, std::string own_name)
      : OneMatrix(context, rows, columns), own_name_(std::move(own_name)) {}
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    const at::Tensor y = input[0] + at::gelu(context_.linear(input[0], weight_));
    const at::Tensor counts = valid_of(batch).unsqueeze(-1).to(y.scalar_type());
    LayerOutput output{{y}};
    output.statistics = {{{"tokens", StatisticKind::Sum}, counts.sum()},
                         {{"largest", StatisticKind::Maximum}, (y * counts).amax()},
                         {{own_name_, StatisticKind::Maximum}, y.new_full({}, -static_cast<double>(batch.sample))},
                         {{"squares", StatisticKind::Sum}, (y * counts).square().sum()}};
    return output;
  }

 private:
  std::string own_name_;
};

struct CountedHead final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    LayerOutput output;
    const TokenLoss loss = linear_cross_entropy(input[0].flatten(0, 1), weight_.tensor, batch.targets.flatten(),
                                                {.largest_logit = true}, batch.loss_seed);
    output.loss_sum = loss.loss;
    output.statistics = {{{"tokens", StatisticKind::Sum}, valid_of(batch).sum().to(at::kFloat)},
                         {{"largest_logit", StatisticKind::Maximum}, loss.largest_logit}};
    return output;
  }
};

STRATA_NO_OPTIONS(CountedOptions)

struct Counted final : SequentialModel {
  Counted(PluginContext&, const CountedOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    for (int layer = 0; layer < counted_layers - 1; ++layer)
      add<CountedHidden>("hidden" + std::to_string(layer), width, width, "minus_first_sample_" + std::to_string(layer));
    add<CountedHead>("head", ::vocabulary, width);
  }
};

std::vector<ProgramPlugin> counted() {
  return {program_plugin<Model, Counted, CountedOptions>("counted", {Capability::SplittableBackward})};
}

struct StatisticsLayout {
  int ranks = 1;
  std::vector<std::string> settings;
};

struct FiguresOfRun {
  std::vector<stage::ForwardFigures> steps;  // of every rank, rank by rank
  stage::ForwardFigures validation;          // of rank 0
};

constexpr std::int64_t trained_steps = 3;

// Trains some steps on batches of 12 samples, and validates at the end.
FiguresOfRun figures_of(const StatisticsLayout& layout, std::vector<std::string> settings) {
  const Config config;
  settings.insert(settings.end(), {config.data(), "validation.path=" + config.tokens(), "train.global_batch=12",
                                   "train.accumulation=auto", "train.steps=" + std::to_string(trained_steps)});
  settings.insert(settings.end(), layout.settings.begin(), layout.settings.end());
  FiguresOfRun figures;
  std::mutex mutex;
  on_engines(
      layout.ranks, config.file(), settings,
      [&](const LocalRank& rank) {
        std::vector<stage::ForwardFigures> mine;
        for (std::int64_t step = 0; step < trained_steps; ++step) mine.push_back(rank.run.step().outcome);
        const stage::ForwardFigures validation = rank.run.validate().value();
        const std::lock_guard lock(mutex);
        figures.steps.insert(figures.steps.end(), mine.begin(), mine.end());
        if (rank.engine.rank() == 0) figures.validation = validation;
      },
      counted());
  return figures;
}

void check_figures(const stage::ForwardFigures& found, const stage::ForwardFigures& wanted) {
  CHECK(found.loss == Approx(wanted.loss).epsilon(2e-6));
  REQUIRE(found.auxiliary_loss.has_value() == wanted.auxiliary_loss.has_value());
  if (wanted.auxiliary_loss) CHECK(*found.auxiliary_loss == Approx(*wanted.auxiliary_loss).epsilon(2e-6));
  REQUIRE(found.statistics.size() == wanted.statistics.size());
  for (const auto& [name, value] : wanted.statistics) {
    CAPTURE(name);
    CHECK(found.statistics.at(name) == Approx(value).epsilon(5e-6));
  }
}

void check_runs(const StatisticsLayout& layout, const FiguresOfRun& found, const FiguresOfRun& wanted) {
  REQUIRE(found.steps.size() == static_cast<std::size_t>(layout.ranks * trained_steps));
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    CAPTURE(layout.ranks, layout.settings, i);
    check_figures(found.steps[i], wanted.steps[i % trained_steps]);
  }
  check_figures(found.validation, wanted.validation);
}

std::vector<StatisticsLayout> layouts_of_any_model() {
  return {{1, {"train.micro_batch=1"}},
          {1, {"train.micro_batch=6", "activations.checkpoint=all"}},
          {2, {"partitioner.plugin=ddp"}},
          {3, {"partitioner.plugin=zero3", "activations.checkpoint=all"}},
          {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "activations.checkpoint=all"}},
          {2, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_v", "step_policy=speculative"}},
          {4, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1", "partitioner.plugin=zero2"}}};
}

// A head that breaks the rules of statistics.
struct BrokenHead final : OneMatrix {
  BrokenHead(ModelContext& context, std::int64_t rows, std::int64_t columns, std::vector<Statistic> statistics,
             bool in_training)
      : OneMatrix(context, rows, columns), statistics_(std::move(statistics)), in_training_(in_training) {}
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    LayerOutput output;
    output.loss_sum = linear_cross_entropy(input[0].flatten(0, 1), weight_.tensor, batch.targets.flatten()).loss;
    if (in_training_ || input[0].is_meta()) output.statistics = statistics_;
    return output;
  }

 private:
  std::vector<Statistic> statistics_;
  bool in_training_;
};

std::string error_with(const std::vector<Statistic>& statistics, bool in_training = true) {
  const Config config;
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<BrokenHead>("head", vocabulary, width, statistics, in_training);
  return error_of<Bug>([&] { initialize(std::move(model), config.file()).train_batch(random_batches(1)); });
}

}  // namespace

TEST_CASE("sums and maxima of layers are those of one process, at any layout") {
  const std::vector<std::string> settings{"model.plugin=counted", "optimizer.plugin=sgd", "learning_rate.base=0.1",
                                          "train.clip=0.3"};
  const FiguresOfRun one = figures_of({}, settings);
  for (const stage::ForwardFigures& step : one.steps) {
    CHECK(step.statistics.at("tokens") == counted_layers * step.valid_tokens);
    CHECK(step.statistics.at("squares") > 0.0);
    CHECK(step.statistics.at("largest") > 0.0);
    CHECK(std::isfinite(step.statistics.at("largest_logit")));
  }
  CHECK(one.validation.statistics.at("tokens") == counted_layers * one.validation.valid_tokens);
  CHECK(one.steps[0].statistics.at("largest") != one.steps[1].statistics.at("largest"));
  for (const StatisticsLayout& layout : layouts_of_any_model()) check_runs(layout, figures_of(layout, settings), one);
}

TEST_CASE("z-loss and largest logit of a decoder are those of one process, at any layout") {
  const std::vector<std::string> settings{
      "model.plugin=gpt_neox",   "model.hidden_size=16",     "model.layers=4",   "model.heads=4",
      "model.rotary_fraction=1", "model.vocabulary=11",      "model.z_loss=0.5", "model.report_largest_logit=true",
      "optimizer.plugin=adamw",  "learning_rate.base=0.001", "train.clip=0"};
  const FiguresOfRun one = figures_of({}, settings);
  for (const stage::ForwardFigures& step : one.steps) {
    CHECK(*step.auxiliary_loss > 0.5);  // log(11)^2 / 2 with equal logits
    CHECK(step.statistics.size() == 1);
    CHECK(step.statistics.at("largest_logit") > 0.0);
  }
  std::vector<StatisticsLayout> layouts = layouts_of_any_model();
  layouts.push_back({2, {"parallel.tensor=2"}});
  layouts.push_back({4, {"parallel.tensor=2", "parallel.sequence=true", "partitioner.plugin=zero1"}});
  for (const StatisticsLayout& layout : layouts) check_runs(layout, figures_of(layout, settings), one);
}

TEST_CASE("a z-loss lowers the logits, and its absence changes no figure") {
  const std::vector<std::string> settings{"model.plugin=gpt_neox", "model.hidden_size=16",    "model.layers=1",
                                          "model.heads=4",         "model.rotary_fraction=1", "model.vocabulary=11"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return figures_of({}, more);
  };
  const FiguresOfRun plain = with({}), reported = with({"model.report_largest_logit=true"}),
                     kept_small = with({"model.report_largest_logit=true", "model.z_loss=1"});
  for (std::size_t step = 0; step < plain.steps.size(); ++step) {
    CHECK(plain.steps[step].loss == reported.steps[step].loss);
    CHECK(plain.steps[step].statistics.empty());
    CHECK_FALSE(reported.steps[step].auxiliary_loss.has_value());
  }
  CHECK(kept_small.steps[0].loss == plain.steps[0].loss);
  CHECK(*kept_small.steps.back().auxiliary_loss < *kept_small.steps.front().auxiliary_loss);
}

TEST_CASE("statistics that a layer does not describe, or that are no figures, are refused") {
  const at::Tensor one = at::ones({});
  CHECK_THAT(error_with({{{"Largest logit"}, one}}), Contains("head has a statistic 'Largest logit'"));
  CHECK_THAT(error_with({{{"load"}, one}, {{"load", StatisticKind::Maximum}, one}}),
             Contains("the statistic load of head is a sum in one layer and a maximum in another"));
  CHECK_THAT(error_with({{{"load"}, one}}, false), Contains("head returns 0 statistics, which are not the 1"));
  CHECK_THAT(error_with({{{"load"}, at::ones({2})}}), Contains("the statistic load of head is no floating-point"));
}

TEST_CASE("a program receives the statistics of a step") {
  const Config config;
  Engine engine = initialize(config.file(), {"model.plugin=counted"}, counted());
  const StepResult result = step_in_parts(engine, random_batches(1));
  CHECK(result.statistics.size() == 4 + counted_layers - 1);
  CHECK(result.statistics.at("tokens") == 3 * 10 * counted_layers);
}
