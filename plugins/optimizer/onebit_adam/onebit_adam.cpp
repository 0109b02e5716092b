// Optimizer onebit_adam: 1-bit Adam (Tang et al., arXiv:2102.02888) as DeepSpeed's OnebitAdam computes it. With
// g = gradient x gradient_factor, the sum over the N ranks of theirs:
//
//   warm-up, freeze_step updates   m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
//   then, of this rank's own g     m = mean over ranks of m + (1 - beta1)(N g - m), by SignExchange; v stays
//   always                         p -= lr (m / (sqrt(v) + epsilon) + weight_decay p)
//
// There is no bias correction. One rank sends nothing: its m is exact. An element whose v is still 0 has no scale of
// its own to be divided by: its m is 0 from then on, and only the decay moves it.
//
// Where the ranks share the state (ZeRO stage 1) each moves its part of p by its part of v, and keeps all of m, from
// which the next exchange starts. The messages are the same, and so are the bits. Its first exchange, and the first of
// a resumed run, sums the parts of m before, in fp32.
#include <ATen/TensorOperators.h>
#include <strata/options.hpp>
#include <strata/own_exchange.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/adam_formula.hpp>
#include <strata/toolbox/sign_adam.hpp>
#include <strata/toolbox/sign_exchange.hpp>
#include <strata/toolbox/state_version.hpp>

#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace strata;

#define ONEBIT_ADAM_OPTIONS(OPTION)                                                                                    \
  STRATA_MOMENT_OPTIONS(OPTION)                                                                                        \
  OPTION(number, weight_decay, 0.0, "min=0", "",                                                                       \
         "Weight decay: each step also subtracts learning rate x weight_decay x parameter.")                           \
  OPTION(                                                                                                              \
      integer, freeze_step, 100'000, "min=1", "updates",                                                               \
      "Number of warm-up updates, which are Adam's with full gradient sums; 15 to 25 % of a run in the paper. After "  \
      "the warm-up the second moment is frozen, and ranks exchange signs of momenta, a sixteenth of the bytes of "     \
      "fp16 gradients. From then on, the reported norm is the root of the sum of the squared norms of all ranks' own " \
      "gradients.")
STRATA_OPTIONS(OnebitAdamOptions, ONEBIT_ADAM_OPTIONS)

using Step = toolbox::SignAdamStep;

class OnebitAdam final : public Optimizer, public ExchangingOptimizer {
 public:
  OnebitAdam(PluginContext& context, const OnebitAdamOptions& options) : context_(context), options_(options) {
    check_betas("onebit_adam", options.betas);
    if (auto* const exchange = static_cast<OwnExchange*>(context.extension(OwnExchange::id)))
      exchange->optimizer_exchanges(options.freeze_step, *this);
  }

  void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& whole,
               bool owns_all) override {
    exchange_.connect(group, run, whole);
    if (owns_all) return;
    for (const std::vector<PieceInfo>& call : whole) {
      std::int64_t elements = 0;
      for (const PieceInfo& piece : call) elements += piece.end;
      Momenta& momenta = momenta_[call.front().parameter];
      momenta.all = run.store().allocate(Category::Optimizer, Tier::Device,
                                         call.front().parameter + ", momenta of all ranks", elements, at::kFloat);
      for (std::int64_t begin = 0; const PieceInfo& piece : call) {
        momenta.of.emplace(piece.parameter, momenta.all.narrow(0, begin, piece.end));
        begin += piece.end;
      }
    }
  }

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {{"exp_avg"}, {"variance"}}; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    if (scalars.updates < options_.freeze_step) return toolbox::sign_adam_warm_up(pieces, scalars, options_);
    std::vector<toolbox::Exchanged> momenta;
    for (const Piece* const piece : pieces) {
      if (piece->master.is_meta()) return;  // in place: a dry run has nothing to count
      momenta.push_back(own_momentum(*piece, piece->state[0].to(at::kFloat), counts(*piece).to(at::kFloat), scalars));
    }
    if (exchange_.connected()) exchange_.mean(momenta, scalars);
    for (std::size_t i = 0; i < pieces.size(); ++i) write(*pieces[i], momenta[i].value, scalars);
  }

  void exchange(std::span<Piece* const> pieces, std::span<const Piece> own, const StepScalars& scalars) override {
    if (momenta_.empty()) return step(pieces, 0, scalars);  // of all elements
    Momenta& before = momenta_.at(own.front().info.parameter);
    if (!std::exchange(before.known, true)) sum(before, pieces);
    std::vector<toolbox::Exchanged> momenta;
    std::map<std::string, at::Tensor> after;
    for (const Piece& piece : own) {
      const at::Tensor& m = before.of.at(piece.info.parameter);
      const at::Tensor none = m.isnan();
      momenta.push_back(own_momentum(piece, m.masked_fill(none, 0.0), none.logical_not().to(at::kFloat), scalars));
    }
    exchange_.mean(momenta, scalars);
    for (const toolbox::Exchanged& one : momenta) {
      const at::Tensor& m = before.of.at(one.piece->parameter);
      after.emplace(one.piece->parameter, one.value);
      write_applied(m, one.value.masked_fill(m.isnan(), not_counted), scalars);
    }
    for (Piece* const piece : pieces) write(*piece, range(after, piece->info), scalars);
  }

  void save(StateWriter& writer) const override { exchange_.save(writer); }
  void load(StateReader& reader, int version) override {
    toolbox::refuse_newer_state(*this, version);
    if (const std::string said = exchange_.load(reader); !said.empty()) context_.log(LogLevel::Warning, said);
    for (auto& [parameter, momenta] : momenta_) momenta.known = false;
  }

 private:
  static constexpr float not_counted = std::numeric_limits<float>::quiet_NaN();
  // Of one call, where this rank's state is a part: every rank's momentum of each element, not_counted where its v is
  // 0.
  struct Momenta {
    at::Tensor all;
    std::map<std::string, at::Tensor> of;  // its parts, by parameter
    bool known = false;
  };

  static at::Tensor counts(const Piece& piece) { return piece.state[1].gt(0); }
  static at::Tensor range(const std::map<std::string, at::Tensor>& values, const PieceInfo& piece) {
    return values.at(piece.parameter).narrow(0, piece.begin, piece.end - piece.begin);
  }

  // The momenta that the owners came to by themselves: those of the warm-up, or of a checkpoint.
  void sum(Momenta& momenta, std::span<Piece* const> pieces) {
    momenta.all.zero_();
    for (const Piece* const piece : pieces)
      range(momenta.of, piece->info).copy_(piece->state[0].masked_fill(counts(*piece).logical_not(), not_counted));
    exchange_.group().all_reduce(momenta.all, ReduceOperation::Sum).wait();
  }

  // By this rank's own gradient, from the momentum that all ranks have.
  toolbox::Exchanged own_momentum(const Piece& piece, const at::Tensor& m, const at::Tensor& counts,
                                  const StepScalars& scalars) const {
    const at::Tensor g = toolbox::own_gradient(piece, scalars);
    const float rest1 = Step(piece, scalars, options_).rest1;
    return {&piece.info, m.add(g.mul(exchange_.ranks()).sub(m).mul(rest1)).mul(counts), counts};
  }

  void write(const Piece& piece, const at::Tensor& m, const StepScalars& scalars) const {
    const at::Tensor p = piece.master.to(at::kFloat);
    write_applied(piece.state[0], m, scalars);
    write_weights(piece, 0, Step(piece, scalars, options_).moved(p, m, piece.state[1]), scalars);
  }

  PluginContext& context_;
  OnebitAdamOptions options_;
  toolbox::SignExchange exchange_;
  std::map<std::string, Momenta> momenta_;  // by the call's first parameter
};

}  // namespace

STRATA_PLUGIN(OnebitAdam, OnebitAdamOptions, ONEBIT_ADAM_OPTIONS)
