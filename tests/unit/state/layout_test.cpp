#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/plain_device.hpp>

#include "catch.hpp"
#include "error_of.hpp"
#include "host_buffers.hpp"
#include "listed_layer.hpp"
#include "state/layout.hpp"
#include "state/optimizer_state.hpp"

using namespace strata;

namespace {

// Norms stay fp32, the rest is bf16 with an fp32 master.
class MixedPrecision final : public PrecisionPolicy {
 public:
  DTypes dtypes(const ParameterInfo& parameter) const override {
    DTypes dtypes;
    if (parameter.name.find("norm") == std::string::npos) dtypes.parameter = at::kBFloat16;
    return dtypes;
  }
  at::ScalarType activation() const override { return at::kFloat; }
  double loss_scale() const override { return 1.0; }
  Verdict judge(const GradientHealth&) override { return Verdict::Apply; }
};

class TwoStates final : public Optimizer {
 public:
  std::vector<StateTensor> state(const PieceInfo&) const override { return {{"m", at::kFloat}, {"v", at::kFloat}}; }
  void step(std::span<Piece* const>, int, const StepScalars&) override {}
};

// One byte an element, but for norms.
class ByteState final : public Optimizer {
 public:
  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    return {{"m", piece.parameter.starts_with("norm") ? at::kFloat : at::kByte}};
  }
  void step(std::span<Piece* const>, int, const StepScalars&) override {}
};

ParameterInfo parameter(const std::string& name, std::vector<std::int64_t> shape, bool trainable = true,
                        const std::string& tie = "") {
  return {name, std::move(shape), Initializer::zeros(), trainable, tie};
}

}  // namespace

TEST_CASE("parameters of one layer share a buffer only where dtypes, freezing and ties agree") {
  ListedLayer first({parameter("w", {3, 5}), parameter("norm", {5}), parameter("u", {2}),
                     parameter("frozen", {4}, false), parameter("table", {6, 2}, true, "embedding")});
  ListedLayer second({parameter("x", {1}), parameter("head", {6, 2}, true, "embedding")});
  MixedPrecision precision;
  state::Layout layout = state::lay_out({&first, &second}, {4, 5}, precision, at::kCPU);
  REQUIRE(layout.flat.size() == 5);
  CHECK(layout.flat[0]->elements() == 17);  // w and u
  CHECK(layout.flat[0]->info().dtypes.parameter == at::kBFloat16);
  CHECK(layout.flat[1]->info().dtypes.parameter == at::kFloat);
  CHECK_FALSE(layout.flat[2]->info().trainable);
  CHECK(layout.flat[3]->info().layers == std::vector<int>{4, 5});  // the tie
  CHECK(layout.flat[3]->elements() == 12);
  CHECK(layout.flat_of_layer == std::vector<std::vector<int>>{{0, 1, 2, 3}, {3, 4}});
  layout.flat[3]->bind(at::arange(12).to(at::kBFloat16));
  CHECK(at::equal(first.parameters()[4]->tensor.detach(), second.parameters()[1]->tensor.detach()));
}

TEST_CASE("ties of different shapes and empty parameters are refused by name") {
  MixedPrecision precision;
  ListedLayer first({parameter("table", {6, 2}, true, "embedding")});
  ListedLayer second({parameter("head", {2, 6}, true, "embedding")});
  CHECK_THROWS_AS(state::lay_out({&first, &second}, {0, 1}, precision, at::kCPU), UserError);
  ListedLayer frozen({parameter("head", {6, 2}, false, "embedding")});
  CHECK_THROWS_AS(state::lay_out({&first, &frozen}, {0, 1}, precision, at::kCPU), UserError);
  ListedLayer wide({parameter("norm_head", {6, 2}, true, "embedding")});
  CHECK_THROWS_AS(state::lay_out({&first, &wide}, {0, 1}, precision, at::kCPU), UserError);
  ListedLayer empty({parameter("nothing", {0, 3})});
  CHECK_THROWS_AS(state::lay_out({&empty}, {0}, precision, at::kCPU), UserError);
}

TEST_CASE("slices are cut at parameter borders, and everything is counted once") {
  ListedLayer layer({parameter("a", {2, 3}), parameter("b", {4}), parameter("c", {5})});
  MixedPrecision precision;
  state::Layout layout = state::lay_out({&layer}, {0}, precision, at::kCPU);
  HostBuffers memory;
  const Slice slice = memory.slice(*layout.flat[0], 4, 13, 7, 12);  // the end of a, all of b, a part of c
  const at::Tensor values = slice.parameter.tensor();
  const TwoStates optimizer;
  state::OptimizerState state({slice}, optimizer, memory.buffers);
  REQUIRE(state.entries().size() == 3);
  const auto& [a, b, c] = std::tie(state.entries()[0], state.entries()[1], state.entries()[2]);
  CHECK((a.piece.info.begin == 4 && a.piece.info.end == 6));
  CHECK((b.piece.info.begin == 0 && b.piece.info.end == 4));
  CHECK((c.piece.info.begin == 0 && c.piece.info.end == 3));
  CHECK((a.counted_end - a.counted_begin == 0 && b.counted_begin == 1 && b.counted_end == 4 && c.counted_begin == 0 &&
         c.counted_end == 2));
  CHECK(memory.store.ledger().now[static_cast<std::size_t>(Category::Optimizer)][0] == 3 * 9 * 4);  // master, m, v
  state.piece_of(state.entries()[1]).master.fill_(1.5);
  state.write_parameter(state.entries()[1]);
  CHECK(values.narrow(0, 2, 4).eq(1.5).all().item<bool>());
  CHECK(values.narrow(0, 0, 2).eq(0).all().item<bool>());
}

TEST_CASE("each piece has its state in the dtype that the optimizer names for it") {
  ListedLayer layer({parameter("norm_a", {3}), parameter("b", {4}), parameter("norm_c", {2}), parameter("d", {1})});
  class : public PrecisionPolicy {
    DTypes dtypes(const ParameterInfo&) const override { return {}; }  // one flat parameter
    at::ScalarType activation() const override { return at::kFloat; }
    double loss_scale() const override { return 1.0; }
    Verdict judge(const GradientHealth&) override { return Verdict::Apply; }
  } precision;
  state::Layout layout = state::lay_out({&layer}, {0}, precision, at::kCPU);
  REQUIRE(layout.flat.size() == 1);
  const std::int64_t elements = layout.flat[0]->elements();
  HostBuffers memory;
  state::OptimizerState state({memory.slice(*layout.flat[0], 0, elements, 0, elements)}, ByteState(), memory.buffers);
  REQUIRE(state.entries().size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const Piece& piece = state.piece_of(state.entries()[i]);
    CAPTURE(piece.info.parameter);
    CHECK(piece.state[0].scalar_type() == (i % 2 == 0 ? at::kFloat : at::kByte));
    CHECK(piece.state[0].numel() == piece.info.end);
    state.entries()[i].piece.state[0].fill_(static_cast<int>(i) + 1);
  }
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(state.entries()[i].piece.state[0].eq(static_cast<int>(i) + 1).all().item<bool>());
}

TEST_CASE("a slice that cuts within a unit is refused, with the parameter and the place") {
  ListedLayer layer({parameter("a", {4, 3})});
  MixedPrecision precision;
  for (const std::int64_t unit : {1, 3, 12, 100}) {
    CAPTURE(unit);
    state::Layout layout =
        state::lay_out({&layer}, {0}, precision, at::kCPU, false, {}, 0, 1, [&](const ParameterInfo&) { return unit; });
    HostBuffers memory;
    const Slice rows = memory.slice(*layout.flat[0], 3, 9, 3, 9), elements = memory.slice(*layout.flat[0], 2, 9, 2, 9);
    const auto make = [&](const Slice& slice) { state::check_cuts({slice}, "optimizer/o", "partitioner/p"); };
    if (unit <= 3)
      CHECK_NOTHROW(make(rows));
    else
      CHECK_THROWS_AS(make(rows), UserError);
    if (unit == 1)
      CHECK_NOTHROW(make(elements));
    else
      CHECK_THROWS_WITH(make(elements), Catch::Contains("neighbouring elements of a together") &&
                                            Catch::Contains("and partitioner/p cuts it at element 2"));
  }
}

TEST_CASE("slices that are no ranges of their flat parameter, or have an element in common, are refused") {
  ListedLayer layer({parameter("a", {4, 3})});
  MixedPrecision precision;
  state::Layout layout = state::lay_out({&layer}, {0}, precision, at::kCPU);
  FlatParameter* const flat = layout.flat[0].get();
  const auto slice = [&](std::int64_t begin, std::int64_t end) { return Slice{flat, begin, end, {}, {}, begin, end}; };
  const auto refusal = [&](const std::vector<Slice>& slices) {
    return error_of<Bug>([&] { state::check_ranges(slices, "partitioner/p"); });
  };
  CHECK(refusal({slice(0, 5), slice(7, 12), slice(5, 7), slice(5, 5)}).empty());
  CHECK_THAT(refusal({slice(-1, 5)}),
             Contains("partitioner/p: owned() gives elements [-1, 5) of layer 0, which has 12;"));
  CHECK_THAT(refusal({slice(3, 13)}), Contains("[3, 13)"));
  CHECK_THAT(refusal({slice(5, 4)}), Contains("a slice is a range of them"));
  CHECK_THAT(refusal({slice(0, 5), slice(4, 12)}), Contains("[4, 12)") && Contains("and [0, 5) too"));
  CHECK_THAT(refusal({{nullptr, 0, 5}}), Contains("a slice of no flat parameter"));
  for (const auto& [begin, end] : {std::pair{-1, 3}, {2, 6}, {4, 3}}) {
    Slice counted = slice(0, 5);
    counted.counted_begin = begin;
    counted.counted_end = end;
    CHECK_THAT(refusal({counted}), Contains("it counts a part of it"));
  }
}
