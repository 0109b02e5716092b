// States of whole parameters and sums over them, where slices cut parameters anywhere.
#include <ATen/ATen.h>
#include <strata/error.hpp>

#include "catch.hpp"
#include "host_buffers.hpp"
#include "listed_layer.hpp"
#include "state/layout.hpp"
#include "state/optimizer_state.hpp"
#include "state/parameter_sums.hpp"

using namespace strata;

namespace {

// One number a row for matrices, one an element for vectors; sums of rows in the second round.
class RowOptimizer final : public Optimizer {
 public:
  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    if (piece.shape.size() < 2) return {{"variance"}};
    return {{"row_var", at::kFloat, piece.shape[0]}, {"exp_avg"}};
  }
  int rounds() const override { return 3; }
  std::int64_t sums(const PieceInfo& piece, int round) const override {
    return round == 0 ? 0 : round == 1 ? (piece.shape.size() < 2 ? 0 : piece.shape[0]) : 1;
  }
  void step(std::span<Piece* const>, int, const StepScalars&) override {}
};

class Fp32 final : public PrecisionPolicy {
 public:
  DTypes dtypes(const ParameterInfo&) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }
  double loss_scale() const override { return 1.0; }
  Verdict judge(const GradientHealth&) override { return Verdict::Apply; }
};

// A matrix, a vector and a frozen matrix: flat parameters of 17 and of 4 elements.
struct TwoAndFrozen {
  ListedLayer layer{{{"weight", {4, 3}}, {"bias", {5}}, {"frozen", {2, 2}, {}, false}}};
  Fp32 precision;
  state::Layout layout = state::lay_out({&layer}, {0}, precision, at::kCPU);
  HostBuffers memory;
  FlatParameter& flat() { return *layout.flat[0]; }
  Slice slice(std::int64_t begin, std::int64_t end, std::int64_t counted_begin, std::int64_t counted_end) {
    return memory.slice(flat(), begin, end, counted_begin, counted_end);
  }
};

}  // namespace

TEST_CASE("a kept gradient is a gradient of its own in every trained piece") {
  TwoAndFrozen model;
  state::OptimizerState state({model.slice(0, 7, 0, 7), model.slice(7, 17, 7, 17)}, RowOptimizer(),
                              model.memory.buffers, {}, config::StepPolicy::Delayed);
  REQUIRE(state.entries().size() == 3);
  CHECK(model.memory.store.ledger().now[static_cast<std::size_t>(Category::Gradient)][0] == 2 * 17 * 4);
  for (std::size_t i = 0; i < 3; ++i) {
    state::OptimizerState::Entry& entry = state.entries()[i];
    entry.gradient.tensor().fill_(1.0);
    entry.kept.tensor().fill_(static_cast<double>(i) + 2.0);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    state::OptimizerState::Entry& entry = state.entries()[i];
    CHECK(entry.kept.elements == entry.piece.info.end - entry.piece.info.begin);
    CHECK(state.piece_of(entry, true).gradient.eq(static_cast<double>(i) + 2.0).all().item<bool>());
    CHECK(state.piece_of(entry).gradient.eq(1.0).all().item<bool>());
  }
}

TEST_CASE("an optimizer cannot name a state as the kept gradient is called in checkpoints") {
  struct Colliding final : Optimizer {
    std::vector<StateTensor> state(const PieceInfo&) const override { return {{state::OptimizerState::kept_gradient}}; }
    void step(std::span<Piece* const>, int, const StepScalars&) override {}
  };
  TwoAndFrozen model;
  CHECK_THROWS_WITH(state::OptimizerState({model.slice(0, 17, 0, 17)}, Colliding(), model.memory.buffers),
                    Catch::Contains("the optimizer names a state \"kept_gradient\", as the engine's own is called"));
}

TEST_CASE("a state per parameter is whole on each piece, one per element is cut") {
  TwoAndFrozen model;
  const RowOptimizer optimizer;
  state::OptimizerState state({model.slice(0, 7, 0, 7), model.slice(7, 17, 7, 17)}, optimizer, model.memory.buffers);
  REQUIRE(state.entries().size() == 3);  // the matrix in two pieces, the vector
  const Piece &first = state.piece_of(state.entries()[0]), &second = state.piece_of(state.entries()[1]),
              &bias = state.piece_of(state.entries()[2]);
  CHECK((first.state[0].numel() == 4 && second.state[0].numel() == 4));
  CHECK((first.state[1].numel() == 7 && second.state[1].numel() == 5));
  CHECK((bias.state.size() == 1 && bias.state[0].numel() == 5));
  CHECK(model.memory.store.ledger().now[static_cast<std::size_t>(Category::Optimizer)][0] == (4 + 7 + 4 + 5 + 5) * 4);
  first.state[0].fill_(1.0);
  CHECK(second.state[0].eq(0.0).all().item<bool>());  // copies
  CHECK(state.entries_of(model.flat().info().id).size() == 3);
  CHECK(state.entries_of(77).empty());
}

TEST_CASE("a part of a piece has its elements and its whole states") {
  TwoAndFrozen model;
  const RowOptimizer optimizer;
  state::OptimizerState state({model.slice(0, 17, 5, 14)}, optimizer, model.memory.buffers);
  const auto counted = [&](state::OptimizerState::Entry& entry) {
    return state::OptimizerState::part_of(state.piece_of(entry), entry, entry.counted_begin, entry.counted_end);
  };
  const Piece weight = counted(state.entries()[0]);
  CHECK((weight.info.begin == 5 && weight.info.end == 12 && weight.master.numel() == 7));
  CHECK((weight.gradient.numel() == 7 && weight.state[0].numel() == 4 && weight.state[1].numel() == 7));
  CHECK(weight.master.const_data_ptr() == state.entries()[0].piece.master.narrow(0, 5, 7).const_data_ptr());
  const Piece bias = counted(state.entries()[1]);
  CHECK((bias.info.begin == 0 && bias.info.end == 2 && bias.state[0].numel() == 2));
}

TEST_CASE("another stage's parameters are measured and not counted") {
  TwoAndFrozen model;
  const RowOptimizer optimizer;
  state::OptimizerState state({model.slice(0, 17, 5, 14)}, optimizer, model.memory.buffers, {model.flat().info().id});
  for (const state::OptimizerState::Entry& entry : state.entries()) {
    CHECK(entry.counted_begin == entry.counted_end);
    CHECK(entry.measured_begin < entry.measured_end);
  }
}

namespace {

class BlockOptimizer final : public Optimizer {
 public:
  std::vector<StateTensor> state(const PieceInfo&) const override {
    return {{"codes", at::kByte}, {.name = "scale", .block = 4}};
  }
  void step(std::span<Piece* const>, int, const StepScalars&) override {}
};

}  // namespace

TEST_CASE("a state of blocks has one element per block and counts whole units") {
  ListedLayer layer{{{"bias", {6}}, {"weight", {3, 10}}}};
  Fp32 precision;
  state::Layout layout = state::lay_out({&layer}, {0}, precision, at::kCPU, false, {}, 0, 1,
                                        [](const ParameterInfo& info) { return info.name == "weight" ? 8 : 4; });
  FlatParameter& flat = *layout.flat[0];
  CHECK(flat.info().parameters[0].info.name == "weight");  // the larger unit first, so that both are aligned
  HostBuffers memory;
  state::OptimizerState state({memory.slice(flat, 0, 16, 0, 10), memory.slice(flat, 16, 36, 21, 35)}, BlockOptimizer(),
                              memory.buffers);
  REQUIRE(state.entries().size() == 3);
  const auto check = [&](int number, std::int64_t blocks, std::int64_t begin, std::int64_t end, std::int64_t counted) {
    state::OptimizerState::Entry& entry = state.entries()[static_cast<std::size_t>(number)];
    CHECK(state.piece_of(entry).state[1].numel() == blocks);
    CHECK((entry.counted_begin == begin && entry.counted_end == end));
    CHECK((entry.measured_begin == begin && entry.measured_end == end));
    CHECK(entry.state_of(1, entry.counted_begin, entry.counted_end).elements == counted);
    const Piece part = state::OptimizerState::part_of(state.piece_of(entry), entry, begin, end);
    CHECK((part.state[0].numel() == end - begin && part.state[1].numel() == counted));
  };
  check(0, 4, 0, 8, 2);   // elements 0 to 10 of the weight: the border goes to the start of its unit
  check(1, 4, 0, 14, 4);  // from 21, which lies in the unit that begins at 16, to the end
  check(2, 2, 0, 4, 1);   // 5 of the bias
}

TEST_CASE("a block that a unit does not hold whole is refused") {
  struct Unaligned final : Optimizer {
    std::vector<StateTensor> state(const PieceInfo&) const override { return {{.name = "scale", .block = 3}}; }
    void step(std::span<Piece* const>, int, const StepScalars&) override {}
  };
  ListedLayer layer{{{"weight", {3, 10}}}};
  Fp32 precision;
  state::Layout layout =
      state::lay_out({&layer}, {0}, precision, at::kCPU, false, {}, 0, 1, [](const ParameterInfo&) { return 8; });
  HostBuffers memory;
  CHECK_THROWS_WITH(state::OptimizerState({memory.slice(*layout.flat[0], 0, 30, 0, 30)}, Unaligned(), memory.buffers),
                    Catch::Contains("blocks of 3 elements") && Catch::Contains("its unit of 8 for weight"));
}

TEST_CASE("sums of all trainable parameters lie in one buffer, round by round") {
  TwoAndFrozen model;
  StateStore store(at::kCPU);
  const RowOptimizer optimizer;
  const state::ParameterSums sums(model.layout.flat, optimizer, store);
  REQUIRE(sums.rounds() == 3);
  CHECK_FALSE(sums.of_round(0).defined());
  CHECK_FALSE(sums.of("weight", 0).defined());
  CHECK((sums.of_round(1).numel() == 4 && sums.of("weight", 1).numel() == 4 && !sums.of("bias", 1).defined()));
  CHECK((sums.of_round(2).numel() == 2 && sums.of("bias", 2).numel() == 1));
  CHECK(sums.of("weight", 2).const_data_ptr() != sums.of("bias", 2).const_data_ptr());
  CHECK(sums.of_round(1).scalar_type() == at::kDouble);
  CHECK(store.ledger().now[static_cast<std::size_t>(Category::Optimizer)][0] == 4 * 8);
  CHECK(state::sums_of_round({{"weight", {4, 3}}}, optimizer) == std::vector<bool>{false, true, true});
  CHECK(state::sums_of_round({{"bias", {4}}}, optimizer) == std::vector<bool>{false, false, true});
  CHECK(state::sums_of_round({{"frozen", {2, 2}, {}, false}}, optimizer) == std::vector<bool>{false, false, false});
}

TEST_CASE("an optimizer that asks for sums and does not measure is told so") {
  RowOptimizer optimizer;
  Piece piece;
  piece.info.parameter = "weight";
  CHECK_THROWS_WITH(optimizer.measure(piece, 1, {}),
                    Catch::Contains("sums over weight in round 1") && Catch::Contains("measure()"));
}
