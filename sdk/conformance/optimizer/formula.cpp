#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "conformance/optimizer/checks.hpp"
#include "conformance/optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

constexpr double unit = 0x1p-23;  // of fp32, relative
constexpr double formula_rate = 0.02;

struct Element {
  double parameter = 0.0;
  double first = 0.0;   // exp_avg or momentum_buffer
  double second = 0.0;  // exp_avg_sq
};

// An element's new value in fp64, and the bound for fp32's difference.
struct Step {
  Element value;
  Element bound;
};

// One step's formula: element, gradient (unscaled), t from 1.
using Formula = std::function<Step(const Element& from, double gradient, int t)>;

struct AdamNumbers {
  double beta1, beta2, epsilon, decay;
  bool decoupled;
};

// Kingma and Ba, arXiv:1412.6980, algorithm 1, as torch writes it; decoupled: Loshchilov and Hutter, arXiv:1711.05101,
// algorithm 2.
Step adam(const AdamNumbers& n, const Element& from, double gradient, int t) {
  const double g = n.decoupled ? gradient : gradient + n.decay * from.parameter;
  const double size = std::abs(gradient) + (n.decoupled ? 0.0 : std::abs(n.decay * from.parameter));
  Step step;
  step.value.first = from.first + (1.0 - n.beta1) * (g - from.first);
  step.value.second = n.beta2 * from.second + (1.0 - n.beta2) * g * g;
  const double step_size = formula_rate / (1.0 - std::pow(n.beta1, t));
  const double denominator = std::sqrt(step.value.second) / std::sqrt(1.0 - std::pow(n.beta2, t)) + n.epsilon;
  const double shrunk = n.decoupled ? from.parameter * (1.0 - formula_rate * n.decay) : from.parameter;
  step.value.parameter = shrunk - step_size * step.value.first / denominator;
  step.bound.first = 4 * unit * (std::abs(from.first) + size);
  step.bound.second = 6 * unit * (n.beta2 * from.second + (1.0 - n.beta2) * size * size);
  step.bound.parameter = 4 * unit * std::abs(from.parameter) +
                         step_size / denominator * (step.bound.first + 10 * unit * (std::abs(step.value.first) + size));
  return step;
}

struct SgdNumbers {
  double momentum, dampening, decay;
  bool nesterov;
  bool dampens_first;  // torch takes the first gradient whole
};

Step sgd(const SgdNumbers& n, const Element& from, double gradient, int t) {
  const double g = gradient + n.decay * from.parameter;
  const double size = std::abs(gradient) + std::abs(n.decay * from.parameter);
  Step step;
  const double fresh = t == 1 && !n.dampens_first ? 1.0 : 1.0 - n.dampening;
  step.value.first = n.momentum * from.first + fresh * g;
  const double direction = n.momentum == 0.0 ? g : n.nesterov ? g + n.momentum * step.value.first : step.value.first;
  step.value.parameter = from.parameter - formula_rate * direction;
  step.bound.first = 4 * unit * (std::abs(n.momentum * from.first) + size);
  step.bound.parameter = 4 * unit * std::abs(from.parameter) + formula_rate * (2 * step.bound.first + 4 * unit * size);
  return step;
}

// One published formula under its name.
struct Known {
  std::string name;
  Formula formula;
};

std::string state_names(const Optimizer& optimizer) {
  std::string text;
  for (const StateTensor& state : optimizer.state({"layer.weight", {64, 32}, 0, 2048}))
    text += (text.empty() ? "" : ", ") + state.name;
  return text;
}

// The formulas that this plugin with these options may follow; empty: none is known.
std::vector<Known> formulas(Subject& subject, const fakes::OptionTexts& options, const std::string& state) {
  const OptionValues values = subject.library().values(options);
  const auto number = [&](const char* name, double otherwise) {
    return values.contains(name) ? values.number(name) : otherwise;
  };
  if (state == "exp_avg, exp_avg_sq" && values.contains("betas") && values.numbers("betas").size() == 2) {
    const std::vector<double> betas = values.numbers("betas");
    const double epsilon = values.contains("epsilon") ? values.number("epsilon") : number("eps", 1e-8);
    std::vector<Known> known;
    for (const bool decoupled : {true, false}) {
      if (values.contains("decoupled") && values.boolean("decoupled") != decoupled) continue;
      const AdamNumbers numbers{betas[0], betas[1], epsilon, number("weight_decay", 0.0), decoupled};
      known.push_back({decoupled ? "AdamW" : "Adam", [numbers](const Element& from, double gradient, int t) {
                         return adam(numbers, from, gradient, t);
                       }});
    }
    return known;
  }
  const bool buffered = values.contains("momentum") && values.number("momentum") != 0.0;
  if (values.contains("momentum") && state == (buffered ? "momentum_buffer" : "")) {
    std::vector<Known> known;
    for (const bool dampens_first : {false, true}) {
      const SgdNumbers numbers{number("momentum", 0.0), number("dampening", 0.0), number("weight_decay", 0.0),
                               values.contains("nesterov") && values.boolean("nesterov"), dampens_first};
      known.push_back(
          {dampens_first ? "SGD that dampens its first gradient" : "SGD",
           [numbers](const Element& from, double gradient, int t) { return sgd(numbers, from, gradient, t); }});
    }
    return known;
  }
  return {};
}

// A parameter's numbers in fp64, from any format.
class Elements {
 public:
  explicit Elements(const ParameterTensors& parameter)
      : master_(parameter.master.to(at::kDouble, false, /*copy=*/true)),
        gradient_(parameter.gradient.to(at::kDouble, false, true)) {
    for (const at::Tensor& state : parameter.state) state_.push_back(state.to(at::kDouble, false, true));
  }
  Element at(std::int64_t index) const {
    return {master_.const_data_ptr<double>()[index], of_state(0, index), of_state(1, index)};
  }
  double gradient(std::int64_t index) const { return gradient_.const_data_ptr<double>()[index]; }

 private:
  double of_state(std::size_t number, std::int64_t index) const {
    return number < state_.size() ? state_[number].const_data_ptr<double>()[index] : 0.0;
  }
  at::Tensor master_, gradient_;
  std::vector<at::Tensor> state_;
};

// The relative error that storing the state adds to the formula's: 0 in fp32.
double rounding_of_state(const ParameterTensors& parameter) {
  double rounding = 0.0;
  for (const at::Tensor& state : parameter.state)
    rounding = std::max(rounding, state.scalar_type() == at::kBFloat16 ? std::exp2(-8)
                                  : state.scalar_type() == at::kHalf   ? std::exp2(-11)
                                                                       : 0.0);
  return rounding;
}

// Whether the state holds the formula's numbers, each compared separately.
bool holds_numbers(const Optimizer& optimizer) {
  return std::ranges::all_of(optimizer.state({"layer.weight", {64, 32}, 0, 2048}), [](const StateTensor& state) {
    return state.dtype == at::kFloat || state.dtype == at::kBFloat16 || state.dtype == at::kHalf ||
           state.dtype == at::kDouble;
  });
}

// Steps compared with one formula, some of them late in a run, each from where the plugin's own last one ended: "" or
// the first number that is too far away.
std::string beside(Subject& subject, const fakes::OptionTexts& options, const Known& known) {
  std::mt19937_64 random = subject.random("optimizer.known_formula");
  const auto plugin = subject.make<Optimizer>(options);
  const ParameterTensors parameter = make_parameter(*plugin, "layer.weight", {43, 59}, {}, random);
  const float factor = 0.3F;
  const double rounding = rounding_of_state(parameter);
  for (const int t : {1, 2, 3, 4, 5, 11, 1000, 1'000'000}) {
    parameter.gradient.copy_(draw_gradient(parameter.elements(), random));
    const Elements before(parameter);
    Piece piece = parameter.whole();
    fakes::update(*plugin, piece, scalars_of(formula_rate, t - 1, factor));
    const Elements after(parameter);
    for (std::int64_t i = 0; i < parameter.elements(); ++i) {
      const double gradient = before.gradient(i) * factor;
      Step wanted = known.formula(before.at(i), gradient, t);
      wanted.bound.first += rounding * std::abs(wanted.value.first);
      wanted.bound.second += rounding * std::abs(wanted.value.second);
      wanted.bound.parameter += 2 * rounding * std::abs(wanted.value.parameter - before.at(i).parameter);
      const Element found = after.at(i);
      const auto compare = [&](const char* what, double is, double should, double bound) -> std::string {
        if (std::abs(is - should) <= bound) return "";
        std::ostringstream text;
        text.precision(9);
        text << "step " << t << ", element " << i << ": the " << what << " becomes " << is << ", " << known.name
             << " in fp64 gives " << should << " (within " << bound << ")";
        return text.str();
      };
      std::string text = compare("parameter", found.parameter, wanted.value.parameter, wanted.bound.parameter);
      if (text.empty() && !parameter.state.empty())
        text = compare("first state tensor", found.first, wanted.value.first, wanted.bound.first);
      if (text.empty() && parameter.state.size() > 1)
        text = compare("second state tensor", found.second, wanted.value.second, wanted.bound.second);
      if (!text.empty()) return text;
    }
  }
  return "";
}

}  // namespace

void known_formula(Subject& subject) {
  const std::vector<fakes::OptionTexts> tried{{},
                                              {{"weight_decay", "0"}},
                                              {{"weight_decay", "0.1"}, {"betas", "[0.8, 0.95]"}, {"epsilon", "1e-3"}},
                                              {{"weight_decay", "0.1"}, {"decoupled", "false"}},
                                              {{"momentum", "0.9"}},
                                              {{"momentum", "0.9"}, {"weight_decay", "0.1"}},
                                              {{"momentum", "0.9"}, {"dampening", "0.3"}},
                                              {{"momentum", "0.9"}, {"nesterov", "true"}, {"weight_decay", "0.1"}}};
  std::set<std::string> options_known;
  for (const OptionSpec& option : subject.manifest().options) options_known.insert(option.name);
  bool compared = false, sums = false;
  std::string state;
  for (const fakes::OptionTexts& options : tried) {
    if (!std::all_of(options.begin(), options.end(),
                     [&](const auto& option) { return options_known.contains(option.first); }))
      continue;
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      if ((sums = has_sums(optimizer, {43, 59}))) return;  // no formula of single elements
      state = state_names(optimizer);
      if (!holds_numbers(optimizer)) return;
      const std::vector<Known> known = formulas(subject, options, state);
      if (known.empty()) return;
      compared = true;
      std::string first;
      for (const Known& one : known) {
        const std::string found = beside(subject, options, one);
        if (found.empty()) return;
        if (first.empty()) first = found;
      }
      throw Failure("with options " + to_string(options) + " the state and options are those of " + known.front().name +
                    ", but at " + first);
    });
  }
  if (!compared)
    throw Skip(
        "the kit knows the formulas of AdamW (state exp_avg and exp_avg_sq, option betas) and of SGD (option momentum, "
        "state momentum_buffer); this optimizer " +
        (sums ? "sums over parameters" : "has the state '" + state + "'"));
}

}  // namespace strata::conformance::optimizer_checks
