// Two engines at once in one set of processes, each other's steps between their own, and a third after them. Prints the
// losses of each.
#include <string>
#include <vector>

#include "layers.hpp"

namespace {

Engine engine_of(const char* config, const std::vector<std::string>& settings) {
  constexpr std::int64_t vocabulary = 257, width = 32;
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<Embedding>("embedding", vocabulary, width);
  model->add<Hidden>("hidden", width, width);
  model->add<Head>("head", vocabulary, width);
  return initialize(std::move(model), config, settings);
}

void step(Engine& engine, const char* name) {
  for (const Batch& batch : engine.batches()) engine.backward(engine.forward(batch));
  const StepResult result = engine.step();
  if (engine.rank() == 0)
    std::printf("%s step %lld loss %.17g\n", name, static_cast<long long>(result.step), result.loss);
}

}  // namespace

int main(int argc, char* argv[]) try {
  const std::vector<std::string> settings{argv + 2, argv + argc};
  constexpr int steps = 3;
  {
    Engine first = engine_of(argv[1], settings), second = engine_of(argv[1], settings);
    for (int i = 0; i < steps; ++i) {
      step(first, "first");
      step(second, "second");
    }
  }
  Engine third = engine_of(argv[1], settings);
  for (int i = 0; i < steps; ++i) step(third, "third");
} catch (const Error& error) {
  std::fprintf(stderr, "two_engines: %s\n", error.what());
  return error.exit_status();
}
