// onebit_adam: its warm-up against Adam in fp64; what ranks on threads come to after it against one process that
// rounds the same momenta; the bytes; what a resumed run has of the errors.
#include "exchanging.hpp"

using namespace exchanging;

namespace {

const fakes::PluginLibrary& library() {
  static const fakes::PluginLibrary opened(ONEBIT_ADAM_LIBRARY);
  return opened;
}

constexpr std::int64_t freeze = 3;
constexpr double rate = 0.01, beta1 = 0.9, beta2 = 0.9, epsilon = 1e-8, decay = 0.1;
const fakes::OptionTexts options{{"freeze_step", "3"}, {"betas", "[0.9, 0.9]"}, {"weight_decay", "0.1"}};

// One process that is all ranks.
class Simulation {
 public:
  explicit Simulation(int ranks) : ranks_(ranks) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto n = static_cast<std::size_t>(sizes[i]);
      tensors_.push_back({doubles(weights_of(i)), Doubles(n), Doubles(n), {ranks, n}});
    }
  }

  void update(std::int64_t number) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& t = tensors_[i];
      std::vector<Doubles> gradients;
      for (int rank = 0; rank < ranks_; ++rank) gradients.push_back(doubles(gradient_of(rank, number, i, freeze)));
      if (number < freeze) {
        for (std::size_t k = 0; k < t.p.size(); ++k) {
          double g = 0.0;
          for (const Doubles& one : gradients) g += one[k];
          t.m[k] += (1 - beta1) * (g - t.m[k]);
          t.v[k] = beta2 * t.v[k] + (1 - beta2) * g * g;
        }
      } else {
        for (Doubles& g : gradients)
          for (std::size_t k = 0; k < g.size(); ++k)
            g[k] = t.v[k] == 0 ? 0 : t.m[k] + (1 - beta1) * (ranks_ * g[k] - t.m[k]);
        t.m = ranks_ == 1 ? gradients[0] : t.exchange.mean(gradients, t.v);
      }
      for (std::size_t k = 0; k < t.p.size(); ++k)
        t.p[k] -= rate * (t.m[k] / (std::sqrt(t.v[k]) + epsilon) + decay * t.p[k]);
    }
  }

  const Doubles& weights(std::size_t tensor) const { return tensors_[tensor].p; }

 private:
  struct Tensor {
    Doubles p, m, v;
    SimulatedExchange exchange;
  };
  int ranks_;
  std::vector<Tensor> tensors_;
};

struct Rank {
  Host host{library(), "optimizer/onebit_adam", options};
  std::unique_ptr<Optimizer> optimizer{library().make<Optimizer>(host)};
  Run run;
  std::vector<Piece> pieces = fresh_pieces(*optimizer);

  // `shares`: this rank has a part of the state.
  void connect(Group& group, bool shares = false) {
    REQUIRE(host.optimizer != nullptr);
    host.optimizer->connect(group, run, {infos()}, !shares);
    if (shares) pieces = fresh_pieces(*optimizer, group.rank(), group.size());
  }
  void update(std::int64_t number, int rank, int ranks, bool applied = true) {
    exchanging::update(*optimizer, number < freeze ? nullptr : host.optimizer, pieces, number, rate,
                       gradients_of(number, rank, ranks, freeze, freeze), applied);
  }
};

}  // namespace

TEST_CASE("onebit_adam on ranks equals one process with the same rounding") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    constexpr std::int64_t updates = 9;
    Simulation simulation(ranks);
    for (std::int64_t number = 0; number < updates; ++number) simulation.update(number);
    std::vector<double> worst(static_cast<std::size_t>(ranks), 1.0);
    OfRanks weights(static_cast<std::size_t>(ranks));
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      Rank rank;
      if (ranks > 1) rank.connect(group);
      for (std::int64_t number = 0; number < updates; ++number) rank.update(number, group.rank(), ranks);
      double& mine = worst[static_cast<std::size_t>(group.rank())] = 0.0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        mine = std::max(mine, furthest(rank.pieces[i].master, simulation.weights(i)));
        weights[static_cast<std::size_t>(group.rank())].push_back(rank.pieces[i].master);
      }
    });
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(worst[static_cast<std::size_t>(rank)] < 2e-6);
      for (std::size_t i = 0; i < sizes.size(); ++i)
        CHECK(at::equal(weights[static_cast<std::size_t>(rank)][i], weights[0][i]));
    }
  }
}

TEST_CASE("onebit_adam's ranks that share state equal ranks with all of it") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    std::vector<int> other(static_cast<std::size_t>(ranks), 0);
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      Rank whole, part;
      whole.connect(group);
      part.connect(group, true);
      for (std::int64_t number = 0; number < 9; ++number) {
        for (Rank* const rank : {&whole, &part}) rank->update(number, group.rank(), ranks);
        for (const Piece& piece : part.pieces) {
          const auto all = std::ranges::find(whole.pieces, piece.info.parameter,
                                             [](const Piece& one) { return one.info.parameter; });
          if (!at::equal(piece.master, range(all->master, piece.info))) ++other[static_cast<std::size_t>(group.rank())];
          for (std::size_t i = 0; i < piece.state.size(); ++i)
            if (!at::equal(piece.state[i], range(all->state[i], piece.info)))
              ++other[static_cast<std::size_t>(group.rank())];
        }
      }
    });
    for (const int count : other) CHECK(count == 0);
  }
}

TEST_CASE("onebit_adam sends a sixteenth of the bytes of gradients in fp16") {
  constexpr std::int64_t elements = 1 << 16;
  const PieceInfo info{"large", {elements}, 0, elements};
  for (const int ranks : {2, 4}) {
    std::int64_t sent = 0;
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      Rank rank;
      rank.host.optimizer->connect(group, rank.run, {{info}}, true);
      Piece piece;
      piece.info = info;
      piece.master = at::zeros({elements});
      piece.gradient = at::ones({elements});
      piece.state = {at::ones({elements}), at::ones({elements})};
      Piece* const pointer = &piece;
      StepScalars scalars;
      scalars.updates = freeze;
      scalars.gradient_factor = scalars.apply = at::ones({});
      rank.host.optimizer->exchange({&pointer, 1}, {&piece, 1}, scalars);
      if (group.rank() == 0) sent = group.traffic().total_bytes();
    });
    const std::int64_t in_fp16 = logical_bytes(Collective::AllReduce, 2 * elements, ranks);
    CHECK(sent == 2 * (elements / 8 + 4 * ranks) * (ranks - 1) / ranks);
    CHECK(static_cast<double>(in_fp16) / static_cast<double>(sent) > 15.9);
  }
}

TEST_CASE("onebit_adam resumes bit by bit, and a skipped update changes nothing") {
  const bool shares = GENERATE(false, true);
  constexpr int ranks = 3;
  constexpr std::int64_t updates = 9;
  const auto train = [&](std::int64_t resume, bool with_errors, bool skips) {
    OfRanks result(ranks);
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      fakes::SavedState saved;
      std::vector<Piece> pieces;
      for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, resume}, {resume, updates}}) {
        Rank rank;
        rank.connect(group, shares);
        if (begin > 0 && with_errors) rank.update(begin, 1, ranks);  // of which nothing is left
        if (begin > 0) rank.pieces = pieces;
        if (begin > 0 && with_errors) rank.optimizer->load(saved, 1);
        for (std::int64_t number = begin; number < end; ++number) {
          if (skips) rank.update(number, 1, ranks, false);
          rank.update(number, group.rank(), ranks);
        }
        if (end < updates) rank.optimizer->save(saved);
        pieces = rank.pieces;
      }
      for (const Piece& piece : pieces) result[static_cast<std::size_t>(group.rank())].push_back(piece.master);
    });
    return result;
  };
  const auto whole = train(updates, true, false);
  for (const std::int64_t resume : {2, 3, 6, 8}) {
    CAPTURE(resume);
    CHECK(equal(train(resume, true, false), whole));
  }
  CHECK_FALSE(equal(train(6, false, false), whole));
  CHECK(equal(train(updates, true, true), whole));
}
