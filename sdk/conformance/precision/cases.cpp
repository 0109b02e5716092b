// Cases for precision policies: verdicts and loss scales over scripted overflows, and number formats. For the matmul
// see linear_cases.cpp.
#include <strata/error.hpp>
#include <strata/fakes/saved_state.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "precision/linear_cases.hpp"
#include "precision/repeat_cases.hpp"
#include "precision/scripts.hpp"

namespace strata::conformance {

namespace {

using fakes::OptionTexts;
using Policy = fakes::LoadedPlugin<PrecisionPolicy>;

// Plays every script on a fresh instance with every setting.
void each_trace(Subject& subject, std::string_view case_name,
                const std::function<void(const OptionTexts&, const Script&, const Trace&)>& check) {
  const std::vector<Script> all = scripts(subject.random(case_name));
  each_setting(subject, [&](const OptionTexts& setting) {
    for (const Script& script : all) {
      Policy policy = subject.make<PrecisionPolicy>(setting);
      check(setting, script, play(*policy, script));
    }
  });
}

std::string at(const Script& script, std::size_t step, const Trace& trace) {
  return "where " + script.name + ", step " + std::to_string(step) + " gives " + to_string(trace[step]);
}

void verdicts_follow_the_gradients(Subject& subject) {
  each_trace(subject, "precision.verdicts", [](const OptionTexts&, const Script& script, const Trace& trace) {
    for (std::size_t i = 0; i < trace.size(); ++i) {
      const Verdict verdict = trace[i].verdict;
      require(script.finite[i] || verdict != Verdict::Apply, at(script, i, trace) +
                                                                 "; its gradients are not finite and were not "
                                                                 "applied, so the verdict must be Skip or Stop");
      require(!script.finite[i] || verdict != Verdict::Skip, at(script, i, trace) +
                                                                 "; its gradients are finite and were "
                                                                 "applied, so the verdict must be Apply or Stop");
    }
  });
}

void ranks_agree(Subject& subject) {
  each_trace(subject, "precision.deterministic",
             [&](const OptionTexts& setting, const Script& script, const Trace& trace) {
               Policy other = subject.make<PrecisionPolicy>(setting, 1, {1, 2, 1});
               const Trace again = play(*other, script);
               for (std::size_t i = 0; i < std::min(trace.size(), again.size()); ++i)
                 require(trace[i] == again[i], at(script, i, trace) + " on one rank and " + to_string(again[i]) +
                                                   " on another; all ranks must "
                                                   "decide alike");
               require(trace.size() == again.size(), "where " + script.name + ", ranks stop at different steps");
             });
}

// Whether a number option has this value: a user's limit is what it is.
bool is_named_by_an_option(Subject& subject, const OptionTexts& setting, double value) {
  const OptionValues values = subject.library().values(setting);
  const std::vector<std::string> names = values.names();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const double* const number = std::get_if<double>(&values.value(name));
    return number != nullptr && *number == value;
  });
}

void loss_scales_are_exact(Subject& subject) {
  each_trace(subject, "precision.loss_scale",
             [&](const OptionTexts& setting, const Script& script, const Trace& trace) {
               const bool searches = subject.make<PrecisionPolicy>(setting)->searches_scale();
               for (std::size_t i = 0; i < trace.size(); ++i) {
                 const Step& step = trace[i];
                 require(std::isfinite(step.loss_scale) && step.loss_scale > 0.0 && std::isfinite(step.next_scale) &&
                             step.next_scale > 0.0,
                         at(script, i, trace) + "; a loss scale must be finite and above 0");
                 require(searches || step.loss_scale == step.next_scale,
                         at(script, i, trace) + "; a policy whose loss scale changes says so in searches_scale()");
                 require(i == 0 || step.loss_scale == trace[i - 1].next_scale,
                         at(script, i, trace) + ", but after the previous step the scale was " +
                             std::to_string(trace[i - 1].next_scale) + "; only judge() may change it");
                 int exponent = 0;
                 require(step.loss_scale == step.next_scale ||
                             std::frexp(step.next_scale / step.loss_scale, &exponent) == 0.5 ||
                             is_named_by_an_option(subject, setting, step.next_scale),
                         at(script, i, trace) + "; the scale must change by a power of two, so that scaling is exact");
               }
             });
}

std::optional<std::int64_t> skips_allowed(Subject& subject, const OptionTexts& setting) {
  const OptionValues values = subject.library().values(setting);
  if (!values.contains("max_consecutive_skips")) return std::nullopt;
  return values.integer("max_consecutive_skips");
}

void endless_overflow_stops(Subject& subject) {
  constexpr std::size_t patience = 20'000;
  const Script overflow{"every step overflows", std::vector<bool>(patience, false)};
  each_setting(subject, [&](const OptionTexts& setting) {
    const std::optional<std::int64_t> allowed = skips_allowed(subject, setting);
    if (allowed && *allowed >= static_cast<std::int64_t>(patience)) return;
    Policy policy = subject.make<PrecisionPolicy>(setting);
    const Trace trace = play(*policy, overflow);
    const Step& last = trace.back();
    require(last.verdict == Verdict::Stop,
            std::to_string(patience) +
                " consecutive steps with non-finite gradients do not stop the run, so a diverged run would never "
                "end");
    require(!allowed || static_cast<std::int64_t>(trace.size()) <= *allowed + 1,
            "the run stops at overflow " + std::to_string(trace.size()) + ", but max_consecutive_skips allows " +
                std::to_string(*allowed));
    require(last.stop_reason.find_first_not_of(' ') != std::string::npos,
            "the run stops, but stop_reason() is empty; it must tell "
            "the user why the run ended");
  });
}

void resumed_traces_are_equal(Subject& subject) {
  bool saves = false;
  const std::vector<Script> all = scripts(subject.random("precision.resume"));
  each_setting(subject, [&](const OptionTexts& setting) {
    for (const Script& script : all) {
      Policy whole = subject.make<PrecisionPolicy>(setting);
      const Trace expected = play(*whole, script);
      for (const std::size_t cut :
           {std::size_t{1}, std::size_t{2}, std::size_t{7}, expected.size() / 2, expected.size() - 1}) {
        if (cut == 0 || cut >= expected.size()) continue;  // nothing is saved after Stop
        Policy before = subject.make<PrecisionPolicy>(setting);
        play(*before, script, 0, cut);
        fakes::SavedState state;
        before->save(state);
        saves = saves || !state.names().empty();
        Policy after = subject.make<PrecisionPolicy>(setting);
        after->load(state, after->state_version());
        const Trace rest = play(*after, script, cut, script.finite.size());
        for (std::size_t i = 0; i < std::min(rest.size(), expected.size() - cut); ++i)
          require(rest[i] == expected[cut + i], "where " + script.name + ", a run saved after step " +
                                                    std::to_string(cut - 1) + " gives at step " +
                                                    std::to_string(cut + i) + " " + to_string(rest[i]) +
                                                    ", and an uninterrupted run " + to_string(expected[cut + i]));
        require(rest.size() == expected.size() - cut, "where " + script.name + ", a run saved after step " +
                                                          std::to_string(cut - 1) +
                                                          " stops at another step than an uninterrupted one");
      }
    }
  });
  if (!saves) throw Skip("the policy saves no state, and continues correctly without it");
}

// The shapes, names and kinds that models have.
std::vector<ParameterInfo> some_parameters() {
  std::vector<ParameterInfo> all;
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{64, 32}, {32}, {1}, {}, {3, 5, 7}})
    for (const char* name : {"layers.0.attention.weight", "final_norm.bias", "embed_in.weight"})
      for (const bool trainable : {true, false}) all.push_back({name, shape, Initializer::zeros(), trainable, ""});
  return all;
}

std::size_t width_of(at::ScalarType dtype, const char* what, const ParameterInfo& parameter) {
  require(c10::isFloatingType(dtype), "the " + std::string(what) + " dtype of " + parameter.name + " is " +
                                          c10::toString(dtype) + ", which is not a floating-point format");
  return c10::elementSize(dtype);
}

void dtypes_are_sane(Subject& subject) {
  each_setting(subject, [&](const OptionTexts& setting) {
    Policy policy = subject.make<PrecisionPolicy>(setting);
    Policy other = subject.make<PrecisionPolicy>(setting, 1, {1, 2, 1});
    const at::ScalarType activation = policy->activation();
    require(c10::isFloatingType(activation),
            std::string("activation() is ") + c10::toString(activation) + ", which is not a floating-point format");
    std::vector<DTypes> before;
    for (const ParameterInfo& parameter : some_parameters()) {
      const DTypes dtypes = before.emplace_back(policy->dtypes(parameter));
      const std::size_t width = width_of(dtypes.parameter, "parameter", parameter);
      width_of(dtypes.gradient, "gradient", parameter);
      width_of(dtypes.reduction, "reduction", parameter);
      require(width_of(dtypes.master, "master", parameter) >= width,
              "the master dtype of " + parameter.name + " is " + c10::toString(dtypes.master) +
                  ", narrower than the parameter's " + c10::toString(dtypes.parameter) +
                  ", so the parameter would lose precision");
    }
    play(*policy, {"", {true, false, true, true, false, false}});
    std::size_t i = 0;
    for (const ParameterInfo& parameter : some_parameters()) {
      const DTypes& first = before[i++];
      require(policy->dtypes(parameter) == first && policy->dtypes(parameter) == first,
              "dtypes() of " + parameter.name + " changes between calls; the engine allocates by the first answer");
      require(other->dtypes(parameter) == first, "dtypes() of " + parameter.name + " differs between ranks");
    }
    require(policy->activation() == activation && other->activation() == activation,
            "activation() changes between calls or ranks");
  });
}

}  // namespace

std::vector<Case> precision_cases() {
  std::vector<Case> cases{
      {"precision.verdicts", "Non-finite gradients are never applied, and finite ones are never skipped.",
       verdicts_follow_the_gradients},
      {"precision.deterministic", "All ranks give the same verdicts and loss scales.", ranks_agree},
      {"precision.loss_scale",
       "The loss scale is finite and positive; only judge() changes it, where searches_scale() says so, by powers of "
       "two or to a limit in the options.",
       loss_scales_are_exact},
      {"precision.stops", "Endless steps with non-finite gradients stop the run, with a reason.",
       endless_overflow_stops},
      {"precision.resume", "A policy that is saved and loaded in the middle of a run continues with the same verdicts.",
       resumed_traces_are_equal},
      {"precision.dtypes",
       "Formats are floating-point and depend only on the parameter, and masters are at least as wide as parameters.",
       dtypes_are_sane},
  };
  for (std::vector<Case> more : {linear_cases(), repeat_cases()})
    for (Case& one : more) cases.push_back(std::move(one));
  return cases;
}

}  // namespace strata::conformance
