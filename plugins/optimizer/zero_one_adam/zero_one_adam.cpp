// Optimizer zero_one_adam: 0/1 Adam (Lu et al., arXiv:2202.06009) as DeepSpeed's ZeroOneAdam computes it. Update s,
// from 1; g = this rank's gradient x gradient_factor, a term of the sum over the N ranks; G = that sum. There is no
// bias correction. x: the master weights, equal on all ranks; u: what this rank moved them since
// (momentum_accumulator).
//
//   s <= var_freeze_step, k divides s    m += (1 - beta1)(G - m);  v = beta2 v + (1 - beta2) G^2
//   s <= var_freeze_step, otherwise      m += (1 - beta1)(mean over ranks of N g, by SignExchange, - m)
//       x -= lr (m / (sqrt(v) + epsilon) + weight_decay x)
//   after it                             m += (1 - beta1)(N g - m);  r += lr
//       u -= lr (m / (sqrt(v) + epsilon) + weight_decay (x + u));  layers train at x + u
//       where h divides s:  U = mean over ranks of u (sqrt(v) + epsilon), by SignExchange;
//                           m = -U / r;  x += U / (sqrt(v) + epsilon);  u = r = 0
//
// k begins with 1 and doubles after every var_update_scaler updates of v; h begins with 1 and doubles after every
// local_step_scaler updates, up to local_step_clipper. Errors of signs begin with zeros after var_freeze_step, where
// they are of something else. Other than in DeepSpeed an element whose v is 0 has no m, and only the decay moves it.
//
// [Note: between two exchanges] evaluations, exports and checkpoints use x: the weights of the last exchange,
// equal on all ranks. m, u and errors are each rank's own. A checkpoint has them of every rank, and a run on the same
// ranks resumes bit by bit. On others, each element's m and u are those of the rank that wrote the element's x, and
// errors are zeros, which is logged.
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <strata/options.hpp>
#include <strata/own_exchange.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/adam_formula.hpp>
#include <strata/toolbox/sign_adam.hpp>
#include <strata/toolbox/sign_exchange.hpp>
#include <strata/toolbox/state_version.hpp>
#include <strata/toolbox/tensor_bytes.hpp>

#include <algorithm>
#include <map>
#include <span>

namespace {

using namespace strata;

#define ZERO_ONE_ADAM_OPTIONS(OPTION)                                                                                  \
  OPTION(numbers, betas, "[0.9, 0.999]", "min=0,max=1", "",                                                            \
         "Decay rates of the first and second moment; both below 1.")                                                  \
  OPTION(number, epsilon, 1e-8, "min=0", "", "Constant added to the square root of the second moment.")                \
  OPTION(number, weight_decay, 0.0, "min=0", "",                                                                       \
         "Weight decay: each step also subtracts learning rate x weight_decay x parameter.")                           \
  OPTION(integer, var_freeze_step, 100'000, "min=1", "updates",                                                        \
         "Number of updates before the second moment is frozen, such as the length of the learning rate's warm-up. "   \
         "Until then, ranks exchange gradients or their signs. Afterwards, they take local steps and exchange the "    \
         "signs of their weight changes. From the first exchange of signs on, the reported norm is the root of the "   \
         "sum of the squared norms of all ranks' own gradients.")                                                      \
  OPTION(integer, var_update_scaler, 16, "min=1", "updates",                                                           \
         "Growth of the interval between updates of the second moment, which sum full gradients. The interval starts " \
         "at 1 and doubles after this number of such updates. All other updates exchange signs, a sixteenth of the "   \
         "bytes of fp16 gradients.")                                                                                   \
  OPTION(integer, local_step_scaler, 32'678, "min=1", "updates",                                                       \
         "Growth of the interval between exchanges after var_freeze_step. The interval starts at 1 and doubles after " \
         "this number of updates. A suitable value is the number of updates in which the learning rate halves, "       \
         "because the drift between ranks grows with the rate.")                                                       \
  OPTION(integer, local_step_clipper, 16, "min=1", "updates",                                                          \
         "Maximum interval between exchanges after var_freeze_step.")
STRATA_OPTIONS(ZeroOneAdamOptions, ZERO_ONE_ADAM_OPTIONS)

using Step = toolbox::SignAdamStep;

class ZeroOneAdam final : public Optimizer, public ExchangingOptimizer {
 public:
  ZeroOneAdam(PluginContext& context, const ZeroOneAdamOptions& options)
      : context_(context),
        options_(options),
        summed_updates_(std::min(options.var_update_scaler, options.var_freeze_step)) {
    check_betas("zero_one_adam", options.betas);
    if (auto* const exchange = static_cast<OwnExchange*>(context.extension(OwnExchange::id)))
      exchange->optimizer_exchanges(summed_updates_, *this);
  }

  // `owns_all` is true where layers train elsewhere.
  void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& whole,
               bool /*owns_all*/) override {
    exchange_.connect(group, run, whole);
    for (const std::vector<PieceInfo>& call : whole)
      for (const PieceInfo& piece : call)
        own_[piece.parameter].begin = piece.begin, own_[piece.parameter].end = piece.end;
  }

  // lrs: r, of a parameter, for learning rates may have a factor by parameter.
  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override {
    return {{"exp_avg"}, {"exp_avg_sq"}, {"momentum_accumulator"}, {"lrs", at::kFloat, 1}};
  }
  bool trains_elsewhere() const override { return true; }

  void write_trained(const Piece& piece) const override {
    if (piece.master.is_meta()) return;
    const auto own = own_.find(piece.info.parameter);
    const bool loaded = own != own_.end() && own->second.loaded;
    const std::int64_t count = piece.info.end - piece.info.begin;
    const at::Tensor moved =
        loaded ? own->second.moved.narrow(0, piece.info.begin - own->second.begin, count).to(piece.master.device())
               : piece.state[2];
    piece.parameter.copy_(piece.master.to(at::kFloat) + moved);
  }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    for (Piece* const piece : pieces) {
      if (piece->master.is_meta()) return;  // in place: a dry run has nothing to count
      take_own(*piece);
    }
    if (scalars.updates < summed_updates_) return toolbox::sign_adam_warm_up(pieces, scalars, options_);
    if (scalars.updates < options_.var_freeze_step) return common_step(pieces, scalars);
    local_step(pieces, scalars);
  }

  void exchange(std::span<Piece* const> pieces, std::span<const Piece> /*own*/, const StepScalars& scalars) override {
    step(pieces, 0, scalars);
  }

  void save(StateWriter& writer) const override {
    if (!exchange_.connected()) return;
    exchange_.save(writer);
    std::vector<at::Tensor> momenta, moved;
    for (const auto& [parameter, own] : own_) {
      const bool none = !own.momentum.defined();  // no step yet
      momenta.push_back(none ? at::zeros({own.end - own.begin}) : own.momentum);
      moved.push_back(none ? at::zeros({own.end - own.begin}) : own.moved);
    }
    toolbox::save_tensors(writer, "exp_avg", momenta);
    toolbox::save_tensors(writer, "momentum_accumulator", moved);
  }

  void load(StateReader& reader, int version) override {
    toolbox::refuse_newer_state(*this, version);
    if (const std::string said = exchange_.load(reader); !said.empty())
      context_.log(LogLevel::Warning, said + "; momenta and local steps belong to the ranks that wrote the weights");
    if (!exchange_.has_saved(reader)) return;
    std::vector<at::Tensor> momenta, moved;
    for (auto& [parameter, own] : own_) {
      momenta.push_back(own.momentum = at::zeros({own.end - own.begin}));
      moved.push_back(own.moved = at::zeros({own.end - own.begin}));
      own.loaded = true;
    }
    toolbox::load_tensors(reader, "exp_avg", momenta);
    toolbox::load_tensors(reader, "momentum_accumulator", moved);
  }

 private:
  // This rank's own values of a parameter: the engine's state, whose elements are each saved once over the ranks; or,
  // until the first step, the loaded values.
  struct Own {
    std::int64_t begin = 0, end = 0;
    at::Tensor momentum, moved;
    bool loaded = false;
  };

  void take_own(const Piece& piece) {
    if (!exchange_.connected()) return;
    Own& own = own_.at(piece.info.parameter);
    if (own.loaded) {
      piece.state[0].copy_(own.momentum);
      piece.state[2].copy_(own.moved);
    }
    own.momentum = piece.state[0];
    own.moved = piece.state[2];
    own.loaded = false;
  }

  bool updates_variance(std::int64_t update) const {
    std::int64_t begin = 0, interval = 1;
    for (;; interval *= 2) {
      const std::int64_t last = (begin / interval + options_.var_update_scaler) * interval;
      if (update <= last) return update % interval == 0;
      begin = last;
    }
  }

  bool exchanges(std::int64_t update) const {
    std::int64_t interval = 1;
    for (std::int64_t left = (update - 1 - options_.var_freeze_step) / options_.local_step_scaler;
         left > 0 && interval < options_.local_step_clipper; --left)
      interval *= 2;
    return update % std::min(interval, options_.local_step_clipper) == 0;
  }

  void sum(std::vector<toolbox::Exchanged>& all) {
    std::vector<at::Tensor> values;
    for (const toolbox::Exchanged& one : all) values.push_back(one.value);
    const at::Tensor together = at::cat(values);
    exchange_.group().all_reduce(together, ReduceOperation::Sum).wait();
    std::int64_t begin = 0;
    for (toolbox::Exchanged& one : all) {
      one.value = together.narrow(0, begin, one.value.numel());
      begin += one.value.numel();
    }
  }

  // All ranks get the same m, v and x.
  void common_step(std::span<Piece* const> pieces, const StepScalars& scalars) {
    const bool variance = updates_variance(scalars.updates + 1);
    std::vector<toolbox::Exchanged> gradients;
    for (const Piece* const piece : pieces) {
      const at::Tensor g = toolbox::own_gradient(*piece, scalars), counts = piece->state[1].gt(0).to(at::kFloat);
      gradients.push_back({&piece->info, variance ? g : g.mul(exchange_.ranks()).mul(counts), counts});
    }
    if (exchange_.connected() && variance) sum(gradients);
    if (exchange_.connected() && !variance) exchange_.mean(gradients, scalars);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = *pieces[i];
      const Step step(piece, scalars, options_);
      const at::Tensor& g = gradients[i].value;
      const at::Tensor v = variance ? piece.state[1] * step.beta2 + g * g * step.rest2 : piece.state[1];
      const at::Tensor m = piece.state[0] + (g - piece.state[0]) * step.rest1;
      write_weights(piece, 0, step.moved(piece.master.to(at::kFloat), m, v), scalars);
      write_applied(piece.state[0], m, scalars);
      if (variance) write_applied(piece.state[1], v, scalars);
    }
  }

  // Every rank separately, then an exchange if one is due.
  void local_step(std::span<Piece* const> pieces, const StepScalars& scalars) {
    const bool exchanged = exchanges(scalars.updates + 1);
    struct Moved {
      at::Tensor m, root, u, rates;
    };
    std::vector<Moved> all;
    std::vector<toolbox::Exchanged> sent;
    for (const Piece* const piece : pieces) {
      if (scalars.updates == options_.var_freeze_step) exchange_.forget(piece->info);
      const Step step(*piece, scalars, options_);
      const at::Tensor &m = piece->state[0], &v = piece->state[1], &u = piece->state[2];
      const at::Tensor counts = v.gt(0).to(at::kFloat), g = toolbox::own_gradient(*piece, scalars);
      const at::Tensor momentum = (m + (g * exchange_.ranks() - m) * step.rest1) * counts;
      const at::Tensor moved = u - step.update(piece->master.to(at::kFloat) + u, momentum, v) * step.learning_rate;
      all.push_back({momentum, v.sqrt() + step.epsilon, moved, piece->state[3] + step.learning_rate});
      sent.push_back({&piece->info, moved * all.back().root * counts, counts});
    }
    if (exchanged && exchange_.connected()) exchange_.mean(sent, scalars);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = *pieces[i];
      auto& [m, root, u, rates] = all[i];
      if (exchanged) {
        const at::Tensor& mean = sent[i].value;
        const at::Tensor by_all = at::where(sent[i].counts > 0, mean / root, u);  // what does not count is equal
        write_weights(piece, 0, piece.master.to(at::kFloat) + by_all, scalars);
        m = at::where(rates > 0, mean.neg() / rates, m);
        u = at::zeros_like(u);
        rates = at::zeros_like(rates);
      } else {
        write_applied(piece.parameter, piece.master.to(at::kFloat) + u, scalars);
      }
      write_applied(piece.state[0], m, scalars);
      write_applied(piece.state[2], u, scalars);
      write_applied(piece.state[3], rates, scalars);
    }
  }

  PluginContext& context_;
  ZeroOneAdamOptions options_;
  std::int64_t summed_updates_;
  toolbox::SignExchange exchange_;
  std::map<std::string, Own> own_;  // by parameter; only where ranks exchange
};

}  // namespace

STRATA_PLUGIN(ZeroOneAdam, ZeroOneAdamOptions, ZERO_ONE_ADAM_OPTIONS)
