// Calls of an engine: their order, what they are given, and what else there is than steps.

#include "program.hpp"

using namespace strata;

namespace {

struct FailingLayer final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch&) override {
    if (!input[0].is_meta()) throw std::runtime_error("out of ideas");
    return {{input[0]}, {}, {}};
  }
};

}  // namespace

TEST_CASE("calls in a wrong order are refused, and the engine stays usable") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  Engine reference = initialize(small_model(), config.file());
  const std::vector<Batch> batches = random_batches(7);
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("0 of 3 micro-batches"));
  const Loss first = engine.forward(batches[0]);
  CHECK_THAT(refusal([&] { engine.forward(batches[1]); }), Contains("not passed to engine.backward"));
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("not passed to engine.backward"));
  CHECK_THAT(refusal([&] { engine.train_batch(batches); }), Contains("a step is in progress: 1 of 3"));
  CHECK_THAT(refusal([&] { engine.export_weights(config / "weights"); }), Contains("a step is in progress"));
  engine.backward(first);
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("1 of 3 micro-batches"));
  for (const std::size_t i : {1, 2}) engine.backward(engine.forward(batches[i]));
  CHECK_THAT(refusal([&] { engine.forward(batches[0]); }), Contains("call engine.step() first"));
  CHECK_THAT(refusal([&] { engine.train_batch(batches); }), Contains("a step is in progress"));
  check_equal(engine.step(), reference.train_batch(batches));
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("0 of 3"));
  CHECK_THAT(refusal([&] { engine.train_batch(random_batches(1, 2)); }), Contains("2 micro-batches were given"));
  CHECK_THAT(refusal([&] { engine.train_batch({}); }), Contains("0 micro-batches were given"));
  check_equal(engine.train_batch(batches), reference.train_batch(batches));
}

TEST_CASE("backward takes the last loss of its own engine, once") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  Engine other = initialize(small_model(), config.file());
  const Batch batch = random_batch(4);
  const Loss mine = engine.forward(batch);
  const Loss foreign = other.forward(batch);
  CHECK(mine.value() == foreign.value());
  CHECK_THAT(refusal([&] { engine.backward(foreign); }), Contains("another engine"));
  engine.backward(mine);
  CHECK_THAT(refusal([&] { engine.backward(mine); }), Contains("backward() was already called"));
  const Loss copy = mine;
  const Loss second = engine.forward(batch);
  CHECK_THAT(refusal([&] { engine.backward(copy); }), Contains("backward() was already called"));
  engine.backward(second);
  engine.backward(engine.forward(batch));
  engine.step();
  const Loss next = engine.forward(batch);
  CHECK_THAT(refusal([&] { engine.backward(second); }), Contains("backward() was already called"));
  engine.backward(next);
}

TEST_CASE("batches of another shape, type or vocabulary are refused without harm") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  const Batch good = random_batch(1);
  CHECK_THAT(refusal([&] { engine.forward({}); }), Contains("tokens are undefined"));
  CHECK_THAT(refusal([&] { engine.forward({good.tokens, {}}); }), Contains("targets are undefined"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens.view({5, 2}), good.targets});
             }),
             Contains("tokens are Long [5, 2]"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens, good.targets.narrow(1, 0, 4)});
             }),
             Contains("targets are Long [2, 4]"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens.to(at::kInt), good.targets});
             }),
             Contains("tokens are Int [2, 5]"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens, good.targets + 11});
             }),
             Contains("the model's vocabulary is 0 to 10"));
  CHECK_THAT(refusal([&] { engine.forward({good.tokens - 11, good.targets}); }), Contains("the batch's tokens hold -"));
  CHECK_THAT(refusal([&] {
               engine.train_batch({good, good, {good.tokens, good.targets + 11}});
             }),
             Contains("engine.train_batch"));
  const Batch strided{good.tokens.t().contiguous().t(), good.targets.t().contiguous().t()};
  Engine same = initialize(small_model(), config.file());
  CHECK(engine.forward(strided).value() == same.forward(good).value());
}

TEST_CASE("an engine that failed in the middle of a step says so") {
  const Config config;
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<FailingLayer>("failing", width, width);
  model->add<HeadLayer>("head", vocabulary, width);
  Engine engine = initialize(std::move(model), config.file());
  CHECK_THAT(error_of<Bug>([&] { engine.forward(random_batch(1)); }),
             Contains("failing (layer 1)") && Contains("out of ideas"));
  CHECK_THAT(refusal([&] { engine.forward(random_batch(1)); }), Contains("create a new engine"));
  CHECK_THAT(refusal([&] { engine.train_batch(random_batches(1)); }), Contains("create a new engine"));
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("create a new engine"));
}

TEST_CASE("exported weights start another engine where the first stood") {
  const Config config;
  Engine engine = initialize(small_model(), config.file(), {"train.clip=0"});
  for (unsigned step = 0; step < 5; ++step) engine.train_batch(random_batches(step));
  engine.export_weights(config / "weights");
  Engine other = initialize(small_model(), config.file(), {"model.init=" + (config / "weights")});
  CHECK(engine.forward(random_batch(50)).value() == other.forward(random_batch(50)).value());
  CHECK_THAT(refusal([&] { engine.export_weights(config / "weights"); }), Contains("a step is in progress"));
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), config.file()).export_weights(config / "weights"); }),
             Contains("not empty"));
}

TEST_CASE("evaluation gives the loss and leaves training as it is") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  Engine undisturbed = initialize(small_model(), config.file());
  const std::vector<Batch> batches = random_batches(3);
  engine.train_batch(batches);
  undisturbed.train_batch(batches);
  const double one = engine.evaluate({batches[1]});
  const double all = engine.evaluate(batches);
  CHECK(engine.evaluate(batches) == all);
  check_equal(engine.train_batch(batches), undisturbed.train_batch(batches));
  CHECK(engine.evaluate(batches) < all);
  const Loss loss = engine.forward(batches[1]);
  CHECK(loss.value() != one);
  CHECK_THAT(refusal([&] { engine.evaluate(batches); }), Contains("a step is in progress"));
  CHECK_THAT(refusal([&] { undisturbed.evaluate(); }), Contains("validation.path is not set"));
  CHECK_THAT(refusal([&] { undisturbed.evaluate(std::vector<Batch>{}); }), Contains("0 micro-batches were given"));
  CHECK_THAT(refusal([&] { undisturbed.evaluate(random_batches(1, 4)); }), Contains("4 micro-batches were given"));
}

TEST_CASE("steps and evaluations leave libtorch's default generator to the program") {
  const Config config;
  const auto draw = [] { return at::rand({8}); };
  at::manual_seed(7);
  const at::Tensor wanted_first = draw(), wanted_second = draw(), wanted_third = draw();
  Engine engine = initialize(small_model(), config.file());
  const std::vector<Batch> batches = random_batches(7);
  at::manual_seed(7);
  CHECK(draw().equal(wanted_first));
  engine.train_batch(batches);
  CHECK(draw().equal(wanted_second));
  engine.evaluate(batches);
  CHECK(draw().equal(wanted_third));
}

TEST_CASE("checkpoints are refused where they cannot be") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  CHECK_THAT(refusal([&] { engine.save_checkpoint(); }), Contains("checkpoint.path is not set"));
  CHECK_THAT(refusal([&] { engine.resume(); }), Contains("checkpoint.path is not set"));
  CHECK_THAT(error_of<UserError>([&] { engine.resume(config / "nowhere"); }), Contains("nowhere"));
  const std::string path = "checkpoint.path=" + (config / "checkpoints");
  Engine saving = initialize(small_model(), config.file(), {path});
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), config.file(), {path}); }), Contains("checkpoints"));
  CHECK(!saving.resume());
  saving.train_batch(random_batches(1));
  const std::string folder = saving.save_checkpoint();
  const auto written = std::filesystem::last_write_time(std::filesystem::path(folder) / "checkpoint.json");
  CHECK(saving.save_checkpoint() == folder);
  CHECK(std::filesystem::last_write_time(std::filesystem::path(folder) / "checkpoint.json") == written);  // kept
  CHECK_THAT(refusal([&] { saving.resume(); }), Contains("before the first step"));
  CHECK(engine.resume(folder));  // saved with the program's own batches
  check_equal(engine.train_batch(random_batches(9)), saving.train_batch(random_batches(9)));
  CHECK_THAT(refusal([&] { engine.resume(folder); }), Contains("before the first step"));
}
