// A partitioner that shards by whole layers: flat parameter i belongs to data-parallel rank i modulo N, a tied one of E
// elements to rank E modulo N. The owner alone keeps its values, its gradient and its optimizer state. No flat
// parameter is ever cut, so an optimizer that needs whole matrices can run on it; the price is that ranks hold unequal
// amounts.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/partitioner.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>

#include <utility>
#include <vector>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class RoundRobin final : public Partitioner {
 public:
  RoundRobin(PluginContext&, const NoOptions&) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("data", mesh);
  }

  void attach(PartitionContext& context) override {
    group_ = &context.group("data");
    slots_ = &context.slots();
    for (FlatParameter* flat : context.flat_parameters()) {
      const FlatParameterInfo& info = flat->info();
      Home& home = homes_.emplace_back();
      home.flat = flat;
      // Stages that share a tied one give it different ids and must choose the same owner.
      const bool tied = !info.parameters.front().info.tie.empty();
      home.owner = static_cast<int>((tied ? info.elements : info.id) % group_->size());
      if (home.owner != group_->rank()) continue;
      // The owner's own values are gathered by binding them where they lie.
      home.values = &context.buffer({.category = Category::Parameter,
                                     .flat = flat,
                                     .elements = info.elements,
                                     .dtype = info.dtypes.parameter,
                                     .resident = true});
      if (info.trainable)
        home.gradient = &context.buffer(
            {.category = Category::Gradient, .flat = flat, .elements = info.elements, .dtype = info.dtypes.gradient});
    }
  }

  Lookahead lookahead() const override { return {}; }
  void prefetch(FlatParameter&, Phase) override {}

  void gather(FlatParameter& flat, Phase) override {
    if (flat.residence() == Residence::Gathered) return;
    Home& home = home_of(flat);
    at::Tensor memory;
    if (group_->rank() == home.owner) {
      memory = home.values->tensor();
    } else {
      home.slot = slots_->acquire(Category::Gathered, flat.bytes());
      memory = home.slot->as(flat.info().dtypes.parameter, flat.elements());
    }
    group_->broadcast(memory, home.owner).wait();
    flat.bind(memory);
  }

  void release(FlatParameter& flat, Phase) override {
    flat.unbind();
    Home& home = home_of(flat);
    if (home.slot != nullptr) slots_->release(std::exchange(home.slot, nullptr));
  }

  // Every micro-batch's gradient is lent from a slot and added up by the owner.
  LentGradient gradient(FlatParameter& flat, Accumulation) override {
    Home& home = home_of(flat);
    if (home.lent != nullptr) throw Bug("the gradient of " + flat.info().name + " is lent already");
    const at::ScalarType dtype = flat.info().dtypes.gradient;
    home.lent =
        slots_->acquire(Category::Gradient, flat.elements() * static_cast<std::int64_t>(c10::elementSize(dtype)));
    return {home.lent->as(dtype, flat.elements()), true};
  }

  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    Home& home = home_of(flat);
    if (home.lent == nullptr) throw Bug("the gradient of " + flat.info().name + " is reduced and was not lent");
    const at::Tensor sum = home.lent->as(flat.info().dtypes.gradient, flat.elements()).to(flat.info().dtypes.reduction);
    group_->reduce(sum, home.owner, ReduceOperation::Sum).wait();
    if (home.owner == group_->rank()) {
      if (accumulation.first)
        home.gradient->tensor().copy_(sum);
      else
        home.gradient->tensor().add_(sum);
    }
    slots_->release(std::exchange(home.lent, nullptr));
  }

  void finish_gradient(FlatParameter&) override {}  // reduce() waits

  std::vector<Slice> owned() override {
    std::vector<Slice> slices;
    for (const Home& home : homes_) {
      if (home.owner != group_->rank()) continue;
      const std::int64_t elements = home.flat->elements();
      slices.push_back({home.flat, 0, elements, {home.values, 0, elements}, {home.gradient, 0, elements}, 0, elements});
    }
    return slices;
  }

  // The next gather sends the new values.
  void publish(FlatParameter& flat) override {
    if (flat.residence() != Residence::Released) throw Bug(flat.info().name + " is gathered while its values change");
  }

  // A run may end between any two calls.
  void shutdown() override {
    for (Home& home : homes_)
      for (Slot** const slot : {&home.slot, &home.lent})
        if (*slot != nullptr) slots_->release(std::exchange(*slot, nullptr));
  }

 private:
  struct Home {
    FlatParameter* flat = nullptr;
    int owner = 0;
    Buffer* values = nullptr;    // on the owner
    Buffer* gradient = nullptr;  // on the owner
    Slot* slot = nullptr;        // elsewhere, while gathered
    Slot* lent = nullptr;        // one micro-batch's gradient
  };
  Home& home_of(const FlatParameter& flat) { return homes_[static_cast<std::size_t>(flat.info().id)]; }

  Group* group_ = nullptr;
  SlotPool* slots_ = nullptr;
  std::vector<Home> homes_;  // by flat parameter id
};

}  // namespace

STRATA_PLUGIN(RoundRobin, NoOptions)
