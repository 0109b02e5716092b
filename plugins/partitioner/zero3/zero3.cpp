// ZeRO stage 3 (Rajbhandari et al., arXiv:1910.02054): each data-parallel rank keeps 1/N of every flat parameter, of its gradient
// and of its optimizer state. A flat parameter is gathered into a slot for its use and released after it; a gradient is
// reduce-scattered after each micro-batch's backward and summed into the owned shard.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/partitioner.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace strata;

#define ZERO3_OPTIONS(OPTION)                                                                                     \
  OPTION(integer, prefetch_layers, 1, "min=0,max=64", "layers", "How many layers ahead parameters are gathered.") \
  OPTION(integer, reuse_distance, 0, "min=0", "elements",                                                         \
         "A flat parameter used again within this many elements of gathering stays gathered.")
STRATA_OPTIONS(Zero3Options, ZERO3_OPTIONS)

class Zero3 final : public Partitioner {
 public:
  Zero3(PluginContext&, const Zero3Options& options) : options_(options) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override { return toolbox::data_parallel_group("data", mesh); }

  void attach(PartitionContext& context) override {
    group_ = &context.group("data");
    slots_ = &context.slots();
    device_ = &context.device();
    published_ = device_->make_event();
    shards_.resize(context.flat_parameters().size());
    for (FlatParameter* flat : context.flat_parameters()) {
      const FlatParameterInfo& info = flat->info();
      Shard& shard = shards_[static_cast<std::size_t>(info.id)];
      shard.flat = flat;
      shard.elements = shard_elements(info.elements);
      shard.parameter = context.store().allocate(Category::Parameter, Tier::Device, info.name, shard.elements, info.dtypes.parameter);
      if (info.trainable)
        shard.gradient = context.store().allocate(Category::Gradient, Tier::Device, info.name, shard.elements, info.dtypes.gradient);
    }
  }

  Lookahead lookahead() const override {
    Lookahead lookahead;
    lookahead.layers = static_cast<int>(options_.prefetch_layers);
    lookahead.elements = std::numeric_limits<std::int64_t>::max();
    lookahead.reuse_distance = options_.reuse_distance;
    lookahead.live_parameters = std::numeric_limits<std::int64_t>::max();
    return lookahead;
  }

  void prefetch(FlatParameter& flat, Phase) override {
    if (flat.residence() != Residence::Released || group_->size() == 1) return;
    Shard& shard = shard_of(flat);
    const at::ScalarType dtype = flat.info().dtypes.parameter;
    shard.slot = slots_->acquire(Category::Gathered, whole_elements(shard) * static_cast<std::int64_t>(c10::elementSize(dtype)));
    shard.slot->last_use().block(StreamKind::Communication);
    published_->block(StreamKind::Communication);
    device_->on(StreamKind::Communication,
                [&] { shard.gather = group_->all_gather(shard.slot->as(dtype, whole_elements(shard)), shard.parameter); });
    flat.gathering();
  }

  void gather(FlatParameter& flat, Phase phase) override {
    if (flat.residence() == Residence::Gathered) return;
    Shard& shard = shard_of(flat);
    if (group_->size() == 1) return flat.bind(shard.parameter);
    prefetch(flat, phase);
    shard.gather.wait();
    flat.bind(shard.slot->as(flat.info().dtypes.parameter, whole_elements(shard)));
  }

  void release(FlatParameter& flat, Phase) override {
    Shard& shard = shard_of(flat);
    flat.unbind();
    if (shard.slot == nullptr) return;
    shard.slot->last_use().record(StreamKind::Compute);
    slots_->release(std::exchange(shard.slot, nullptr));
  }

  at::Tensor gradient(FlatParameter& flat, Accumulation accumulation) override {
    Shard& shard = shard_of(flat);
    const std::int64_t elements = flat.elements();
    if (group_->size() == 1) {
      if (accumulation.first) shard.gradient.zero_();
      return shard.gradient.narrow(0, 0, elements);
    }
    const at::ScalarType dtype = flat.info().dtypes.gradient;
    shard.whole_gradient = slots_->acquire(Category::Gradient, whole_elements(shard) * static_cast<std::int64_t>(c10::elementSize(dtype)));
    const at::Tensor whole = shard.whole_gradient->as(dtype, whole_elements(shard));
    shard.whole_gradient->last_use().block(StreamKind::Compute);
    whole.zero_();  // the padding too: it travels
    return whole.narrow(0, 0, elements);
  }

  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    if (group_->size() == 1) return;
    finish_reduction();  // at most one is in flight: its buffers are what bounds the memory
    Shard& shard = shard_of(flat);
    const DTypes& dtypes = flat.info().dtypes;
    Reduction& reduction = reduction_.emplace();
    reduction.shard = &shard;
    reduction.add = !accumulation.first;
    reduction.input = std::exchange(shard.whole_gradient, nullptr);
    at::Tensor input = reduction.input->as(dtypes.gradient, whole_elements(shard));
    if (dtypes.reduction != dtypes.gradient) input = rounded(reduction, input, dtypes.reduction);
    at::Tensor output = shard.gradient;
    if (reduction.add || dtypes.reduction != dtypes.gradient) {
      const std::int64_t bytes = shard.elements * static_cast<std::int64_t>(c10::elementSize(dtypes.reduction));
      reduction.output = slots_->acquire(Category::Bucket, bytes);
      output = reduction.output->as(dtypes.reduction, shard.elements);
    }
    reduction.input->ready().record(StreamKind::Compute);
    reduction.input->ready().block(StreamKind::Communication);
    device_->on(StreamKind::Communication, [&] { reduction.pending = group_->reduce_scatter(output, input, ReduceOperation::Sum); });
  }

  void finish_gradients() override { finish_reduction(); }

  std::vector<Slice> owned() override {
    std::vector<Slice> slices;
    for (const Shard& shard : shards_) {
      const std::int64_t begin = std::min(shard.flat->elements(), group_->rank() * shard.elements);
      const std::int64_t end = std::min(shard.flat->elements(), begin + shard.elements);
      if (begin == end) continue;  // fewer elements than ranks: this one holds padding only
      const at::Tensor gradient = shard.gradient.defined() ? shard.gradient.narrow(0, 0, end - begin) : at::Tensor();
      slices.push_back({shard.flat, begin, end, shard.parameter.narrow(0, 0, end - begin), gradient, begin, end});
    }
    return slices;
  }

  // The shard is the published form: the next gather sends the new values.
  void publish(FlatParameter& flat) override {
    if (flat.residence() != Residence::Released && group_->size() > 1)
      throw Bug(flat.info().name + " is " + to_string(flat.residence()) + " while its values change");
    published_->record(StreamKind::Compute);
  }

 private:
  struct Shard {
    FlatParameter* flat = nullptr;
    std::int64_t elements = 0;  // of this rank's part, padding included; equal on all ranks
    at::Tensor parameter;
    at::Tensor gradient;
    Slot* slot = nullptr;  // the gathered values, with the gather that fills it
    Pending gather;
    Slot* whole_gradient = nullptr;  // lent for one micro-batch
  };
  // A reduce-scatter under way and the buffers it holds.
  struct Reduction {
    Shard* shard = nullptr;
    bool add = false;
    Slot* input = nullptr;
    Slot* rounded = nullptr;  // the input in the reduction's dtype, where that is another
    Slot* output = nullptr;   // null when the sum lands in the shard itself
    Pending pending;
  };

  // Rank r owns [r * n, (r + 1) * n): n rounded up to 8 elements, so that every shard begins aligned for vector loads.
  std::int64_t shard_elements(std::int64_t elements) const {
    const std::int64_t ranks = group_->size();
    return ranks == 1 ? elements : ((elements + ranks - 1) / ranks + 7) / 8 * 8;
  }
  std::int64_t whole_elements(const Shard& shard) const { return shard.elements * group_->size(); }
  Shard& shard_of(const FlatParameter& flat) { return shards_[static_cast<std::size_t>(flat.info().id)]; }

  at::Tensor rounded(Reduction& reduction, const at::Tensor& whole, at::ScalarType dtype) {
    reduction.rounded = slots_->acquire(Category::Bucket, whole.numel() * static_cast<std::int64_t>(c10::elementSize(dtype)));
    const at::Tensor result = reduction.rounded->as(dtype, whole.numel());
    result.copy_(whole);
    return result;
  }

  void finish_reduction() {
    if (!reduction_) return;
    Reduction& reduction = *reduction_;
    reduction.pending.wait();
    Shard& shard = *reduction.shard;
    if (reduction.output != nullptr) {
      const at::Tensor sum = reduction.output->as(shard.flat->info().dtypes.reduction, shard.elements);
      if (reduction.add)
        shard.gradient.add_(sum);
      else
        shard.gradient.copy_(sum);
    }
    for (Slot* slot : {reduction.input, reduction.rounded, reduction.output}) {
      if (slot == nullptr) continue;
      slot->last_use().record(StreamKind::Compute);
      slots_->release(slot);
    }
    reduction_.reset();
  }

  Zero3Options options_;
  Group* group_ = nullptr;
  SlotPool* slots_ = nullptr;
  Device* device_ = nullptr;
  std::vector<Shard> shards_;  // by flat parameter id
  std::optional<Reduction> reduction_;
  std::unique_ptr<Event> published_;  // the last change of a shard's values
};

}  // namespace

STRATA_PLUGIN(Zero3, Zero3Options, ZERO3_OPTIONS)
