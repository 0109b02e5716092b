// zero_one_adam: what ranks on threads come to against one process that rounds the same gradients and moves; the bytes
// of each kind of update; what a resumed run has of each rank's own, between two exchanges too.
#include "exchanging.hpp"

using namespace exchanging;

namespace {

const fakes::PluginLibrary& library() {
  static const fakes::PluginLibrary opened(ZERO_ONE_ADAM_LIBRARY);
  return opened;
}

// Updates from 1: 1 2 4 6 8 sum gradients, 3 5 7 9 send their signs; then 10 to 13 exchange each, 14 and 16, 20 24 28.
constexpr std::int64_t freeze = 9, var_scaler = 2, local_scaler = 4, clipper = 4, updates = 30;
constexpr double beta1 = 0.9, beta2 = 0.9, epsilon = 0.01, decay = 0.1;
const fakes::OptionTexts options{{"betas", "[0.9, 0.9]"},    {"epsilon", "0.01"},        {"weight_decay", "0.1"},
                                 {"var_freeze_step", "9"},   {"var_update_scaler", "2"}, {"local_step_scaler", "4"},
                                 {"local_step_clipper", "4"}};

double rate_of(std::int64_t number) {
  return 0.01 * (1.0 - static_cast<double>(number) / (2.0 * updates));
}

// One process that is all ranks, with the counters of the paper's authors.
class Simulation {
 public:
  Simulation(int ranks, std::int64_t quiet) : ranks_(ranks), quiet_(quiet) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto n = static_cast<std::size_t>(sizes[i]);
      const std::vector<Doubles> of_ranks(static_cast<std::size_t>(ranks), Doubles(n));
      tensors_.push_back({doubles(weights_of(i)), Doubles(n), of_ranks, of_ranks, {ranks, n}});
    }
  }

  void update(std::int64_t number) {
    const std::int64_t step = number + 1;
    const bool frozen = number >= freeze, variance = !frozen && step % var_interval_ == 0;
    const bool exchanged = frozen && step % local_interval_ == 0;
    if (frozen) rates_ += rate_of(number);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (number == freeze) tensors_[i].exchange = SimulatedExchange(ranks_, tensors_[i].x.size());
      frozen ? alone(i, number, exchanged) : together(i, number, variance);
    }
    if (exchanged) rates_ = 0.0;
    if (variance && ++var_counter_ == var_scaler) var_counter_ = 0, var_interval_ *= 2;
    if (frozen && ++local_counter_ == local_scaler) {
      local_counter_ = 0;
      local_interval_ = std::min(clipper, 2 * local_interval_);
    }
  }

  const Doubles& masters(std::size_t tensor) const { return tensors_[tensor].x; }
  Doubles trained(std::size_t tensor, int rank) const {
    Doubles at = tensors_[tensor].x;
    for (std::size_t k = 0; k < at.size(); ++k) at[k] += tensors_[tensor].u[static_cast<std::size_t>(rank)][k];
    return at;
  }

 private:
  struct Tensor {
    Doubles x, v;
    std::vector<Doubles> m, u;  // by rank
    SimulatedExchange exchange;
  };

  std::vector<Doubles> gradients(std::size_t tensor, std::int64_t number) const {
    std::vector<Doubles> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back(doubles(gradient_of(rank, number, tensor, quiet_)));
    return all;
  }

  void together(std::size_t tensor, std::int64_t number, bool variance) {
    Tensor& t = tensors_[tensor];
    std::vector<Doubles> all = gradients(tensor, number);
    Doubles g(t.x.size());
    for (Doubles& one : all)
      for (std::size_t k = 0; k < g.size(); ++k) {
        g[k] += one[k];
        one[k] *= t.v[k] > 0 ? ranks_ : 0;
      }
    if (!variance) g = ranks_ == 1 ? all[0] : t.exchange.mean(all, t.v);
    for (std::size_t k = 0; k < g.size(); ++k) {
      if (variance) t.v[k] = beta2 * t.v[k] + (1 - beta2) * g[k] * g[k];
      const double m = t.m[0][k] + (1 - beta1) * (g[k] - t.m[0][k]);
      for (Doubles& one : t.m) one[k] = m;
      t.x[k] -= rate_of(number) * (m / (std::sqrt(t.v[k]) + epsilon) + decay * t.x[k]);
    }
  }

  void alone(std::size_t tensor, std::int64_t number, bool exchanged) {
    Tensor& t = tensors_[tensor];
    const std::vector<Doubles> all = gradients(tensor, number);
    std::vector<Doubles> sent = t.u;
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      for (std::size_t k = 0; k < t.x.size(); ++k) {
        double &m = t.m[rank][k], &u = t.u[rank][k];
        m = t.v[k] > 0 ? m + (1 - beta1) * (ranks_ * all[rank][k] - m) : 0;
        const double root = std::sqrt(t.v[k]) + epsilon;
        u -= rate_of(number) * (m / root + decay * (t.x[k] + u));
        sent[rank][k] = t.v[k] > 0 ? u * root : 0;
      }
    if (!exchanged) return;
    const Doubles mean = ranks_ == 1 ? sent[0] : t.exchange.mean(sent, t.v);
    for (std::size_t k = 0; k < t.x.size(); ++k) {
      t.x[k] += t.v[k] > 0 ? mean[k] / (std::sqrt(t.v[k]) + epsilon) : t.u[0][k];
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        t.m[rank][k] = -mean[k] / rates_;
        t.u[rank][k] = 0;
      }
    }
  }

  int ranks_;
  std::int64_t quiet_, var_interval_ = 1, var_counter_ = 0, local_interval_ = 1, local_counter_ = 0;
  double rates_ = 0.0;
  std::vector<Tensor> tensors_;
};

struct Rank {
  Host host{library(), "optimizer/zero_one_adam", options};
  std::unique_ptr<Optimizer> optimizer{library().make<Optimizer>(host)};
  Run run;
  std::vector<Piece> pieces = fresh_pieces(*optimizer);

  void connect(Group& group) {
    REQUIRE(host.optimizer != nullptr);
    CHECK(host.updates == var_scaler);
    host.optimizer->connect(group, run, {infos()}, true);
  }
  void update(std::int64_t number, int rank, int ranks, std::int64_t quiet, bool applied = true) {
    exchanging::update(*optimizer, number < var_scaler ? nullptr : host.optimizer, pieces, number, rate_of(number),
                       gradients_of(number, rank, ranks, var_scaler, quiet), applied);
  }
};

}  // namespace

TEST_CASE("zero_one_adam on ranks equals one process with the same rounding") {
  for (const int ranks : {1, 2, 3})
    for (const std::int64_t quiet : {6, 20}) {  // before an update that sends signs, and after the variance stays
      CAPTURE(ranks, quiet);
      std::vector<double> worst(static_cast<std::size_t>(ranks), 0.0);
      std::vector<int> apart(static_cast<std::size_t>(ranks), 0);
      fakes::on_ranks(ranks, [&](CheckedGroup& group) {
        Rank rank;
        if (ranks > 1) rank.connect(group);
        Simulation simulation(ranks, quiet);
        const auto own = static_cast<std::size_t>(group.rank());
        for (std::int64_t number = 0; number < updates; ++number) {
          simulation.update(number);
          rank.update(number, group.rank(), ranks, quiet);
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            const Piece& piece = rank.pieces[i];
            worst[own] = std::max({worst[own], furthest(piece.master, simulation.masters(i)),
                                   furthest(piece.parameter, simulation.trained(i, group.rank()))});
            at::Tensor first = piece.master.clone();
            group.broadcast(first, 0).wait();
            if (!at::equal(first, piece.master)) ++apart[own];
          }
        }
      });
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(worst[static_cast<std::size_t>(rank)] < 2e-6);
        CHECK(apart[static_cast<std::size_t>(rank)] == 0);
      }
    }
}

TEST_CASE("zero_one_adam sends gradients, their signs, signs of updates or nothing") {
  constexpr std::int64_t elements = 1 << 16;
  const PieceInfo info{"large", {elements}, 0, elements};
  for (const int ranks : {2, 4}) {
    std::vector<std::int64_t> sent(updates + 1);
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      Rank rank;
      rank.host.optimizer->connect(group, rank.run, {{info}}, true);
      Piece piece;
      piece.info = info;
      piece.master = at::zeros({elements});
      piece.parameter = at::zeros({elements});
      piece.gradient = at::ones({elements});
      piece.state = {at::ones({elements}), at::ones({elements}), at::zeros({elements}), at::zeros({1})};
      Piece* const pointer = &piece;
      StepScalars scalars;
      scalars.gradient_factor = scalars.apply = at::ones({});
      for (std::int64_t number = var_scaler; number < updates; ++number) {
        const std::int64_t before = group.traffic().total_bytes();
        scalars.updates = number;
        scalars.learning_rate = rate_of(number);
        rank.host.optimizer->exchange({&pointer, 1}, {&piece, 1}, scalars);
        if (group.rank() == 0) sent[static_cast<std::size_t>(number + 1)] = group.traffic().total_bytes() - before;
      }
    });
    const std::int64_t all = logical_bytes(Collective::AllReduce, 4 * elements, ranks);
    const std::int64_t signs = 2 * (elements / 8 + 4 * ranks) * (ranks - 1) / ranks;
    for (const std::size_t update : {4, 6, 8}) CHECK(sent[update] == all);
    for (const std::size_t update : {3, 5, 7, 9, 10, 11, 12, 13, 14, 16, 20, 24, 28}) CHECK(sent[update] == signs);
    for (const std::size_t update : {15, 17, 18, 19, 21, 22, 23, 25, 26, 27, 29, 30}) CHECK(sent[update] == 0);
  }
}

TEST_CASE("zero_one_adam resumes bit by bit, and a skipped update changes nothing") {
  constexpr int ranks = 3;
  constexpr std::int64_t quiet = 6;
  const auto train = [&](std::int64_t resume, bool own_is_loaded, bool skips) {
    OfRanks result(ranks);
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      fakes::SavedState saved;
      std::vector<Piece> pieces;
      for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, resume}, {resume, updates}}) {
        if (begin == end) continue;
        Rank rank;
        rank.connect(group);
        if (begin > 0) {
          rank.pieces = pieces;
          for (Piece& piece : rank.pieces) {  // the engine has each element of some rank
            for (const std::size_t own : {0, 2}) group.broadcast(piece.state[own], 1).wait();
            if (!own_is_loaded) continue;
            piece.parameter = at::zeros_like(piece.parameter);
          }
          if (own_is_loaded) {
            rank.optimizer->load(saved, 1);
            fakes::SavedState again;  // before any step
            rank.optimizer->save(again);
            rank.optimizer->load(again, 1);
            for (std::size_t i = 0; i < sizes.size(); ++i) {
              rank.optimizer->write_trained(rank.pieces[i]);
              CHECK(at::equal(rank.pieces[i].parameter, pieces[i].parameter));
            }
          }
        }
        for (std::int64_t number = begin; number < end; ++number) {
          if (skips) rank.update(number, 1, ranks, quiet, false);
          rank.update(number, group.rank(), ranks, quiet);
        }
        if (end < updates) rank.optimizer->save(saved);
        pieces = rank.pieces;
        for (Piece& piece : pieces)
          for (at::Tensor& state : piece.state) state = state.clone();
      }
      for (const Piece& piece : pieces)
        for (const at::Tensor& one : {piece.master, piece.parameter, piece.state[0]})
          result[static_cast<std::size_t>(group.rank())].push_back(one);
    });
    return result;
  };
  const OfRanks whole = train(updates, true, false);
  for (const std::int64_t resume : {1, 5, 9, 11, 15, 16, 18, 19}) {
    CAPTURE(resume);
    CHECK(equal(train(resume, true, false), whole));
  }
  CHECK_FALSE(equal(train(18, false, false), whole));
  CHECK(equal(train(updates, true, true), whole));
}
