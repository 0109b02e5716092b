// A layer whose weight says linear_only and is used in another way: the run trains as without that word, or is refused.
#include <ATen/ops/linear.h>
#include <strata/options.hpp>

#include "ranks.hpp"

using namespace strata;

namespace {

#define USES_OPTIONS(OPTION)                                           \
  OPTION(boolean, linear_only, false, "", "", "What the weight says.") \
  OPTION(text, uses, "linear", "one_of=linear|elsewhere|both|both_turned", "", "How the layer uses it.")
STRATA_OPTIONS(UsesOptions, USES_OPTIONS)

struct Hidden final : OneMatrix {
  Hidden(ModelContext& context, std::int64_t rows, std::int64_t columns, UsesOptions options)
      : OneMatrix(context, rows, columns), options_(std::move(options)) {
    weight_.info.linear_only = options_.linear_only;
  }
  LayerOutput forward(const Tensors& input, const MicroBatch&) override {
    at::Tensor y = input[0];
    const auto elsewhere = [&] { return at::linear(input[0], weight_.tensor).mul(0.5); };
    if (options_.uses == "both_turned") y = y + elsewhere();
    if (options_.uses != "elsewhere") y = y + context_.linear(input[0], weight_);
    if (options_.uses == "elsewhere" || options_.uses == "both") y = y + elsewhere();
    return {{y}, {}, {}};
  }

 private:
  UsesOptions options_;
};

struct UsesModel final : SequentialModel {
  UsesModel(PluginContext&, const UsesOptions& options) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    add<Hidden>("hidden", width, width, options);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

std::vector<double> losses(const std::string& partitioner, const std::string& uses, bool linear_only) {
  const Config config;
  std::vector<double> found;
  on_engines(
      1, config.file(),
      {config.data(), "model.plugin=uses", "model.uses=" + uses,
       std::string("model.linear_only=") + (linear_only ? "true" : "false"), "partitioner.plugin=" + partitioner},
      [&](const LocalRank& rank) {
        for (unsigned step = 0; step < 3; ++step)
          found.push_back(step_in_parts(rank.engine, random_batches(step)).loss);
      },
      {program_plugin<Model, UsesModel, UsesOptions>("uses", {Capability::SplittableBackward})});
  return found;
}

}  // namespace

TEST_CASE("a linear_only weight without a gradient from linear() is refused") {
  for (const std::string partitioner : {"ddp", "zero3"}) {
    CHECK_THAT(error_of([&] { losses(partitioner, "elsewhere", true); }),
               Contains("hidden declares hidden.weight linear_only and uses it outside"));
    for (const std::string uses : {"linear", "both", "both_turned"})
      CHECK(losses(partitioner, uses, true) == losses(partitioner, uses, false));
  }
}
