// Drawn updates, compared with the plainest: every parameter whole, by an instance of its own, its gradient already
// multiplied and in fp32, its learning rate and weight decay those of the step and the option.
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <strata/error.hpp>
#include <strata/fakes/saved_state.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <sstream>

#include "conformance/drawn/search.hpp"
#include "conformance/optimizer/checks.hpp"
#include "conformance/optimizer/guarded.hpp"
#include "conformance/optimizer/world.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

using Instance = fakes::LoadedPlugin<Optimizer>;

// Ties of bf16 and of fp16 in both directions, the ends of fp16's range, and numbers below the smallest normal ones.
constexpr std::array<float, 12> hard_to_round{1.00390625F,    1.01171875F, -1.00390625F, 1.00048828125F,
                                              1.00146484375F, 65519.99F,   65520.0F,     -70000.0F,
                                              1e-8F,          3e-8F,       -5.9e-8F,     1e-20F};

// Properties common to all pieces of a parameter, so that it can be cut anywhere and each rank asks for the same.
void check_answers(const Optimizer& optimizer, const DrawnParameter& parameter) {
  const std::string of = format(" of a parameter of {} elements", parameter.info.end);
  const std::int64_t unit = optimizer.unit(parameter.info);
  const std::vector<StateTensor> states = optimizer.state(parameter.info);
  std::set<std::string> names;
  for (const StateTensor& state : states) {
    require(!state.name.empty() && names.insert(state.name).second,
            "state() names '" + state.name + "' twice or not at all; checkpoints use the names");
    require(c10::isFloatingType(state.dtype) || c10::isIntegralType(state.dtype, false),
            "state '" + state.name + "' has no valid number format");
    require(state.block >= 1 && (unit % state.block == 0 || unit >= parameter.info.end),
            format("state '{}' has one element for {}, and unit() is {}; a cut within a block would leave its element "
                   "to two ranks",
                   state.name, state.block, unit));
  }
  require(optimizer.rounds() >= 1, format("rounds() is {}", optimizer.rounds()));
  PieceInfo half = parameter.info;
  half.begin = half.end / 2;
  for (const PieceInfo& part : {parameter.info, half}) {
    require(unit >= 1 && optimizer.unit(part) == unit,
            format("unit() is {} for all{} and {} for a part; parameters are cut by it before there are pieces", unit,
                   of, optimizer.unit(part)));
    require(std::ranges::equal(states, optimizer.state(part),
                               [](const StateTensor& a, const StateTensor& b) {
                                 return a.name == b.name && a.dtype == b.dtype && a.whole == b.whole &&
                                        a.block == b.block;
                               }),
            "state() differs between all" + of +
                " and a part; a resumed run may cut it elsewhere, and reads state tensors by name");
    for (int round = 0; round < optimizer.rounds(); ++round)
      require(optimizer.sums(part, round) == optimizer.sums(parameter.info, round),
              "sums() of round " + std::to_string(round) + " differs between all" + of +
                  " and a part; all ranks must ask for as many sums, whatever they own");
  }
}

// A whole parameter, and its pieces, each in memory of its own.
struct Tensors {
  ParameterTensors whole;
  std::deque<std::vector<Guarded>> memory;  // by piece
  std::vector<Piece> pieces;
  bool has_sums = false;
};

Tensors make_tensors(const Optimizer& optimizer, const DrawnParameter& parameter, std::size_t number) {
  std::mt19937_64 random(number + 1);
  Tensors tensors;
  tensors.whole = make_parameter(optimizer, parameter.info.parameter, parameter.info.shape, {}, random);
  const auto hard = std::min<std::int64_t>(parameter.info.end, std::int64_t{hard_to_round.size()});
  std::copy_n(hard_to_round.data(), hard, tensors.whole.master.mutable_data_ptr<float>());
  if (tensors.whole.copy.defined()) tensors.whole.copy.copy_(tensors.whole.master);
  tensors.has_sums = has_sums(optimizer, parameter.info.shape);
  for (std::size_t i = 0; i + 1 < parameter.borders.size(); ++i) {
    const Piece from = tensors.whole.piece(parameter.borders[i], parameter.borders[i + 1]);
    Piece piece = from;
    std::vector<Guarded>& memory = tensors.memory.emplace_back();
    const auto guard = [&](const std::string& name, const at::Tensor& values) {
      return memory.emplace_back(name, values.contiguous(), i % 8).tensor();
    };
    piece.master = guard("master", from.master);
    piece.gradient = guard("gradient", from.gradient.to(parameter.formats.gradient));
    for (std::size_t k = 0; k < from.state.size(); ++k)
      piece.state[k] = guard("state '" + tensors.whole.states[k].name + "'", from.state[k]);
    if (parameter.formats.copy || optimizer.trains_elsewhere())
      piece.parameter = guard("parameter", from.master.to(parameter.formats.copy.value_or(at::kFloat)));
    piece.learning_rate_factor = parameter.learning_rate_factor;
    piece.weight_decay = parameter.weight_decay;
    tensors.pieces.push_back(piece);
  }
  return tensors;
}

class Updates {
 public:
  Updates(Subject& subject, const OptimizerWorld& world) : subject_(subject), world_(world) {
    make_instances();
    for (std::size_t number = 0; number < world.parameters.size(); ++number) {
      const DrawnParameter& parameter = world.parameters[number];
      fakes::OptionTexts options = world.options;
      if (parameter.weight_decay) {
        std::erase_if(options, [](const auto& option) { return option.first == "weight_decay"; });
        options.emplace_back("weight_decay", std::to_string(*parameter.weight_decay));
      }
      options_.push_back(options);
      alone_.push_back(std::make_unique<Instance>(subject.make<Optimizer>(options)));
      check_answers(**alone_.back(), parameter);
      tensors_.push_back(make_tensors(**alone_.back(), parameter, number));
    }
  }

  void run() {
    std::int64_t updates = world_.updates;
    for (std::size_t number = 0; number < world_.steps.size(); ++number) {
      const DrawnStep& step = world_.steps[number];
      if (number > 0 && static_cast<std::size_t>(world_.restart) == number) restart();
      update_pieces(step, number, updates);
      if (step.apply) update_wholes(step, number, updates++);
      for (std::size_t i = 0; i < tensors_.size(); ++i) compare(i, step, number);
    }
  }

 private:
  void make_instances() {
    for (int i = 0; i < world_.instances; ++i)
      instances_.push_back(std::make_unique<Instance>(subject_.make<Optimizer>(world_.options)));
  }

  void restart() {
    fakes::SavedState saved;
    (*instances_.front())->save(saved);
    instances_.clear();
    make_instances();
    for (const auto& instance : instances_) (*instance)->load(saved, (*instance)->state_version());
  }

  static StepScalars scalars(const DrawnStep& step, std::int64_t updates, double rate, double factor, double apply) {
    StepScalars scalars = scalars_of(rate, updates, factor, apply);
    scalars.momentum = step.momentum;
    return scalars;
  }

  // The gradients of a step that is not applied hold anything.
  void update_pieces(const DrawnStep& step, std::size_t number, std::int64_t updates) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor gradient = gradient_of(world_, i, number);
      for (Piece& piece : tensors_[i].pieces) {
        piece.gradient.copy_(gradient.narrow(0, piece.info.begin, piece.info.end - piece.info.begin));
        if (!step.apply) piece.gradient.fill_(nan);
        pieces.push_back(piece);
      }
    }
    std::vector<Optimizer*> instances;
    for (const auto& instance : instances_) instances.push_back(&**instance);
    const StepScalars all =
        scalars(step, updates, step.learning_rate, step.apply ? step.gradient_factor : nan, step.apply ? 1 : 0);
    for (const Piece& piece : pieces)
      if (step.apply) check_measure(*instances.front(), piece, all);
    fakes::update(instances, pieces, all);
    std::size_t next = 0;
    for (const Tensors& tensors : tensors_)
      for (const Piece& given : tensors.pieces) check_given(given, pieces[next++]);
  }

  static std::vector<at::Tensor> written(const Piece& piece) {
    std::vector<at::Tensor> all = piece.state;
    all.push_back(piece.master);
    return all;
  }
  static std::vector<at::Tensor> copies(std::vector<at::Tensor> tensors) {
    for (at::Tensor& tensor : tensors) tensor = tensor.clone();
    return tensors;
  }
  static bool are_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::ranges::equal(
        a, b, [](const at::Tensor& one, const at::Tensor& other) { return difference(one, other, false).empty(); });
  }

  // measure() adds to the sums and changes nothing else.
  static void check_measure(Optimizer& optimizer, const Piece& piece, const StepScalars& scalars) {
    const std::int64_t count = optimizer.sums(piece.info, 0);
    if (count == 0) return;
    const std::vector<at::Tensor> before = copies(written(piece));
    const at::Tensor gradient = piece.gradient.clone();
    Piece measured = piece;
    const auto from = [&](double begin) {
      measured.sums = at::full({count}, begin, at::kDouble);
      optimizer.measure(measured, 0, scalars);
      return measured.sums.sub(begin);
    };
    const at::Tensor on_three = from(3.0), on_nothing = from(0.0);
    require(are_same(written(piece), before) && difference(piece.gradient, gradient, false).empty(),
            "measure() changed the piece; the engine measures parts of pieces, and not every rank measures every part");
    require(
        at::allclose(on_three, on_nothing, 1e-9, 1e-9, true),
        "measure() does not add to piece.sums: begun from 3 it adds other numbers than begun from 0; other parts of "
        "the parameter add to the same numbers");
  }

  // write_trained() does as the step did, from master and state alone: after an evaluation, and in a resumed run.
  static void check_written_anew(const Optimizer& optimizer, const Piece& piece, const std::string& of) {
    if (!optimizer.trains_elsewhere()) return;
    Piece anew = piece;
    anew.gradient = at::Tensor();
    anew.parameter = at::full_like(piece.parameter, 77.0);
    const std::vector<at::Tensor> before = copies(written(piece));
    optimizer.write_trained(anew);
    const std::string found = difference(anew.parameter, piece.parameter, false);
    require(found.empty() && are_same(written(piece), before),
            of + "parameter that write_trained() writes " +
                (found.empty() ? "is not all that it writes" : "has an " + found + ", which the step wrote") +
                "; an evaluation and a resume must leave the weights that layers train at");
  }

  // Where its momentum is an option by a known name: an instance that has this one as its own.
  std::unique_ptr<Instance> with_own_momentum(std::size_t parameter, double momentum) const {
    const OptionValues values = subject_.library().values(options_[parameter]);
    const bool is_one_of_betas = values.contains("betas") && values.numbers("betas").size() == 2;
    const auto spells_one = [](const std::string& option) {
      return option == "momentum" || option.find("beta") != std::string::npos;
    };
    if (std::ranges::count_if(values.names(), spells_one) != 1 || (!is_one_of_betas && !values.contains("momentum")))
      return nullptr;
    const std::string name = is_one_of_betas ? "betas" : "momentum";
    std::ostringstream text;
    text.precision(17);
    if (is_one_of_betas)
      text << "[" << momentum << ", " << values.numbers("betas")[1] << "]";
    else
      text << momentum;
    fakes::OptionTexts options = options_[parameter];
    std::erase_if(options, [&](const auto& option) { return option.first == name; });
    options.emplace_back(name, text.str());
    std::unique_ptr<Instance> made;
    try {
      made = std::make_unique<Instance>(subject_.make<Optimizer>(options));
    } catch (const UserError&) {
      return nullptr;  // with other options it takes none
    }
    const PieceInfo& info = world_.parameters[parameter].info;
    return (*made)->state(info).size() == (*alone_[parameter])->state(info).size() ? std::move(made) : nullptr;
  }

  // step() writes into the tensors that it was given and changes nothing else of a piece.
  static void check_given(const Piece& given, const Piece& now) {
    bool kept = given.master.const_data_ptr() == now.master.const_data_ptr() &&
                given.state.size() == now.state.size() &&
                (!given.parameter.defined() || given.parameter.const_data_ptr() == now.parameter.const_data_ptr());
    for (std::size_t i = 0; kept && i < given.state.size(); ++i)
      kept = given.state[i].const_data_ptr() == now.state[i].const_data_ptr();
    require(kept,
            "step() replaced tensors of the piece; the engine owns master, parameter and state: write into them "
            "with copy_ or data pointers");
    require(given.info.begin == now.info.begin && given.info.end == now.info.end &&
                given.info.parameter == now.info.parameter && given.info.shape == now.info.shape &&
                given.learning_rate_factor == now.learning_rate_factor && given.weight_decay == now.weight_decay,
            "step() changed the piece's description; the engine passes the same piece to every step");
  }

  void update_wholes(const DrawnStep& step, std::size_t number, std::int64_t updates) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      ParameterTensors& whole = tensors_[i].whole;
      whole.gradient = gradient_of(world_, i, number).to(at::kFloat).mul(step.gradient_factor);
      Piece piece = whole.whole();
      const double rate = step.learning_rate * world_.parameters[i].learning_rate_factor;
      const at::Tensor before = whole.master.clone();
      StepScalars alone = scalars(step, updates, rate, 1.0, 1.0);
      const std::unique_ptr<Instance> own = step.momentum ? with_own_momentum(i, *step.momentum) : nullptr;
      if (own != nullptr) alone.momentum.reset();
      fakes::update(own != nullptr ? **own : **alone_[i], piece, alone);
      if (rate > 0.0 || (*alone_[i])->trains_elsewhere()) continue;  // an average moves on without a step
      const at::Tensor after = at::where(whole.master.isnan(), before, whole.master);  // 0 times an infinite update
      const std::string found = difference(after, before, false);
      require(found.empty(), "with a learning rate of 0 the master's " + found +
                                 "; every change of a parameter, also weight decay, must be multiplied by it");
    }
  }

  void compare(std::size_t parameter, const DrawnStep& step, std::size_t number) const {
    const Tensors& tensors = tensors_[parameter];
    const std::string when = format("step {}, parameter {}: ", number + 1, parameter + 1);
    const at::Tensor gradient = gradient_of(world_, parameter, number);
    check_copies(tensors);
    for (std::size_t i = 0; i < tensors.pieces.size(); ++i) {
      const Piece& piece = tensors.pieces[i];
      const Piece wanted = tensors.whole.piece(piece.info.begin, piece.info.end);
      const std::string of = format("{}in the piece [{}, {}) the ", when, piece.info.begin, piece.info.end);
      const auto check = [&](const std::string& name, const at::Tensor& is, const at::Tensor& should) {
        const std::string found = difference(is, should, tensors.has_sums);
        require(found.empty(), of + name + "'s " + found +
                                   (step.apply ? ", which it is where the parameter is whole, alone and in fp32"
                                               : ", and with apply 0 a step must write nothing"));
      };
      check("master", piece.master, wanted.master);
      for (std::size_t k = 0; k < piece.state.size(); ++k)
        check("state '" + tensors.whole.states[k].name + "'", piece.state[k], wanted.state[k]);
      if (piece.parameter.defined()) {
        const bool elsewhere = wanted.parameter.defined();  // it is not a copy of the master
        const at::Tensor of_what = elsewhere ? wanted.parameter : piece.master;
        const std::string found =
            difference(piece.parameter, of_what.to(piece.parameter.scalar_type()), elsewhere && tensors.has_sums);
        require(found.empty(), of + "parameter's " + found +
                                   (elsewhere ? ", which it is where the parameter is whole, alone and in fp32"
                                              : ", the master rounded to nearest, ties to even"));
      }
      if (step.apply)
        require(difference(piece.gradient, gradient.narrow(0, piece.info.begin, piece.gradient.numel()), false).empty(),
                of + "gradient was written; step() may write only master, parameter and state");
      check_written_anew(**alone_[parameter], piece, of);
      for (const Guarded& guarded : tensors.memory[i]) guarded.check();
      if (!tensors.has_sums) continue;
      piece.master.copy_(wanted.master);  // what the order of sums changes does not grow
      if (piece.parameter.defined())
        piece.parameter.copy_(wanted.parameter.defined() ? wanted.parameter : wanted.master);
      for (std::size_t k = 0; k < piece.state.size(); ++k) piece.state[k].copy_(wanted.state[k]);
    }
  }

  // Every piece has a copy of the state of the whole parameter.
  static void check_copies(const Tensors& tensors) {
    for (std::size_t k = 0; k < tensors.whole.states.size(); ++k) {
      if (tensors.whole.states[k].whole == 0) continue;
      for (const Piece& piece : tensors.pieces) {
        const std::string found = difference(piece.state[k], tensors.pieces.front().state[k], false);
        require(found.empty(), format("the pieces from elements 0 and {} have other copies of the whole state '{}', "
                                      "whose {}; update it from the sums alone, which all pieces have alike",
                                      piece.info.begin, tensors.whole.states[k].name, found));
      }
    }
  }

  Subject& subject_;
  const OptimizerWorld& world_;
  std::vector<std::unique_ptr<Instance>> instances_, alone_;
  std::vector<fakes::OptionTexts> options_;  // of alone_
  std::vector<Tensors> tensors_;
};

}  // namespace

void drawn_updates_are_right(Subject& subject) {
  constexpr int worlds = 250;
  search(subject, "optimizer.drawn", worlds, [](Subject& of, Draws& draws, const Tell& tell) {
    OptimizerWorld world = draw_updates(draws, of);
    try {
      draw_pieces(draws, *of.make<Optimizer>(world.options), world);
    } catch (const UserError&) {
      return false;  // it takes other options
    }
    tell(to_string(world));
    Updates(of, world).run();
    return true;
  });
}

}  // namespace strata::conformance::optimizer_checks
