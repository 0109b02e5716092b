// Weights and optimizer state of parameters that tensor-parallel ranks share: initialised, saved and read on other
// numbers of ranks.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <strata/error.hpp>

#include <functional>
#include <map>
#include <memory>

#include "catch.hpp"
#include "checkpoint/state_shard.hpp"
#include "state/initial_values.hpp"
#include "state/layout.hpp"
#include "temporary_folder.hpp"
#include "unit/state/host_buffers.hpp"
#include "unit/state/listed_layer.hpp"

using namespace strata;

namespace {

class Momentum final : public Optimizer {
 public:
  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    if (piece.shape.size() < 2) return {{"exp_avg"}};
    if (piece.parameter == "blocks") return {{"exp_avg"}, {.name = "scale", .block = 4}};
    return {{"exp_avg"}, {"rows", at::kFloat, piece.shape[0]}};
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

std::vector<ParameterInfo> parameters() {
  const Initializer normal = Initializer::normal(0.0, 1.0);
  return {{.name = "up", .shape = {12, 5}, .initializer = normal, .split = {.dimension = 0, .unit = 2}},
          {.name = "up.bias", .shape = {12}, .initializer = normal, .split = {.dimension = 0, .unit = 2}},
          {.name = "down", .shape = {5, 12}, .initializer = normal, .split = {.dimension = 1}},
          {.name = "qkv", .shape = {18, 4}, .initializer = normal, .split = {.dimension = 0, .blocks = 3}},
          {.name = "blocks", .shape = {5, 24}, .initializer = normal, .split = {.dimension = 1}},
          {.name = "norm", .shape = {7}, .initializer = normal}};
}

std::int64_t unit_of(const ParameterInfo& info) {
  return info.name == "blocks" ? 4 : 1;
}

// As checkpoint.json has them.
std::vector<checkpoint::SavedParameter> saved_parameters() {
  std::vector<checkpoint::SavedParameter> saved;
  for (const ParameterInfo& info : parameters()) {
    saved.push_back({info.name, info.shape, {}, info.split});
    if (info.name == "blocks")
      saved.back().block_states["scale"] = 4;
    else if (info.shape.size() > 1)
      saved.back().whole_states["rows"] = info.shape[0];
  }
  return saved;
}

// One rank of `data` x `tensor`, with the data-parallel ranks' equal shares of the flat parameter.
class Rank {
 public:
  Rank(int data, int data_ranks, int tensor, int tensor_ranks)
      : layout_(state::lay_out({&layer_}, {0}, precision_, at::kCPU, false, {}, tensor, tensor_ranks, unit_of)) {
    FlatParameter& flat = *layout_.flat.at(0);
    const std::int64_t share = (flat.elements() + data_ranks - 1) / data_ranks;
    const auto border = [&](std::int64_t at) { return flat.info().cut_up_to(std::min(flat.elements(), at)); };
    const std::int64_t begin = border(share * data), end = border(share * (data + 1));
    state_.emplace(std::vector<Slice>{memory_.slice(flat, begin, end, begin, end)}, optimizer_, memory_.buffers);
  }

  state::OptimizerState& state() { return *state_; }

  // As Session::fill does.
  void fill() {
    for (const state::OptimizerState::Entry& entry : state_->entries())
      entry.for_each_run(entry.master, 0, entry.master.elements, [&](std::int64_t whole, const BufferRange& part) {
        state::fill_initial_values(part.tensor(), entry.span->info, whole, 17);
      });
  }
  // exp_avg: minus the weights; rows: the parameter's number of elements; scale: the block's number in the parameter.
  void fill_states() {
    for (const state::OptimizerState::Entry& entry : state_->entries()) {
      entry.state[0].tensor().copy_(entry.master.tensor().neg());
      if (entry.state.size() < 2) continue;
      entry.state[1].tensor().fill_(static_cast<double>(entry.span->info.elements()));
      if (entry.span->info.name == "blocks")
        for_each_scale(entry, [](const at::Tensor& values, const at::Tensor& expected) { values.copy_(expected); });
    }
  }

  void save(const std::filesystem::path& folder, std::vector<checkpoint::SavedFile>& files) {
    checkpoint::StateShard shard(folder, checkpoint::shard_name(static_cast<std::int64_t>(files.size()), 6), *state_,
                                 false);
    while (shard.advance(64)) {
    }
    files.push_back(shard.saved());
  }

  static void for_each_scale(const state::OptimizerState::Entry& entry,
                             const std::function<void(const at::Tensor& values, const at::Tensor& expected)>& visit) {
    entry.for_each_run(
        entry.state[1], 0, entry.piece.info.end - entry.piece.info.begin,
        [&](std::int64_t whole, const BufferRange& part) {
          visit(part.tensor(), at::arange(whole, whole + part.elements));
        },
        4);
  }

 private:
  ListedLayer layer_{parameters()};
  Fp32 precision_;
  Momentum optimizer_;
  state::Layout layout_;
  HostBuffers memory_;
  std::optional<state::OptimizerState> state_;
};

// What a rank of the layout holds is cut out of the whole parameters.
void check_values(Rank& rank) {
  for (const state::OptimizerState::Entry& entry : rank.state().entries()) {
    const ParameterInfo& info = entry.span->info;
    CAPTURE(info.name, entry.piece.info.begin);
    const at::Tensor whole = at::empty({info.elements()});
    state::fill_initial_values(whole, info, 0, 17);
    entry.for_each_run(entry.master, 0, entry.master.elements, [&](std::int64_t begin, const BufferRange& part) {
      CHECK(at::equal(part.tensor(), whole.narrow(0, begin, part.elements)));
    });
    CHECK(at::equal(entry.state[0].tensor(), entry.master.tensor().neg()));
    if (info.name == "blocks")
      Rank::for_each_scale(entry, [](const at::Tensor& values, const at::Tensor& expected) {
        CHECK(at::equal(values.to(at::kLong), expected));
      });
    else if (entry.state.size() > 1)
      CHECK(entry.state[1].tensor().eq(static_cast<double>(info.elements())).all().item<bool>());
  }
}

}  // namespace

TEST_CASE("initial values, saved ranges and reads of them are independent of the cut") {
  const auto [data, tensor] = GENERATE(table<int, int>({{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 6}, {3, 2}}));
  CAPTURE(data, tensor);
  const TemporaryFolder folder;
  std::vector<checkpoint::SavedFile> files;
  std::map<std::string, std::int64_t> counted;
  for (int d = 0; d < data; ++d)
    for (int t = 0; t < tensor; ++t) {
      Rank rank(d, data, t, tensor);
      rank.fill();
      rank.fill_states();
      check_values(rank);
      for (const state::OptimizerState::Entry& entry : rank.state().entries())
        counted[entry.span->info.name] += entry.counted_end - entry.counted_begin;
      rank.save(folder.path(), files);
    }
  for (const ParameterInfo& info : parameters())
    CHECK(counted[info.name] == info.elements());  // over all ranks every element once
  const checkpoint::RangeSource source(folder.path(), files, saved_parameters());
  CHECK(source.elements("blocks", "scale") == 5 * 24 / 4);
  for (const auto& [other_data, other_tensor] : std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {1, 3}, {5, 1}})
    for (int d = 0; d < other_data; ++d)
      for (int t = 0; t < other_tensor; ++t) {
        Rank rank(d, other_data, t, other_tensor);
        for (const state::OptimizerState::Entry& entry : rank.state().entries())
          checkpoint::read_entry(source, rank.state(), entry, false);
        check_values(rank);
      }
}

TEST_CASE("a checkpoint that lacks a part, or has parts of other cuts, is damaged") {
  const TemporaryFolder folder;
  std::vector<checkpoint::SavedParameter> saved = saved_parameters();
  std::vector<checkpoint::SavedFile> files;
  for (int t = 0; t < 2; ++t) {
    Rank rank(0, 1, t, 2);
    rank.save(folder.path(), files);
  }
  const auto opened = [&] { checkpoint::RangeSource(folder.path(), files, saved); };
  CHECK_NOTHROW(opened());
  SECTION("one part") {
    files.pop_back();
    CHECK_THROWS_WITH(opened(), Contains("stand nowhere"));
  }
  SECTION("another cut") {
    files.resize(1);
    std::filesystem::remove(folder.path() / checkpoint::shard_name(1, 6));
    Rank(0, 1, 2, 3).save(folder.path(), files);
    CHECK_THROWS_WITH(opened(), Contains("one of 3 parts") && Contains("other ranges of its parameter are of 2"));
  }
  SECTION("no split") {
    saved[0].split = {};
    CHECK_THROWS_WITH(opened(), Contains("up is cut, and has no split"));
  }
}
