#include "catch.hpp"
#include "error_of.hpp"
#include "small_model.hpp"

using namespace strata;

namespace {
struct SilentHead final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors&, const MicroBatch&) override { return {}; }
};
}  // namespace

TEST_CASE("a model of layers describes itself") {
  const std::unique_ptr<SequentialModel> model = small_model();
  REQUIRE(model->layers() == 3);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const BatchShape batch{2, 5, dtype};
    const LayerInfo hidden = model->describe(1, batch);
    CHECK(hidden.name == "hidden");
    REQUIRE(hidden.parameters.size() == 1);
    CHECK(hidden.parameters[0].name == "hidden.weight");
    REQUIRE(hidden.outputs.size() == 1);
    CHECK(hidden.outputs[0].extents == std::vector<std::int64_t>{2, 5, width});
    CHECK(hidden.outputs[0].dtype == dtype);
    CHECK(hidden.forward_flops == 2.0 * 10 * width * width);
    CHECK(model->describe(2, batch).outputs.empty());
  }
  CHECK(model->describe(0, {3, 7, at::kFloat}).outputs[0].extents == std::vector<std::int64_t>{3, 7, width});
  const CheckpointNames names = model->checkpoint_names();
  REQUIRE(names.names.size() == 3);
  CHECK(names.names[2] == std::pair<std::string, std::string>{"head.weight", "head.weight"});
}

TEST_CASE("a list of layers that is no model is refused") {
  const BatchShape batch{2, 5, at::kFloat};
  SequentialModel model(vocabulary);
  model.add<EmbeddingLayer>("embedding", vocabulary, width);
  CHECK_THAT(error_of<UserError>([&] { model.add<HeadLayer>("embedding", vocabulary, width); }),
             Contains("two layers") && Contains("embedding"));
  CHECK_THAT(error_of<UserError>([&] { model.add<HeadLayer>("", vocabulary, width); }), Contains("no name"));
  CHECK_THAT(error_of<UserError>([&] { model.describe(0, batch); }), Contains("embedding") && Contains("loss_sum"));
  model.add<SilentHead>("silent", vocabulary, width);
  CHECK_THAT(error_of<UserError>([&] { model.describe(0, batch); }), Contains("silent") && Contains("loss_sum"));
  model.add<HeadLayer>("head", vocabulary, width);
  CHECK_THAT(error_of<UserError>([&] { model.describe(0, batch); }), Contains("silent returns no activations"));
}
