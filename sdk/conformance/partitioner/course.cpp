#include "conformance/partitioner/course.hpp"

#include <strata/format.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

namespace {

// fp32 throughout; 16-bit parameters with fp32 gradients; those whose gradients travel in 16 bits, or are 16 bits.
const std::vector<DTypes>& formats() {
  static const std::vector<DTypes> all{{},
                                       {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat},
                                       {at::kHalf, at::kFloat, at::kHalf, at::kFloat},
                                       {at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat},
                                       {at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat}};
  return all;
}

FlatParameterInfo draw_flat(Draws& draws, int id, std::int64_t most, const DTypes& dtypes) {
  FlatParameterInfo info;
  info.id = id;
  info.name = format("layer {}", id);
  info.dtypes = dtypes;
  info.trainable = !draws.chance(5);
  const bool has_units = draws.chance(4);
  const auto parameters = draws.between(1, 3);
  for (std::int64_t i = 0; i < parameters; ++i) {
    const std::int64_t elements = draws.size(most);
    const std::string name = format("p{}.{}", id, i);
    info.parameters.push_back({{name, {elements}, {}, info.trainable, ""}, info.elements});
    if (has_units) info.parameters.back().unit = draws.size(elements);
    info.elements += elements;
  }
  return info;
}

// Properties of the steps of a course.
struct Step {
  bool trains = true;
  int micro_batches = 1;
  int ahead = 0;            // forwards before the first backward, without the first
  int updates = 1;          // within the step, where more than 1
  bool is_delayed = false;  // the update is made before the gradients are finished
  bool is_repeated = false;
  bool recomputes = false;
  bool prefetches = false;
  bool keeps = false;             // what is used again soon
  bool finishes_between = false;  // every micro-batch's gradients
  bool finishes_at_once = false;  // right after the last reduce(), else at the end of the step
  bool is_reversed = false;       // the end of the step
  bool publishes_together = false;
};

// At most this many micro-batches.
Step draw_step(Draws& draws, std::int64_t most) {
  Step step;
  step.trains = !draws.chance(8);
  step.micro_batches = static_cast<int>(draws.chance(6) ? draws.between(1, 20) : draws.between(1, 3));
  step.micro_batches = static_cast<int>(std::min<std::int64_t>(step.micro_batches, most));
  step.ahead = static_cast<int>(draws.between(0, 3));
  if (draws.chance(5)) step.updates = static_cast<int>(draws.between(1, 3));
  if (step.micro_batches * step.updates > most) step.updates = 1;
  step.is_delayed = draws.chance(6) && step.updates == 1;
  step.is_repeated = draws.chance(6) && step.updates == 1;
  for (bool* const one : {&step.recomputes, &step.prefetches, &step.keeps, &step.finishes_between,
                          &step.finishes_at_once, &step.is_reversed, &step.publishes_together})
    *one = draws.chance(2);
  return step;
}

std::string to_string(const Step& step) {
  std::string text = count(step.micro_batches * step.updates, "micro-batch");
  if (!step.trains) return text + " without a backward";
  if (step.ahead > 0) text += format(", {} forwards before the first backward", step.ahead + 1);
  if (step.updates > 1) text += format(", {} updates within the step", step.updates);
  if (step.is_delayed) text += ", delayed update";
  if (step.is_repeated) text += ", update made twice";
  if (step.finishes_between) text += ", finish_gradient() after each micro-batch";
  return text;
}

class Course {
 public:
  Course(const Lookahead& lookahead, PartitionWorld& world) : lookahead_(lookahead), world_(world) {
    for (const FlatParameterInfo& info : world.infos) {
      all_elements_ += info.elements;
      for (const int layer : info.layers) layers_ = std::max(layers_, layer + 1);
    }
    uses_.resize(world.infos.size());
  }

  // Values are initialised; some are then loaded.
  void begin(bool loads) {
    for (const FlatParameterInfo& info : world_.infos) add(Act::Write, info.id, Phase::Forward, {}, ++values_);
    for (const FlatParameterInfo& info : world_.infos) add(Act::Publish, info.id);
    for (const FlatParameterInfo& info : world_.infos) {
      if (!loads) return;
      add(Act::Gather, info.id), add(Act::Release, info.id);  // compared
      add(Act::Write, info.id, Phase::Forward, {}, ++values_);
      add(Act::Publish, info.id);
    }
  }

  void run(const Step& step, int number) {
    step_ = step;
    uses_.assign(uses_.size(), 0);
    make_visits();
    for (next_ = 0; next_ < visits_.size(); ++next_) visit(visits_[next_]);
    while (!here_.empty()) release(*here_.begin(), Phase::Backward);
    if (step.trains && step.updates == 1) end();
    add(Act::EndStep, 0, Phase::Forward, {}, number);
  }

 private:
  struct Visit {
    int layer = 0;
    bool is_backward = false;
  };

  void add(Act act, int flat, Phase phase = Phase::Forward, Accumulation accumulation = {}, int number = 0) {
    world_.calls.push_back({act, flat, phase, accumulation, number});
  }

  std::vector<int> flats_of(int layer) const {
    std::vector<int> flats;
    for (const FlatParameterInfo& info : world_.infos)
      if (std::ranges::count(info.layers, layer) > 0) flats.push_back(info.id);
    return flats;
  }
  std::int64_t elements_of(int flat) const { return world_.infos[static_cast<std::size_t>(flat)].elements; }
  bool trains(int flat) const { return step_.trains && world_.infos[static_cast<std::size_t>(flat)].trainable; }

  void make_visits() {
    visits_.clear();
    const int passes = step_.micro_batches * step_.updates;
    int forward = 0;
    const auto go = [&](bool is_backward) {
      for (int i = 0; i < layers_; ++i) visits_.push_back({is_backward ? layers_ - 1 - i : i, is_backward});
    };
    while (forward < std::min(passes, 1 + step_.ahead)) go(false), ++forward;
    for (int backward = 0; backward < passes; ++backward) {
      if (step_.trains) go(true);
      if (forward < passes) go(false), ++forward;
    }
  }

  void visit(const Visit& at) {
    const Phase phase = at.is_backward ? Phase::Backward : Phase::Forward;
    const std::vector<int> flats = flats_of(at.layer);
    if (at.is_backward && step_.recomputes) use(flats, Phase::Recompute, false);
    use(flats, phase, at.is_backward);
  }

  // A layer computes.
  void use(const std::vector<int>& flats, Phase phase, bool is_backward) {
    for (const int flat : flats)
      if (here_.insert(flat).second) add(Act::Gather, flat, phase), coming_.erase(flat);
    prefetch(phase);
    std::vector<int> reduced;
    for (const int flat : flats)
      if (is_backward && trains(flat)) add(Act::Lend, flat, phase, accumulation(flat), ++gradients_);
    for (const int flat : flats)
      if (is_backward && trains(flat)) add(Act::Reduce, flat, phase, accumulation(flat)), reduced.push_back(flat);
    for (const int flat : flats)
      if (!keeps(flat)) release(flat, phase);
    for (const int flat : reduced) after_reduce(flat);
  }

  void release(int flat, Phase phase) {
    if (here_.erase(flat) > 0) add(Act::Release, flat, phase);
  }

  // How many gradients of it make an update.
  int uses_an_update(int flat) const {
    return step_.micro_batches * static_cast<int>(world_.infos[static_cast<std::size_t>(flat)].layers.size());
  }
  Accumulation accumulation(int flat) const {
    const int use = uses_[static_cast<std::size_t>(flat)] % uses_an_update(flat);
    return {use == 0, use + 1 == uses_an_update(flat)};
  }

  void after_reduce(int flat) {
    const bool last = accumulation(flat).last;
    ++uses_[static_cast<std::size_t>(flat)];
    if (!last && step_.finishes_between) add(Act::Finish, flat);
    if (!last) return;
    if (step_.updates > 1) {  // within the step: what is kept is let go first
      release(flat, Phase::Backward);
      if (coming_.erase(flat) > 0) add(Act::Gather, flat), add(Act::Release, flat);
      add(Act::Finish, flat);
      add(Act::Write, flat, Phase::Forward, {}, ++values_);
      add(Act::Publish, flat);
    } else if (step_.finishes_at_once && !step_.is_delayed) {
      add(Act::Finish, flat);
    }
  }

  // Whether it stays for its next use in the step.
  bool keeps(int flat) const {
    if (!step_.keeps || lookahead_.reuse_distance < 0 || lookahead_.live_parameters < all_elements_) return false;
    std::int64_t between = 0;
    for (std::size_t i = next_ + 1; i < visits_.size(); ++i) {
      const std::vector<int> flats = flats_of(visits_[i].layer);
      if (std::ranges::count(flats, flat) > 0) return between <= lookahead_.reuse_distance;
      for (const int other : flats) between += elements_of(other);
    }
    return false;
  }

  void prefetch(Phase phase) {
    if (!step_.prefetches || lookahead_.live_parameters < all_elements_) return;
    std::int64_t elements = 0;
    for (const int flat : coming_) elements += elements_of(flat);
    for (int ahead = 1; ahead <= lookahead_.layers; ++ahead) {
      if (next_ + static_cast<std::size_t>(ahead) >= visits_.size()) return;
      const Visit& later = visits_[next_ + static_cast<std::size_t>(ahead)];
      for (const int flat : flats_of(later.layer)) {
        if (coming_.contains(flat)) continue;
        const bool is_here = here_.contains(flat);
        if (!is_here && (elements += elements_of(flat)) > lookahead_.elements) return;
        if (is_here && !keeps(flat)) continue;  // it goes before that
        if (!is_here) coming_.insert(flat);
        add(Act::Prefetch, flat, later.is_backward ? Phase::Backward : phase);
      }
    }
  }

  void end() {
    std::vector<int> flats;
    for (const FlatParameterInfo& info : world_.infos)
      if (info.trainable) flats.push_back(info.id);
    if (step_.is_reversed) std::ranges::reverse(flats);
    if (step_.is_delayed) update(flats);
    if (step_.is_delayed || !step_.finishes_at_once)
      for (const int flat : flats) add(Act::Finish, flat);
    if (!step_.is_delayed) update(flats);
    if (!step_.is_repeated) return;
    for (int layer = 0; layer < layers_; ++layer) {  // forwards of the next step, in vain
      for (const int flat : flats_of(layer)) add(Act::Gather, flat);
      for (const int flat : flats_of(layer)) add(Act::Release, flat);
    }
    update(flats);
  }

  void update(const std::vector<int>& flats) {
    for (const int flat : flats) {
      add(Act::Write, flat, Phase::Forward, {}, ++values_);
      if (!step_.publishes_together) add(Act::Publish, flat);
    }
    if (step_.publishes_together)
      for (const int flat : flats) add(Act::Publish, flat);
  }

  Lookahead lookahead_;
  PartitionWorld& world_;
  Step step_;
  std::int64_t all_elements_ = 0;
  int layers_ = 0, values_ = 0, gradients_ = 0;
  std::vector<Visit> visits_;
  std::size_t next_ = 0;
  std::set<int> here_, coming_;  // gathered; prefetched and not used yet
  std::vector<int> uses_;        // by flat parameter: gradients of the step so far
};

}  // namespace

PartitionWorld draw_partition(Draws& draws, const std::vector<OptionSpec>& options) {
  PartitionWorld world;
  // Many small worlds, some large: what is cut into pieces of a fixed size shows only there.
  const std::int64_t most = std::vector<std::int64_t>{
      64, 2048, std::int64_t{1} << 18}[static_cast<std::size_t>(draws.chance(8) ? 2 : draws.between(0, 1))];
  const bool is_large = most > 2048;
  world.options = draws.options(options, is_large ? 8192 : most / 8);
  const int data = static_cast<int>(draws.chance(4) && !is_large ? draws.between(1, 12) : draws.between(1, 4));
  const std::vector<std::pair<int, int>> around{{1, 1}, {2, 1}, {1, 2}, {3, 1}, {2, 2}};
  const auto [pipeline, tensor] = draws.pick(around);
  const auto stage = static_cast<int>(draws.between(0, pipeline - 1));
  const auto tensor_rank = static_cast<int>(draws.between(0, tensor - 1));
  world.ranks = {{{Axis::Pipeline, pipeline}, {Axis::Data, data}, {Axis::Tensor, tensor}},
                 {{Axis::Pipeline, stage}, {Axis::Tensor, tensor_rank}}};
  const auto flats = static_cast<int>(is_large ? draws.between(1, 2) : draws.between(1, 6));
  const bool are_alike = draws.chance(2);
  DTypes dtypes = draws.pick(formats());
  for (int id = 0, layer = 0; id < flats; ++id) {
    if (!are_alike) dtypes = draws.pick(formats());
    world.infos.push_back(draw_flat(draws, id, most, dtypes));
    FlatParameterInfo& info = world.infos.back();
    const bool is_beside = id > 0 && draws.chance(4);  // in the layer of the one before
    layer += id > 0 && !is_beside ? 1 : 0;
    info.layers = {layer};
    if (info.parameters.size() > 1 || !draws.chance(5)) continue;
    info.parameters.front().info.tie = format("of {}", id);
    info.name = "tie " + info.parameters.front().info.tie;
    if (layer > 0) info.layers = {0, layer};
  }
  world.movement = draws.chance(2) ? fakes::Movement::AtWait : fakes::Movement::AtStart;
  world.is_finite = !draws.chance(4);
  world.strays = draws.chance(4);
  return world;
}

void draw_course(Draws& draws, const Lookahead& lookahead, PartitionWorld& world) {
  Course course(lookahead, world);
  course.begin(draws.chance(4));
  // Bounds the computation of a run, so that every one takes less than a second.
  std::int64_t elements = 0;
  for (const FlatParameterInfo& info : world.infos) elements += info.elements;
  const std::int64_t most = std::clamp<std::int64_t>(3'000'000 / (elements * world.ranks.size()), 1, 60);
  const auto steps = static_cast<int>(draws.between(1, elements > 50'000 ? 2 : 4));
  world.steps_alike = draws.chance(2);
  Step step;
  for (int number = 0; number < steps; ++number) {
    if (number == 0 || !world.steps_alike) {
      step = draw_step(draws, most);
      world.course += (number == 0 ? "" : "; ") + to_string(step);
    }
    course.run(step, number);
    world.gradients_at_once = std::max(world.gradients_at_once, world.ranks.size() * step.micro_batches * 2);
  }
  world.course = count(steps, "step") + " of " + world.course;
  world.end = world.calls.size();
  if (draws.chance(5)) world.end = static_cast<std::size_t>(draws.between(0, static_cast<std::int64_t>(world.end)));
}

std::string to_string(const PartitionWorld& world) {
  const MeshShape& mesh = world.ranks.mesh;
  std::string text = count(mesh.data_parallel(), "data-parallel rank");
  if (mesh.size() > mesh.data_parallel())
    text += format(" of pipeline stage {} and tensor rank {} in a mesh of {}", world.ranks.place.at(Axis::Pipeline),
                   world.ranks.place.at(Axis::Tensor), text_of(mesh));
  text += " with " + to_string(world.options) + "; flat parameters of";
  for (const FlatParameterInfo& info : world.infos) {
    text += (info.id == 0 ? " " : ", ");
    for (std::size_t i = 0; i < info.parameters.size(); ++i) {
      const ParameterSpan& span = info.parameters[i];
      text += (i == 0 ? "" : "+") + std::to_string(span.info.elements());
      if (span.unit > 1) text += format(" (unit {})", span.unit);
    }
    const DTypes& dtypes = info.dtypes;
    text += std::string(" ") + c10::toString(dtypes.parameter) + "/" + c10::toString(dtypes.gradient) + "/" +
            c10::toString(dtypes.reduction);
    if (!info.trainable) text += " frozen";
    if (!info.parameters.front().info.tie.empty()) text += " tied";
    if (info.layers.size() > 1) text += " in two layers";
  }
  if (!world.course.empty()) text += "; " + world.course;
  if (!world.is_finite) text += "; gradients with infinities";
  if (world.strays) text += "; calls are repeated, and made out of order";
  if (world.movement == fakes::Movement::AtWait) text += "; data moves in wait()";
  if (world.end < world.calls.size()) text += "; the run ends before " + to_string(world, world.calls[world.end]);
  return text;
}

std::string to_string(const PartitionWorld& world, const PartitionCall& call) {
  static const char* const acts[] = {"prefetch()",        "gather()",   "release()", "gradient()",    "reduce()",
                                     "finish_gradient()", "the update", "publish()", "the step's end"};
  static const char* const phases[] = {"forward", "backward", "recomputation"};
  const std::string what = acts[static_cast<std::size_t>(call.act)];
  if (call.act == Act::EndStep) return format("{} {}", what, call.number);
  const std::string of = what + " of " + world.infos[static_cast<std::size_t>(call.flat)].name;
  return call.act <= Act::Release ? of + " in " + phases[static_cast<std::size_t>(call.phase)] : of;
}

}  // namespace strata::conformance
