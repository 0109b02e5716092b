// Optimizers that send signs, on ranks that are threads: the host and the run that they find, tensors to update, and
// one process that rounds the same values for all ranks, in fp64 and element by element.
#pragma once
#include <ATen/ATen.h>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/own_exchange.hpp>
#include <strata/plain_device.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"

namespace exchanging {

using namespace strata;

// A host that lets the optimizer exchange.
class Host final : public PluginContext, public OwnExchange {
 public:
  Host(const fakes::PluginLibrary& library, std::string name, const fakes::OptionTexts& options)
      : name_(std::move(name)), options_(library.values(options)) {}
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
  void partitioner_can_leave_gradients(bool) override {}
  bool leaves_gradients() const override { return false; }

  std::string logged;
  std::int64_t updates = 0;
  ExchangingOptimizer* optimizer = nullptr;

 private:
  std::string name_;
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

const std::vector<std::int64_t> sizes{1, 5, 37, 1000};

// This rank's own gradient, of which the last fourth of each tensor is 0 until update `quiet`.
inline at::Tensor gradient_of(int rank, std::int64_t update, std::size_t tensor, std::int64_t quiet) {
  const std::int64_t elements = sizes[tensor];
  at::Tensor g = at::arange(elements, at::kDouble)
                     .mul(1.3 + 0.1 * static_cast<double>(tensor))
                     .add(0.7 * rank + 1.9 * static_cast<double>(update))
                     .sin()
                     .to(at::kFloat);
  if (update < quiet && elements > 3) g.narrow(0, elements - elements / 4, elements / 4).zero_();
  return g;
}

// What a rank gets: of the first updates the sum over ranks.
inline std::vector<at::Tensor> gradients_of(std::int64_t number, int rank, int ranks, std::int64_t summed,
                                            std::int64_t quiet) {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    at::Tensor g = gradient_of(number < summed ? 0 : rank, number, i, quiet);
    for (int other = 1; number < summed && other < ranks; ++other) g = g + gradient_of(other, number, i, quiet);
    all.push_back(g);
  }
  return all;
}

inline at::Tensor weights_of(std::size_t tensor) {
  return at::arange(sizes[tensor], at::kDouble).mul(0.37).cos().to(at::kFloat);
}

inline std::vector<PieceInfo> infos() {
  std::vector<PieceInfo> list;
  for (std::size_t i = 0; i < sizes.size(); ++i) list.push_back({"p" + std::to_string(i), {sizes[i]}, 0, sizes[i]});
  return list;
}

inline at::Tensor range(const at::Tensor& whole, const PieceInfo& piece) {
  return whole.narrow(0, piece.begin, piece.end - piece.begin);
}

// One of `parts` equal parts of every tensor, where it is not empty: with the optimizer's state, and a parameter where
// it trains elsewhere.
inline std::vector<Piece> fresh_pieces(const Optimizer& optimizer, int part = 0, int parts = 1) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    PieceInfo info = infos()[i];
    info.begin = sizes[i] * part / parts;
    info.end = sizes[i] * (part + 1) / parts;
    if (info.begin == info.end) continue;
    Piece& piece = pieces.emplace_back();
    piece.info = info;
    piece.master = range(weights_of(i), info).clone();
    if (optimizer.trains_elsewhere()) piece.parameter = piece.master.clone();
    for (const StateTensor& state : optimizer.state(piece.info))
      piece.state.push_back(at::zeros({state.elements(piece.info)}));
  }
  return pieces;
}

// `gradients`: of all elements, this rank's own where `exchanging` is not null. They are twice as large as they are
// said to be: the loss scale.
inline void update(Optimizer& optimizer, ExchangingOptimizer* exchanging, std::vector<Piece>& pieces,
                   std::int64_t number, double rate, const std::vector<at::Tensor>& gradients, bool applied = true) {
  std::vector<Piece> own;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    own.emplace_back().info = infos()[i];
    own.back().gradient = gradients[i].mul(2.0);
  }
  std::vector<Piece*> pointers;
  for (Piece& piece : pieces) {
    const auto whole =
        std::ranges::find(own, piece.info.parameter, [](const Piece& one) { return one.info.parameter; });
    piece.gradient = range(whole->gradient, piece.info);
    pointers.push_back(&piece);
  }
  StepScalars scalars;
  scalars.learning_rate = rate;
  scalars.updates = number;
  scalars.gradient_factor = at::full({}, 0.5F);
  scalars.apply = at::full({}, applied ? 1.0F : 0.0F);
  if (exchanging != nullptr)
    exchanging->exchange(pointers, own, scalars);
  else
    optimizer.step(pointers, 0, scalars);
}

using Doubles = std::vector<double>;
inline Doubles doubles(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

// What travels of one tensor.
class SimulatedExchange {
 public:
  SimulatedExchange(int ranks, std::size_t elements)
      : share_errors_(elements), own_errors_(static_cast<std::size_t>(ranks), Doubles(elements)) {}

  // Of every rank's values, of elements whose variance is not 0.
  Doubles mean(const std::vector<Doubles>& values, const Doubles& variance) {
    const std::size_t n = variance.size(), ranks = values.size();
    Doubles sum(n), result(n);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Doubles& x = own_errors_[rank];
      for (std::size_t k = 0; k < n; ++k) x[k] += values[rank][k];
      const Doubles sent = taken(x, variance, 0, n);
      for (std::size_t k = 0; k < n; ++k) sum[k] += sent[k] / static_cast<double>(ranks);
    }
    const std::size_t share = (n + 8 * ranks - 1) / (8 * ranks) * 8;
    for (std::size_t k = 0; k < n; ++k) share_errors_[k] += sum[k];
    for (std::size_t begin = 0; begin < n; begin += share) {
      const std::size_t end = std::min(n, begin + share);
      const Doubles sent = taken(share_errors_, variance, begin, end);
      for (std::size_t k = begin; k < end; ++k) result[k] = sent[k];
    }
    return result;
  }

 private:
  // Gives what the signs and the scale of elements [begin, end) are, and takes it off them.
  static Doubles taken(Doubles& x, const Doubles& variance, std::size_t begin, std::size_t end) {
    double squares = 0.0, count = 0.0;
    for (std::size_t k = begin; k < end; ++k)
      if (variance[k] > 0) squares += x[k] * x[k], count += 1;
    const double scale = std::sqrt(squares / std::max(count, 1.0));
    Doubles signs(x.size());
    for (std::size_t k = begin; k < end; ++k) {
      if (variance[k] == 0) {
        x[k] = 0;
        continue;
      }
      signs[k] = x[k] >= 0 ? scale : -scale;
      x[k] -= signs[k];
    }
    return signs;
  }

  Doubles share_errors_;
  std::vector<Doubles> own_errors_;  // by rank
};

inline double furthest(const at::Tensor& found, const Doubles& expected) {
  double worst = 0.0;
  const Doubles mine = doubles(found);
  for (std::size_t k = 0; k < expected.size(); ++k) worst = std::max(worst, std::abs(mine[k] - expected[k]));
  return worst;
}

// By rank, a tensor each.
using OfRanks = std::vector<std::vector<at::Tensor>>;
inline bool equal(const OfRanks& one, const OfRanks& other) {
  for (std::size_t rank = 0; rank < one.size(); ++rank)
    for (std::size_t i = 0; i < one[rank].size(); ++i)
      if (!at::equal(one[rank][i], other[rank][i])) return false;
  return true;
}

}  // namespace exchanging
