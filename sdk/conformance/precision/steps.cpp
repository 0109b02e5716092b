// Drawn runs of a precision policy without a run: which steps' gradients are finite, and its decision for each.
#include <strata/error.hpp>
#include <strata/fakes/saved_state.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "conformance/precision/checks.hpp"

namespace strata::conformance::precision_checks {

namespace {

using Policy = fakes::LoadedPlugin<PrecisionPolicy>;
constexpr int patience = 20'000;  // steps in a row that overflow
constexpr MeshShape two_ranks{{Axis::Data, 2}};

struct Step {
  double loss_scale = 0.0;  // that the step's loss was multiplied by
  Verdict verdict = Verdict::Apply;
  double next_scale = 0.0;
  std::string stop_reason;  // of Stop
  bool operator==(const Step&) const = default;
};

std::string to_string(const Step& step) {
  static constexpr const char* names[] = {"Apply", "Skip", "Stop"};
  return format("{} at loss scale {}, then {}{}", names[static_cast<std::size_t>(step.verdict)], step.loss_scale,
                step.next_scale, step.stop_reason.empty() ? "" : " (" + step.stop_reason + ")");
}

Step judge(PrecisionPolicy& policy, std::int64_t number, bool finite) {
  const double norm = finite            ? 0.5 + static_cast<double>(number % 7)
                      : number % 2 == 0 ? std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
  Step step;
  step.loss_scale = policy.loss_scale();
  step.verdict = policy.judge({number, norm, finite});
  step.next_scale = policy.loss_scale();
  if (step.verdict == Verdict::Stop) step.stop_reason = policy.stop_reason();
  return step;
}

// Formats of drawn parameters, as they must stay.
class Formats {
 public:
  Formats(const PrecisionPolicy& policy, Draws& draws) : activation_(policy.activation()) {
    width_of(activation_, "activation()");
    const std::vector<std::string> names{"layers.0.attention.weight", "final_norm.bias", "embed_in.weight"};
    for (auto more = draws.between(1, 6); more > 0; --more) {
      std::vector<std::int64_t> shape(static_cast<std::size_t>(draws.between(0, 3)));
      for (std::int64_t& extent : shape) extent = draws.size(64);
      const ParameterInfo info{draws.pick(names), shape, Initializer::zeros(), !draws.chance(3), ""};
      const DTypes dtypes = policy.dtypes(info);
      const std::size_t width = width_of(dtypes.parameter, "the parameter dtype of " + info.name);
      width_of(dtypes.gradient, "the gradient dtype of " + info.name);
      width_of(dtypes.reduction, "the reduction dtype of " + info.name);
      require(width_of(dtypes.master, "the master dtype of " + info.name) >= width,
              "the master dtype of " + info.name + " is " + c10::toString(dtypes.master) +
                  ", narrower than the parameter's " + c10::toString(dtypes.parameter) +
                  ", so the parameter would lose precision");
      all_.emplace_back(info, dtypes);
    }
  }

  void require_same(const PrecisionPolicy& policy) const {
    for (auto one = all_.rbegin(); one != all_.rend(); ++one)
      require(policy.dtypes(one->first) == one->second,
              "dtypes() of " + one->first.name + " changes between calls or ranks; the engine allocates by the first");
    require(policy.activation() == activation_, "activation() changes between calls or ranks");
  }

 private:
  static std::size_t width_of(at::ScalarType dtype, const std::string& what) {
    require(c10::isFloatingType(dtype), what + " is " + c10::toString(dtype) + ", which is no floating-point format");
    return c10::elementSize(dtype);
  }
  at::ScalarType activation_;
  std::vector<std::pair<ParameterInfo, DTypes>> all_;
};

// The policy on two ranks; the second is saved and loaded now and then.
class Course {
 public:
  Course(Subject& subject, const fakes::OptionTexts& options)
      : subject_(subject),
        options_(options),
        values_(subject.library().values(options)),
        policy_(subject.make<PrecisionPolicy>(options)),
        other_(subject.make<PrecisionPolicy>(options, 1, two_ranks)) {
    if (values_.contains("max_consecutive_skips")) allowed_ = values_.integer("max_consecutive_skips");
  }

  PrecisionPolicy& policy() const { return *policy_; }
  PrecisionPolicy& other() const { return **other_; }
  std::optional<std::int64_t> allowed() const { return allowed_; }

  void resume() {
    fakes::SavedState state;
    (*other_)->save(state);
    other_.emplace(subject_.make<PrecisionPolicy>(options_, 1, two_ranks));
    (*other_)->load(state, (*other_)->state_version());
    is_resumed_ = true;
  }

  // False where the run ends.
  bool step(bool finite) {
    const Step step = judge(*policy_, number_, finite), theirs = judge(**other_, number_, finite);
    const std::string at = format("step {} gives {}", number_++, to_string(step));
    require(step == theirs,
            at + " on one rank and " + to_string(theirs) + " on another" +
                (is_resumed_ ? ", which was saved and loaded before; all ranks and resumed runs" : "; all ranks") +
                " must decide alike");
    require(finite || step.verdict != Verdict::Apply,
            at + "; its gradients are not finite and were not applied, so the verdict must be Skip or Stop");
    require(!finite || step.verdict != Verdict::Skip,
            at + "; its gradients are finite and were applied, so the verdict must be Apply or Stop");
    check_scales(step, at);
    in_a_row_ = finite ? 0 : in_a_row_ + 1;
    require(
        step.verdict != Verdict::Skip || !allowed_ || in_a_row_ <= *allowed_,
        format("{}, overflow {} in a row, but max_consecutive_skips allows {}", at, in_a_row_, allowed_.value_or(0)));
    require(step.verdict != Verdict::Stop || step.stop_reason.find_first_not_of(' ') != std::string::npos,
            "the run stops, but stop_reason() is empty; it must tell the user why the run ended");
    return step.verdict != Verdict::Stop;
  }

 private:
  void check_scales(const Step& step, const std::string& at) {
    for (const double scale : {step.loss_scale, step.next_scale})
      require(std::isfinite(scale) && scale > 0.0, at + "; a loss scale must be finite and above 0");
    require(step.loss_scale == step.next_scale || policy_->searches_scale(),
            at + "; a policy whose loss scale changes says so in searches_scale()");
    require(!last_scale_ || step.loss_scale == *last_scale_,
            format("{}, but after the previous step the scale was {}; only judge() may change it", at,
                   last_scale_.value_or(0)));
    last_scale_ = step.next_scale;
    int exponent = 0;
    require(step.loss_scale == step.next_scale || std::frexp(step.next_scale / step.loss_scale, &exponent) == 0.5 ||
                is_named_by_an_option(step.next_scale),
            at + "; the scale must change by a power of two, so that scaling is exact");
  }

  // Whether a number option has this value: a user's limit stays.
  bool is_named_by_an_option(double value) const {
    return std::ranges::any_of(values_.names(), [&](const std::string& name) {
      const double* const number = std::get_if<double>(&values_.value(name));
      return number != nullptr && *number == value;
    });
  }

  Subject& subject_;
  fakes::OptionTexts options_;
  OptionValues values_;
  Policy policy_;
  std::optional<Policy> other_;
  std::optional<std::int64_t> allowed_;
  std::optional<double> last_scale_;
  std::int64_t number_ = 0, in_a_row_ = 0;
  bool is_resumed_ = false;
};

}  // namespace

bool steps_are_right(Subject& subject, Draws& draws, const Tell& tell) {
  const fakes::OptionTexts options = draws.options(subject.manifest().options);
  std::optional<Course> course;
  try {
    course.emplace(subject, options);
  } catch (const UserError&) {
    return false;  // it takes other options
  }
  std::string said = "options: " + conformance::to_string(options);
  tell(said);
  const Formats formats(course->policy(), draws);
  bool goes_on = true;
  for (auto phases = draws.between(1, 5); phases > 0 && goes_on; --phases) {
    // Of `in` steps, that many overflow.
    const auto [overflows, in] =
        draws.pick<std::pair<std::uint64_t, std::uint64_t>>({{0, 1}, {1, 1}, {1, 2}, {1, 10}, {2, 3}, {1, 1000}});
    const std::int64_t steps = draws.size(draws.chance(4) ? 4096 : 64);
    const auto key = static_cast<std::uint64_t>(draws.between(0, 1000));
    tell(said += format("; {}, {} in {} overflow", count(static_cast<int>(steps), "step"), overflows, in));
    for (std::int64_t i = 0; i < steps && goes_on; ++i)
      goes_on = course->step(mixed(key, static_cast<std::uint64_t>(i)) % in >= overflows);
    if (goes_on && draws.chance(2)) course->resume(), tell(said += ", saved and loaded");
  }
  if (goes_on && draws.chance(4) && course->allowed().value_or(0) < patience) {
    tell(said += "; then every step overflows");
    for (int i = 0; i < patience && goes_on; ++i) goes_on = course->step(false);
    require(
        !goes_on,
        format("{} consecutive steps with non-finite gradients do not stop the run, so a diverged run would never end",
               patience));
  }
  for (const PrecisionPolicy* const one : {&course->policy(), &course->other()}) formats.require_same(*one);
  return true;
}

}  // namespace strata::conformance::precision_checks
