// Pipelines where others' have failed: activations of other shapes and numbers at every cut, more stages than two,
// stages that are each other's next and previous, many gradients under way, several steps. Whose faults they are:
//
// - A transfer of several tensors of which one is waited for (pytorch#152938), of shapes that differ from cut to cut
//   (Megatron-LM#5100), between two stages that are next and previous at once (Megatron-LM#750, pytorch#172668), only
//   the newest gradient kept (pytorch#139404), buffers with hooks of the step before (pytorch#185331): the first case.
// - ZeRO stage 1 in bf16 on a pipeline that hangs (DeepSpeed#5792): the second.
// - A receive posted early that blocks the sends behind it (pytorch#188833): the orders of random_orders_test.cpp,
//   finished by a backend in which every transfer waits for its other side, and the kit's communicator.drawn.
// - Pairs of ranks that connect in different orders (Megatron-LM#5240): connect_stages_test.cpp.
// - Tied weights, which torchtitan refuses: ties_test.cpp.
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <strata/options.hpp>

#include <map>
#include <utility>

#include "ranks.hpp"

using namespace strata;

namespace {

// Gives an activation of another width, on some layers also a value of each token, and the tokens themselves.
struct Uneven final : OneMatrix {
  Uneven(ModelContext& context, std::int64_t out, std::int64_t in, bool more)
      : OneMatrix(context, out, in), more_(more) {
    weight_.info.linear_only = true;
  }
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    at::Tensor x = input[0];
    if (input.size() > 1) x = x + input[1] * (input[2] + 1).unsqueeze(-1).to(x.scalar_type()) * 0.1;
    const at::Tensor y = at::gelu(context_.linear(x, weight_));
    if (!more_) return {{y}, {}, {}};
    return {{y, y.mean(-1, /*keepdim=*/true), batch.tokens.clone()}, {}, {}};
  }

 private:
  bool more_;
};

STRATA_NO_OPTIONS(UnevenOptions)

struct UnevenModel final : SequentialModel {
  UnevenModel(PluginContext&, const UnevenOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, std::int64_t{6});
    const std::vector<std::int64_t> widths{6, 7, 3, 9, 4, 5, 5, 2, 8, 5, 6};
    for (std::size_t i = 0; i + 1 < widths.size(); ++i)
      add<Uneven>("layer" + std::to_string(i), widths[i + 1], widths[i], i % 3 != 2 && i + 2 < widths.size());
    add<HeadLayer>("head", ::vocabulary, std::int64_t{6});
  }
};

std::vector<ProgramPlugin> uneven() {
  return {program_plugin<Model, UnevenModel, UnevenOptions>("uneven", {Capability::SplittableBackward})};
}

constexpr int pipeline_steps = 3;

// Master weights of all ranks, by parameter and the first element of a piece.
using Masters = std::map<std::pair<std::string, std::int64_t>, at::Tensor>;

void add_masters(const run::Run& run, Masters& masters) {
  const stage::Stage& stage = run.session().stage();
  for (const auto& entry : stage.updates.state().entries())
    stage.values.buffers().with(entry.master, memory::Access::Read, [&](const at::Tensor& master) {
      masters[{entry.piece.info.parameter, entry.piece.info.begin}] = master.to(at::kDouble, false, /*copy=*/true);
    });
}

// All elements, in one order whatever the pieces.
at::Tensor joined(const Masters& masters) {
  std::vector<at::Tensor> pieces;
  for (const auto& [place, piece] : masters) pieces.push_back(piece);
  return at::cat(pieces);
}

// How far `one` is from `other`, over how far that has come from `start`.
double apart(const Masters& one, const Masters& other, const Masters& start) {
  const at::Tensor trained = joined(other);
  return ((joined(one) - trained).norm() / (trained - joined(start)).norm()).item<double>();
}

// The losses and norms of three steps, and the master weights after them; a wait of more than ten seconds is an error.
std::vector<double> trained(int ranks, const std::vector<std::string>& more, Masters* masters = nullptr) {
  const Config config;
  std::vector<std::string> settings{
      config.data(),          "model.plugin=uneven",  "train.global_batch=16", "train.micro_batch=auto",
      "train.accumulation=8", "optimizer.plugin=sgd", "learning_rate.base=0.1"};
  settings.insert(settings.end(), more.begin(), more.end());
  std::vector<double> numbers;
  std::mutex mutex;
  if (masters != nullptr) masters->clear();
  on_engines(
      ranks, config.file(), settings,
      [&](const LocalRank& rank) {
        std::vector<double> mine;
        for (int step = 0; step < pipeline_steps; ++step) {
          const StepResult result = rank.engine.train_batch(rank.engine.batches());
          mine.insert(mine.end(), {result.loss, result.gradient_norm});
        }
        const std::lock_guard lock(mutex);
        numbers = mine;
        if (masters != nullptr) add_masters(rank.run, *masters);
      },
      uneven());
  return numbers;
}

void check_as_alone(const std::vector<double>& found, const std::vector<double>& alone) {
  REQUIRE(found.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(found[i] == Approx(alone[i]).epsilon(2e-6));
}

struct Schedule {
  const char* name;
  int chunks;
};
constexpr Schedule schedules[] = {
    {"1f1b", 1},       {"gpipe", 1}, {"zero_bubble_h1", 1},   {"interleaved_1f1b", 2}, {"zero_bubble_v", 2},
    {"dualpipe_v", 2}, {"l2l", 2},   {"interleaved_1f1b", 3}, {"sequential", 3}};

}  // namespace

TEST_CASE("every schedule trains as one process, on 2, 3 and 4 stages whose transfers all differ") {
  const std::vector<double> alone = trained(1, {});
  for (const auto& [name, chunks] : schedules)
    for (int stages = 2; stages <= 4; ++stages)
      for (const char* checkpoint : {"none", "all"}) {
        CAPTURE(name, chunks, stages, checkpoint);
        check_as_alone(
            trained(stages, {"parallel.pipeline=" + std::to_string(stages), std::string("scheduler.plugin=") + name,
                             "parallel.chunks=" + std::to_string(chunks), "parallel.cut=layers",
                             std::string("activations.checkpoint=") + checkpoint}),
            alone);
      }
}

TEST_CASE("pipelines of every ZeRO stage end, in bf16 too") {
  for (const char* partitioner : {"zero1", "zero2", "zero3"})
    for (const char* precision : {"fp32", "bf16"}) {
      const auto of = [&](int ranks, const std::vector<std::string>& more, Masters& masters) {
        std::vector<std::string> settings{std::string("partitioner.plugin=") + partitioner,
                                          std::string("precision.plugin=") + precision};
        settings.insert(settings.end(), more.begin(), more.end());
        return trained(ranks, settings, &masters);
      };
      CAPTURE(partitioner, precision);
      Masters of_one, of_pipe, start, slower;
      // In micro-batches of the pipeline's size: in others, rounding to bf16 alone may move the result by 0.07 of the
      // way.
      const std::vector<double> alone = of(1, {"train.micro_batch=1", "train.accumulation=16"}, of_one);
      const std::vector<double> piped =
          of(4, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_v", "parallel.cut=layers"}, of_pipe);
      if (std::string(precision) == "fp32") {
        check_as_alone(piped, alone);
      } else {
        REQUIRE(piped.size() == alone.size());
        CHECK(piped[0] == Approx(alone[0]).epsilon(1e-2));  // the loss before any update: a few roundings of bf16
        // What was trained, over how far it is from where it began. A gradient that lacks one of the eight
        // micro-batches, or has a layer's twice, is further away: as is the run at a rate of nine tenths.
        constexpr double few_roundings = 0.03;
        of(1, {"train.micro_batch=1", "train.accumulation=16", "learning_rate.base=0"}, start);
        of(1, {"train.micro_batch=1", "train.accumulation=16", "learning_rate.base=0.09"}, slower);
        CHECK(apart(of_pipe, of_one, start) < few_roundings);
        CHECK(apart(slower, of_one, start) > few_roundings);
      }
    }
}
