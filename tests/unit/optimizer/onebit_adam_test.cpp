// onebit_adam: its warm-up against Adam in fp64; what ranks on threads come to after it against one process that
// rounds the same momenta; the bytes; what a resumed run has of the errors.
#include <ATen/ATen.h>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/own_exchange.hpp>
#include <strata/plain_device.hpp>

#include <cmath>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

const fakes::PluginLibrary& library() {
  static const fakes::PluginLibrary opened(ONEBIT_ADAM_LIBRARY);
  return opened;
}

// A host that lets the optimizer exchange.
class Host final : public PluginContext, public OwnExchange {
 public:
  explicit Host(const fakes::OptionTexts& options) : options_(library().values(options)) {}
  const std::string& plugin_name() const override { return name_; }
  const OptionValues& options() const override { return options_; }
  int rank() const override { return 0; }
  const MeshShape& mesh() const override { return mesh_; }
  void log(LogLevel, const std::string& text) override { logged = text; }
  void set_metric(const std::string&, const std::string&, double) override {}
  void* extension(const char* which) override {
    return std::string(which) == OwnExchange::id ? static_cast<OwnExchange*>(this) : nullptr;
  }
  void optimizer_exchanges(std::int64_t from, ExchangingOptimizer& exchanging) override {
    updates = from;
    optimizer = &exchanging;
  }
  void partitioner_can_leave_gradients() override {}
  bool leaves_gradients() const override { return false; }

  std::string logged;
  std::int64_t updates = 0;
  ExchangingOptimizer* optimizer = nullptr;

 private:
  std::string name_ = "optimizer/onebit_adam";
  OptionValues options_;
  MeshShape mesh_;
};

class Run final : public RunContext {
 public:
  Device& device() override { return device_; }
  StateStore& store() override { return store_; }
  SlotPool& slots() override { return slots_; }

 private:
  PlainDevice device_{at::kCPU};
  StateStore store_{at::kCPU};
  SlotPool slots_{store_, device_};
};

constexpr std::int64_t freeze = 3;
constexpr double rate = 0.01, beta1 = 0.9, beta2 = 0.9, epsilon = 1e-8, decay = 0.1;
const fakes::OptionTexts options{{"freeze_step", "3"}, {"betas", "[0.9, 0.9]"}, {"weight_decay", "0.1"}};
const std::vector<std::int64_t> sizes{1, 5, 37, 1000};

// This rank's own gradient, of which the last fourth of each tensor is 0 until the warm-up has ended.
at::Tensor gradient_of(int rank, std::int64_t update, std::size_t tensor) {
  const std::int64_t elements = sizes[tensor];
  at::Tensor g = at::arange(elements, at::kDouble)
                     .mul(1.3 + 0.1 * static_cast<double>(tensor))
                     .add(0.7 * rank + 1.9 * static_cast<double>(update))
                     .sin()
                     .to(at::kFloat);
  if (update < freeze && elements > 3) g.narrow(0, elements - elements / 4, elements / 4).zero_();
  return g;
}

at::Tensor weights_of(std::size_t tensor) {
  return at::arange(sizes[tensor], at::kDouble).mul(0.37).cos().to(at::kFloat);
}

std::vector<PieceInfo> infos() {
  std::vector<PieceInfo> list;
  for (std::size_t i = 0; i < sizes.size(); ++i) list.push_back({"p" + std::to_string(i), {sizes[i]}, 0, sizes[i]});
  return list;
}

std::vector<Piece> fresh_pieces() {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Piece& piece = pieces.emplace_back();
    piece.info = infos()[i];
    piece.master = weights_of(i);
    piece.state = {at::zeros({sizes[i]}), at::zeros({sizes[i]})};
  }
  return pieces;
}

void update(Optimizer& optimizer, std::vector<Piece>& pieces, std::int64_t number, int rank, int ranks,
            bool applied = true) {
  std::vector<Piece*> pointers;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool summed = number < freeze;
    at::Tensor g = gradient_of(summed ? 0 : rank, number, i);
    for (int other = 1; summed && other < ranks; ++other) g = g + gradient_of(other, number, i);
    pieces[i].gradient = g.mul(2.0);  // the loss scale
    pointers.push_back(&pieces[i]);
  }
  StepScalars scalars;
  scalars.learning_rate = rate;
  scalars.updates = number;
  scalars.gradient_factor = at::full({}, 0.5F);
  scalars.apply = at::full({}, applied ? 1.0F : 0.0F);
  optimizer.step(pointers, 0, scalars);
}

using Doubles = std::vector<double>;
Doubles doubles(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

// One process that is all ranks, in fp64 and element by element.
class Simulation {
 public:
  explicit Simulation(int ranks) : ranks_(ranks) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto n = static_cast<std::size_t>(sizes[i]);
      tensors_.push_back({doubles(weights_of(i)), Doubles(n), Doubles(n), Doubles(n),
                          std::vector<Doubles>(static_cast<std::size_t>(ranks), Doubles(n))});
    }
  }

  void update(std::int64_t number) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& t = tensors_[i];
      std::vector<Doubles> gradients;
      for (int rank = 0; rank < ranks_; ++rank) gradients.push_back(doubles(gradient_of(rank, number, i)));
      if (number < freeze) {
        for (std::size_t k = 0; k < t.p.size(); ++k) {
          double g = 0.0;
          for (const Doubles& one : gradients) g += one[k];
          t.m[k] += (1 - beta1) * (g - t.m[k]);
          t.v[k] = beta2 * t.v[k] + (1 - beta2) * g * g;
        }
      } else {
        exchange(t, gradients);
      }
      for (std::size_t k = 0; k < t.p.size(); ++k)
        t.p[k] -= rate * (t.m[k] / (std::sqrt(t.v[k]) + epsilon) + decay * t.p[k]);
    }
  }

  const Doubles& weights(std::size_t tensor) const { return tensors_[tensor].p; }

 private:
  struct Tensor {
    Doubles p, m, v, share_errors;
    std::vector<Doubles> own_errors;  // by rank
  };

  // Gives what the signs and the scale of elements [begin, end) are, and takes it off them.
  static Doubles taken(Doubles& x, const Doubles& v, std::size_t begin, std::size_t end) {
    double squares = 0.0, count = 0.0;
    for (std::size_t k = begin; k < end; ++k)
      if (v[k] > 0) squares += x[k] * x[k], count += 1;
    const double scale = std::sqrt(squares / std::max(count, 1.0));
    Doubles signs(x.size());
    for (std::size_t k = begin; k < end; ++k) {
      if (v[k] == 0) {
        x[k] = 0;
        continue;
      }
      signs[k] = x[k] >= 0 ? scale : -scale;
      x[k] -= signs[k];
    }
    return signs;
  }

  void exchange(Tensor& t, const std::vector<Doubles>& gradients) {
    const std::size_t n = t.p.size(), ranks = gradients.size();
    if (ranks == 1) {
      for (std::size_t k = 0; k < n; ++k) t.m[k] = t.v[k] == 0 ? 0 : t.m[k] + (1 - beta1) * (gradients[0][k] - t.m[k]);
      return;
    }
    Doubles mean(n);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Doubles& x = t.own_errors[rank];
      for (std::size_t k = 0; k < n; ++k)
        x[k] += t.m[k] + (1 - beta1) * (static_cast<double>(ranks) * gradients[rank][k] - t.m[k]);
      const Doubles sent = taken(x, t.v, 0, n);
      for (std::size_t k = 0; k < n; ++k) mean[k] += sent[k] / static_cast<double>(ranks);
    }
    const std::size_t share = (n + 8 * ranks - 1) / (8 * ranks) * 8;
    for (std::size_t k = 0; k < n; ++k) t.share_errors[k] += mean[k];
    t.m.assign(n, 0.0);
    for (std::size_t begin = 0; begin < n; begin += share) {
      const std::size_t end = std::min(n, begin + share);
      const Doubles sent = taken(t.share_errors, t.v, begin, end);
      for (std::size_t k = begin; k < end; ++k) t.m[k] = sent[k];
    }
  }

  int ranks_;
  std::vector<Tensor> tensors_;
};

double furthest(const at::Tensor& found, const Doubles& expected) {
  double worst = 0.0;
  const Doubles mine = doubles(found);
  for (std::size_t k = 0; k < expected.size(); ++k) worst = std::max(worst, std::abs(mine[k] - expected[k]));
  return worst;
}

struct Rank {
  Host host{options};
  std::unique_ptr<Optimizer> optimizer{library().make<Optimizer>(host)};
  Run run;
  std::vector<Piece> pieces = fresh_pieces();

  void connect(Group& group) {
    REQUIRE(host.optimizer != nullptr);
    host.optimizer->connect(group, run, {infos()});
  }
};

}  // namespace

TEST_CASE("onebit_adam's ranks come to what one process comes to that rounds the same momenta") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    constexpr std::int64_t updates = 9;
    Simulation simulation(ranks);
    for (std::int64_t number = 0; number < updates; ++number) simulation.update(number);
    std::vector<double> worst(static_cast<std::size_t>(ranks), 1.0);
    std::vector<std::vector<at::Tensor>> weights(static_cast<std::size_t>(ranks));
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      Rank rank;
      if (ranks > 1) rank.connect(group);
      for (std::int64_t number = 0; number < updates; ++number)
        update(*rank.optimizer, rank.pieces, number, group.rank(), ranks);
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

TEST_CASE("onebit_adam sends a sixteenth of the bytes of gradients in fp16") {
  constexpr std::int64_t elements = 1 << 16;
  const PieceInfo info{"large", {elements}, 0, elements};
  for (const int ranks : {2, 4}) {
    std::int64_t sent = 0;
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      Rank rank;
      rank.host.optimizer->connect(group, rank.run, {{info}});
      Piece piece;
      piece.info = info;
      piece.master = at::zeros({elements});
      piece.gradient = at::ones({elements});
      piece.state = {at::ones({elements}), at::ones({elements})};
      Piece* const pointer = &piece;
      StepScalars scalars;
      scalars.updates = freeze;
      scalars.gradient_factor = scalars.apply = at::ones({});
      rank.optimizer->step(std::span(&pointer, 1), 0, scalars);
      if (group.rank() == 0) sent = group.traffic().total_bytes();
    });
    const std::int64_t in_fp16 = logical_bytes(Collective::AllReduce, 2 * elements, ranks);
    CHECK(sent == 2 * (elements / 8 + 4 * ranks) * (ranks - 1) / ranks);
    CHECK(static_cast<double>(in_fp16) / static_cast<double>(sent) > 15.9);
  }
}

TEST_CASE("onebit_adam resumes bit by bit, and a skipped update changes nothing") {
  constexpr int ranks = 3;
  constexpr std::int64_t updates = 9;
  const auto train = [&](std::int64_t resume, bool with_errors, bool skips) {
    std::vector<std::vector<at::Tensor>> result(ranks);
    fakes::on_ranks(ranks, [&](CheckedGroup& group) {
      fakes::SavedState saved;
      std::vector<Piece> pieces;
      for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, resume}, {resume, updates}}) {
        Rank rank;
        rank.connect(group);
        if (begin > 0) rank.pieces = pieces;
        if (begin > 0 && with_errors) rank.optimizer->load(saved, 1);
        for (std::int64_t number = begin; number < end; ++number) {
          if (skips) update(*rank.optimizer, rank.pieces, number, 1, ranks, false);
          update(*rank.optimizer, rank.pieces, number, group.rank(), ranks);
        }
        if (end < updates) rank.optimizer->save(saved);
        pieces = rank.pieces;
      }
      for (const Piece& piece : pieces) result[static_cast<std::size_t>(group.rank())].push_back(piece.master);
    });
    return result;
  };
  const auto equal = [](const auto& one, const auto& other) {
    for (std::size_t rank = 0; rank < one.size(); ++rank)
      for (std::size_t i = 0; i < one[rank].size(); ++i)
        if (!at::equal(one[rank][i], other[rank][i])) return false;
    return true;
  };
  const auto whole = train(updates, true, false);
  for (const std::int64_t resume : {2, 3, 6, 8}) {
    CAPTURE(resume);
    CHECK(equal(train(resume, true, false), whole));
  }
  CHECK_FALSE(equal(train(6, false, false), whole));
  CHECK(equal(train(updates, true, true), whole));
}
