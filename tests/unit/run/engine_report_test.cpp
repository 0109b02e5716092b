// What a program's engine prints, writes and hands to observers: train.log_every, metrics.csv, export, Engine::observe.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ranks.hpp"

using namespace strata;

namespace {

// Lines of a CSV file, without its header.
std::vector<std::string> rows_of(const std::string& file) {
  std::ifstream text(file);
  std::vector<std::string> rows;
  for (std::string line; std::getline(text, line);) rows.push_back(line);
  REQUIRE(!rows.empty());
  return {rows.begin() + 1, rows.end()};
}

std::string row(std::int64_t samples, double value) {
  std::ostringstream text;
  text.precision(17);
  text << samples << "," << value;
  return text.str();
}

// Calls `work` and returns what it logs.
std::string logged(const std::function<void()>& work) {
  std::ostringstream text;
  const std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
  const auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  logger->set_pattern("%l %v");
  spdlog::set_default_logger(logger);
  work();
  spdlog::set_default_logger(before);
  return text.str();
}

// Numbers of the steps whose lines are in a log.
std::string steps_in(const std::string& log) {
  std::string numbers;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("info step ")) numbers += line.substr(10, line.find('/') - 10) + " ";
  return numbers;
}

// What an observer was told, one word a call.
struct Noted final : Observer {
  explicit Noted(std::string& all) : told(all) {}
  void begin(std::int64_t steps_done) override { told += "from " + std::to_string(steps_done) + ";"; }
  void step(const StepResult& result) override { told += " " + std::to_string(result.step); }
  void validation(std::int64_t step, double loss) override {
    CHECK(loss > 0.0);
    told += " v" + std::to_string(step);
  }
  std::string& told;
};

struct Full final : Observer {
  void step(const StepResult&) override { throw EnvironmentError("the disk is full"); }
};

void train(Engine& engine, std::int64_t steps) {
  while (engine.steps_done() < steps) {
    engine.train_batch(engine.batches());
    if (engine.validation_due()) engine.evaluate();
    if (engine.checkpoint_due()) engine.save_checkpoint();
  }
}

std::vector<std::string> with_files(const Config& config) {
  return {config.data(),
          "train.global_batch=12",
          "train.micro_batch=2",
          "train.accumulation=auto",
          "train.steps=6",
          "validation.path=" + config.tokens(),
          "validation.every=2",
          "validation.samples=4",
          "checkpoint.every=2",
          "checkpoint.path=" + (config / "checkpoints"),
          "metrics.csv=" + (config / "figures")};
}

}  // namespace

TEST_CASE("metrics.csv of a program has a row for each step and validation") {
  const int ranks = GENERATE(1, 2);
  const Config config;
  std::vector<std::string> losses, validations;
  on_engines(ranks, config.file(), with_files(config), [&](const LocalRank& rank) {
    Engine& engine = rank.engine;
    while (engine.steps_done() < engine.steps()) {
      const double loss = engine.train_batch(engine.batches()).loss;
      if (engine.rank() == 0) losses.push_back(row(12 * engine.steps_done(), loss));
      if (!engine.validation_due()) continue;
      const double validation = engine.evaluate();
      if (engine.rank() == 0) validations.push_back(row(12 * engine.steps_done(), validation));
    }
  });
  CHECK(losses.size() == 6);
  CHECK(rows_of(config / "figures/Train_Samples_train_loss.csv") == losses);
  CHECK(rows_of(config / "figures/Train_Samples_lr.csv").size() == 6);
  CHECK(rows_of(config / "figures/Validation_Samples_loss.csv") == validations);
}

TEST_CASE("a resumed program has each step once in metrics.csv, and its observers learn where it begins") {
  const int ranks = GENERATE(1, 2);
  const Config config;
  std::vector<std::string> told(4);
  on_engines(ranks, config.file(), with_files(config), [&](const LocalRank& rank) {
    if (rank.engine.rank() == 0)
      for (std::size_t one : {0, 1}) rank.engine.observe(std::make_unique<Noted>(told[one]));
    train(rank.engine, 3);
  });
  CHECK(rows_of(config / "figures/Train_Samples_train_loss.csv").size() == 3);
  on_engines(ranks, config.file(), with_files(config), [&](const LocalRank& rank) {
    if (rank.engine.rank() == 0)
      for (std::size_t one : {2, 3}) rank.engine.observe(std::make_unique<Noted>(told[one]));
    REQUIRE(rank.engine.resume());
    train(rank.engine, 6);
  });
  CHECK(told[0] == "from 0; 1 2 v2 3");
  CHECK(told[2] == "from 2; 3 4 v4 5 6 v6");
  CHECK(told[1] == told[0]);
  CHECK(told[3] == told[2]);
  std::string samples;
  for (const std::string& line : rows_of(config / "figures/Train_Samples_train_loss.csv"))
    samples += line.substr(0, line.find(',')) + " ";
  CHECK(samples == "12 24 36 48 60 72 ");
  CHECK(rows_of(config / "figures/Validation_Samples_loss.csv").size() == 3);
}

TEST_CASE("figures of an earlier run are refused before the first step, and continued after a resume") {
  const int ranks = GENERATE(1, 2);
  const Config config;
  const std::vector<std::string> settings{config.data(), "train.global_batch=12", "train.micro_batch=2",
                                          "train.accumulation=auto", "metrics.csv=" + (config / "figures")};
  on_engines(ranks, config.file(), settings, [&](const LocalRank& rank) {
    train(rank.engine, 2);
    CHECK(rank.engine.evaluate(rank.engine.batches()) > 0.0);  // of batches of its own: no figure of the run
  });
  CHECK_FALSE(std::filesystem::exists(config / "figures/Validation_Samples_loss.csv"));
  const std::string before = rows_of(config / "figures/Train_Samples_train_loss.csv").back();
  on_engines(ranks, config.file(), settings, [&](const LocalRank& rank) {
    CHECK_THAT(
        refusal([&] { rank.engine.train_batch(rank.engine.batches()); }),
        Contains("engine.train_batch: metrics.csv") && Contains("an earlier run") && Contains("engine.resume()"));
  });
  CHECK(rows_of(config / "figures/Train_Samples_train_loss.csv").back() == before);
}

TEST_CASE("a program logs a line every train.log_every steps, at the first and the last, and for validations") {
  const Config config;
  const auto log = [&](const std::string& every) {
    return logged([&] {
      Engine engine = initialize(small_model(), config.file(),
                                 {config.data(), "train.steps=5", "train.log_every=" + every,
                                  "validation.path=" + config.tokens(), "validation.samples=4"});
      train(engine, 5);
    });
  };
  CHECK(steps_in(log("2")) == "1 2 4 5 5 ");
  CHECK_THAT(log("5"), Contains("info step 5/5  loss ") && Contains("info step 5/5  validation loss "));
  CHECK(log("0") == "");
}

TEST_CASE("a program's export is written by the step that reaches train.steps") {
  const int ranks = GENERATE(1, 2);
  const Config config;
  std::vector<std::string> settings = with_files(config);
  settings.push_back("export=" + (config / "weights"));
  const std::string weights = config / "weights/model.safetensors";
  on_engines(ranks, config.file(), settings, [&](const LocalRank& rank) {
    train(rank.engine, 5);
    if (rank.engine.rank() == 0) CHECK_FALSE(std::filesystem::exists(weights));
    train(rank.engine, 6);
    if (rank.engine.rank() == 0) CHECK(std::filesystem::exists(weights));
  });
  std::filesystem::remove_all(config / "weights");
  on_engines(ranks, config.file(), settings, [&](const LocalRank& rank) {
    CHECK(rank.engine.resume());  // at the last step: none is left to make
    if (rank.engine.rank() == 0) CHECK(std::filesystem::exists(weights));
  });
}

TEST_CASE("every key of rank 0's outputs is honoured in a program") {
  const Config config;
  int written = 0;
  for (const config::Key& key : config::keys()) {
    if (key.effect.compared != config::Compared::Use) continue;
    CAPTURE(key.option.name);
    const std::string place = config / ("key" + std::to_string(++written));
    Engine engine =
        initialize(small_model(), config.file(), {config.data(), "train.steps=2", key.option.name + "=" + place});
    train(engine, 2);
    CHECK(!std::filesystem::is_empty(place));
  }
  CHECK(written >= 2);
}

TEST_CASE("unwritable outputs of a program are refused at the start") {
  const Config config;
  const auto refused = [&](const std::vector<std::string>& settings) {
    return error_of<UserError>([&] { initialize(small_model(), config.file(), settings); });
  };
  CHECK_THAT(refused({"export=" + config.tokens()}), Contains("tokens.bin"));
  CHECK_THAT(refused({"metrics.csv=" + config.tokens()}), Contains("metrics.csv") && Contains("tokens.bin"));
  CHECK_THAT(refused({"export=" + (config / "out"), "metrics.csv=" + (config / "out/figures")}),
             Contains("metrics.csv") && Contains("which must be empty until the end"));
}

TEST_CASE("observers are added before the first step, and their errors leave the step complete") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  CHECK_THAT(refusal([&] { engine.observe(nullptr); }), Contains("engine.observe: the observer is null"));
  engine.observe(std::make_unique<Full>());
  CHECK_THAT(error_of<EnvironmentError>([&] { engine.train_batch(random_batches(1)); }), Contains("the disk is full"));
  CHECK(engine.steps_done() == 1);
  CHECK_THAT(refusal([&] { engine.observe(std::make_unique<Full>()); }), Contains("before the first step"));
}
