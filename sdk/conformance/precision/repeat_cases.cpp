#include "precision/repeat_cases.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <strata/fakes/run_context.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>

#include <string>

#include "precision/scripts.hpp"

namespace strata::conformance {

namespace {

constexpr std::int64_t rows = 32, in = 48, out = 16;

// A policy in a run over a model of one weight.
struct Running {
  Running(Subject& subject, const fakes::OptionTexts& setting) : policy(subject.make<PrecisionPolicy>(setting)) {
    policy->run_begins(run);
    policy->attach(
        {LayerInfo{.name = "block 0", .parameters = {weight}}, LayerInfo{.name = "block 1", .parameters = {other}}});
  }

  fakes::FakeRunContext run;
  fakes::LoadedPlugin<PrecisionPolicy> policy;
  const ParameterInfo weight = info("layers.0.weight"), other = info("layers.1.weight");

 private:
  static ParameterInfo info(const char* name) {
    ParameterInfo made;
    made.name = name;
    made.shape = {out, in};
    made.linear_only = true;
    return made;
  }
};

// The tensors of a step: other magnitudes each time.
struct Drawn {
  Drawn(const PrecisionPolicy& policy, const ParameterInfo& weight, double size) {
    x = at::randn({rows, in}).mul(size).to(policy.activation());
    w = {weight, at::randn({out, in}).to(policy.dtypes(weight).parameter)};
    dy = at::randn({rows, out}).mul(1e-3 * size).to(policy.activation());
  }
  at::Tensor x, dy;
  Parameter w;
};

struct Results {
  Results(PrecisionPolicy& policy, const Drawn& drawn)
      : y(policy.linear(drawn.x, drawn.w, {})), dx(policy.input_gradient(drawn.dy, drawn.w)) {
    dw = at::zeros({out, in}, at::TensorOptions().dtype(policy.dtypes(drawn.w.info).gradient));
    policy.add_weight_gradient(drawn.dy, drawn.x, drawn.w.info, dw);
    if (const at::Tensor maxima = policy.maxima(); maxima.defined()) measured = maxima.clone();
  }

  // What differs, or nothing.
  std::string difference(const Results& other) const {
    if (!at::equal(y, other.y)) return "linear()";
    if (!at::equal(dx, other.dx)) return "input_gradient()";
    if (!at::equal(dw, other.dw)) return "add_weight_gradient()";
    if (measured.defined() && !at::equal(measured, other.measured)) return "what maxima() measured";
    return "";
  }
  at::Tensor y, dx, dw, measured;
};

void begin_step(PrecisionPolicy& policy) {
  const at::Tensor maxima = policy.maxima();
  if (!maxima.defined()) return;
  require(maxima.scalar_type() == at::kFloat && maxima.dim() == 1, "maxima() must be fp32 numbers in one dimension");
  maxima.zero_();
}

void check_measured(PrecisionPolicy& policy) {
  const at::Tensor maxima = policy.maxima();
  require(!maxima.defined() || maxima.min().item<float>() >= 0.0F, "a number of maxima() is below 0");
}

constexpr double sizes[] = {1.0, 20.0, 0.01, 3.0};

void products_repeat(Subject& subject) {
  each_setting(subject, [&](const fakes::OptionTexts& setting) {
    Running running(subject, setting);
    PrecisionPolicy& policy = *running.policy;
    std::int64_t step = 0;
    for (const double size : sizes) {
      begin_step(policy);
      const Drawn drawn(policy, running.weight, size), small(policy, running.weight, 0.1 * size);
      Results(policy, small);
      const Results first(policy, drawn);
      Results(policy, small);  // another micro-batch
      const std::string differs = Results(policy, drawn).difference(first);
      require(differs.empty(), differs +
                                   " gives other bits when it is called again in a step with the same tensors, as "
                                   "for a recomputed layer");
      check_measured(policy);
      policy.judge({step++, 1.0, true});
    }
  });
}

void products_resume(Subject& subject) {
  each_setting(subject, [&](const fakes::OptionTexts& setting) {
    Running whole(subject, setting);
    std::int64_t step = 0;
    for (const double size : sizes) {
      begin_step(*whole.policy);
      const Drawn drawn(*whole.policy, whole.weight, size);
      Results(*whole.policy, drawn);
      whole.policy->judge({step++, 1.0, true});
      fakes::SavedState state;
      whole.policy->save(state);
      Running resumed(subject, setting);
      resumed.policy->load(state, resumed.policy->state_version());
      for (const double next : sizes) {
        const Drawn other(*whole.policy, whole.weight, next);
        begin_step(*whole.policy);
        begin_step(*resumed.policy);
        const std::string differs = Results(*resumed.policy, other).difference(Results(*whole.policy, other));
        require(differs.empty(), differs + " of a policy that was saved after step " + std::to_string(step) +
                                     " and loaded gives other bits than of one that goes on");
      }
    }
  });
}

}  // namespace

std::vector<Case> repeat_cases() {
  return {
      {"precision.products_repeat",
       "A product gives equal bits when it is called again in a step, and measures nothing more then.",
       products_repeat},
      {"precision.products_resume", "A policy that is saved and loaded multiplies as one that goes on.",
       products_resume},
  };
}

}  // namespace strata::conformance
