// Each rank keeps an equal part of everything, written for reading, with the mistakes that partitioners are written
// with.
#include <ATen/ops/empty.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/partitioner.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <deque>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

STRATA_NO_OPTIONS(NoOptions)

class PlantedPartitioner final : public Partitioner {
 public:
  PlantedPartitioner(PluginContext& context, const NoOptions&) : rank_(context.rank()) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    std::vector<int> all(static_cast<std::size_t>(mesh.size(Axis::Data)));
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::vector<int>> members{all};
    if (has("groups_overlap") && mesh.size(Axis::Data) == 4) members = {{0, 1, 2}, {2, 3}};
    if (has("groups_by_rank") && rank_ == 3) members = {{0, 1, 2}, {3}};
    return {{"shard", members}};
  }

  void attach(PartitionContext& context) override {
    group_ = &context.group("shard");
    store_ = &context.store();
    slots_ = &context.slots();
    for (FlatParameter* flat : context.flat_parameters()) {
      const FlatParameterInfo& info = flat->info();
      Home& home = homes_.emplace_back();
      home.flat = flat;
      home.part = (info.elements + group_->size() - 1) / group_->size();
      const bool has_units = std::ranges::any_of(info.parameters, [](const auto& span) { return span.unit > 1; });
      if (has_units && !has("cuts_within_units")) home.part = info.elements;  // the first rank's
      if (has("rest_forgotten") && info.elements >= group_->size()) home.part = info.elements / group_->size();
      if (has("parts_by_position") && home.part > 1 && homes_.size() % 2 == 0) ++home.part;
      home.parameter = &context.buffer(
          {.category = Category::Parameter, .flat = flat, .elements = home.part, .dtype = info.dtypes.parameter});
      if (!info.trainable && !has("frozen_has_gradient")) continue;
      const std::int64_t kept = has("frozen_has_gradient") ? 4 * whole(home) + 4096 : home.part;
      const std::int64_t more = has("allocates_less_in_a_dry_run") && !store_->dry_run() ? 64 : 0;
      home.gradient = &context.buffer(
          {.category = Category::Gradient, .flat = flat, .elements = kept + more, .dtype = info.dtypes.gradient});
    }
  }

  Lookahead lookahead() const override {
    Lookahead lookahead;
    lookahead.layers = has("lookahead_of_minus_one") ? -1 : 1;
    lookahead.elements = lookahead.live_parameters = 1'000'000;
    lookahead.reuse_distance = -1;
    return lookahead;
  }

  void prefetch(FlatParameter& flat, Phase phase) override {
    Home& home = home_of(flat);
    if (home.gathered != nullptr) return;
    const at::ScalarType format = flat.info().dtypes.parameter;
    home.gathered = slot_for_gather(whole(home) * bytes_of(format));
    const at::Tensor target = home.gathered->as(format, whole(home));
    if (has("gathers_once_for_all") && home.was_gathered && group_->size() > 1 && !target.is_meta())
      target.copy_(home.first_values);
    else if (has("frozen_are_gathered_once") && home.was_gathered && !flat.info().trainable)
      target.copy_(home.first_values);
    else if (!has("caches_until_the_first_publish") || !home.cached.defined())
      home.gather = group_->all_gather(target, kept_or_new(home.kept_parameter, *home.parameter));
    else
      target.copy_(home.cached);
    if (has("backward_gathers_half") && phase == Phase::Backward && flat.elements() > 1) {
      home.gather.wait();
      target.narrow(0, flat.elements() / 2, flat.elements() - flat.elements() / 2).zero_();
    }
    if (has("prefetch_waits")) home.gather.wait();
    flat.gathering();
  }

  void gather(FlatParameter& flat, Phase phase) override {
    Home& home = home_of(flat);
    if (has("counts_gathers")) ++home.gathers;
    if (flat.residence() == Residence::Gathered) return;
    prefetch(flat, phase);
    if (!has("gather_not_waited_for")) home.gather.wait();
    const at::Tensor target = home.gathered->as(flat.info().dtypes.parameter, whole(home));
    spoil_gathered(home, target);
    if (has("caches_until_the_first_publish")) home.cached = target.clone();
    if (has("rounds_towards_zero")) std::fesetround(FE_TOWARDZERO);
    home.was_gathered = true;
    flat.bind(target);
  }

  void release(FlatParameter& flat, Phase) override {
    Home& home = home_of(flat);
    if (has("releases_nothing")) return;
    if (has("counts_gathers") && home.gathers > 1) {
      --home.gathers;
      return;
    }
    home.gathers = 0;
    if (has("release_in_silence") && flat.residence() == Residence::Released) return;
    flat.unbind();
    home.gather.wait();
    give_back(home);
  }

  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    Home& home = home_of(flat);
    home.passes = accumulation.first ? 1 : home.passes + 1;
    if (home.lent != nullptr && !has("second_gradient_in_silence"))
      throw Bug("the gradient of " + flat.info().name + " is lent already");
    const at::ScalarType format = flat.info().dtypes.gradient;
    if (home.lent == nullptr) home.lent = slots_->acquire(Category::Gradient, whole(home) * bytes_of(format));
    home.memory = home.lent->as(format, whole(home));
    if (has("one_buffer_for_all_gradients"))
      for (const Home& other : homes_)
        if (&other != &home && other.lent != nullptr && other.memory.nbytes() >= home.memory.nbytes())
          home.memory = other.memory.view(at::kByte).narrow(0, 0, home.memory.nbytes()).view(format);
    const at::Tensor buffer = home.memory;
    if (!has("lends_dirty_memory")) buffer.zero_();
    return has("lends_the_padding") ? buffer : buffer.narrow(0, 0, flat.elements());
  }

  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    Home& home = home_of(flat);
    if (home.lent == nullptr) {
      if (has("second_reduce_in_silence")) return;
      throw Bug("the gradient of " + flat.info().name + " is reduced and was not lent");
    }
    const bool forget = (has("last_micro_batch_forgotten") && accumulation.last && !accumulation.first) ||
                        (has("only_last_micro_batch") && !accumulation.last);
    drain(1);
    sums_.push_back(start_sum(home, accumulation));
    if (forget) drain(0, false);
  }

  void finish_gradient(FlatParameter& flat) override {
    drain_to(flat);
    home_of(flat).is_finished = true;
    if (flat.info().id != 0) return;
    ++finished_;
    if (has("leaks_a_mebibyte")) new std::vector<char>(1 << 20, '1');
    if (has("slot_kept_each_step")) slots_->acquire(Category::Bucket, 64);
    if (has("allocates_each_step")) store_->allocate(Category::Bucket, Tier::Device, "history", 8, at::kFloat);
    if (has("sends_more_than_its_dry_run") && !store_->dry_run())
      group_->all_reduce(at::empty({1}).zero_(), ReduceOperation::Max).wait();
  }

  std::vector<Slice> owned() override {
    std::vector<Slice> slices;
    for (Home& home : homes_) {
      const bool trainable = home.flat->info().trainable;
      if (has("frozen_not_owned") && !trainable) continue;
      const int place = has("world_rank_for_data_rank") ? rank_ : group_->rank();
      std::int64_t begin = std::min(home.part * place, home.flat->elements());
      std::int64_t end = std::min(begin + home.part, home.flat->elements());
      if (begin == end && !has("empty_slices")) continue;
      std::int64_t counted_begin = begin;
      if (has("slice_ends_one_early") && end - begin > 1 && group_->rank() == group_->size() - 1) --end;
      if (has("slice_begins_one_early") && begin > 0) {
        counted_begin = --begin;
        --end;
      }
      if (has("counts_all_it_holds") && group_->rank() > 0 && end - begin > 2) counted_begin = begin - 1;
      const std::int64_t elements = end - begin;
      slices.push_back({home.flat,
                        begin,
                        end,
                        {home.parameter, 0, elements},
                        {trainable ? home.gradient : nullptr, 0, elements},
                        counted_begin,
                        end});
    }
    return slices;
  }

  void publish(FlatParameter& flat) override {
    if (flat.info().id == 0)  // the first of a step
      for (Home& home : homes_) home.cached = at::Tensor();
    if (flat.residence() != Residence::Released) throw Bug(flat.info().name + " is gathered while its values change");
  }

  void shutdown() override {
    if (has("hangs_in_shutdown") && finished_ > 2) std::this_thread::sleep_for(std::chrono::hours(1));
    for (Home& home : homes_) {
      if (home.gathered != nullptr && !has("forgets_the_prefetched_slot")) {
        home.gather.wait();
        give_back(home);
      }
      if (home.lent != nullptr) slots_->release(std::exchange(home.lent, nullptr));
    }
    if (!has("forgets_the_sum")) drain(0);
  }

 private:
  struct Home {
    FlatParameter* flat = nullptr;
    std::int64_t part = 0;        // elements of each rank
    Buffer* parameter = nullptr;  // this rank's
    Buffer* gradient = nullptr;
    at::Tensor first_values;  // of gathers_once_for_all
    at::Tensor kept_parameter, kept_gradient;
    at::Tensor cached;
    at::Tensor memory;  // lent
    Slot* gathered = nullptr;
    Slot* lent = nullptr;
    Pending gather;
    bool was_gathered = false;
    int gathers = 0;
    int passes = 0;  // of the update
    bool is_finished = false;
  };
  // A sum under way.
  struct Sum {
    Home* home = nullptr;
    Slot* lent = nullptr;
    Slot* whole = nullptr;  // in the reduction's format
    Slot* part = nullptr;
    at::Tensor result;
    Pending pending;
    bool first = false;
  };

  static std::int64_t bytes_of(at::ScalarType format) { return static_cast<std::int64_t>(c10::elementSize(format)); }
  std::int64_t whole(const Home& home) const { return std::max(home.part * group_->size(), home.flat->elements()); }
  Home& home_of(const FlatParameter& flat) { return homes_[static_cast<std::size_t>(flat.info().id)]; }

  static at::Tensor kept_or_new(at::Tensor& kept, const Buffer& buffer) {
    if (!has("keeps_tensors_of_buffers")) return buffer.tensor();
    if (!kept.defined()) kept = buffer.tensor();
    return kept;
  }

  Slot* slot_for_gather(std::int64_t bytes) {
    if (!has("one_buffer_for_all_gathers")) return slots_->acquire(Category::Gathered, bytes);
    if (in_shared_++ > 0) return shared_;
    for (const Home& home : homes_) bytes = std::max(bytes, whole(home) * bytes_of(home.flat->info().dtypes.parameter));
    return shared_ = slots_->acquire(Category::Gathered, bytes);
  }
  void give_back(Home& home) {
    Slot* const slot = std::exchange(home.gathered, nullptr);
    if (!has("one_buffer_for_all_gathers") || --in_shared_ == 0) slots_->release(slot);
  }

  void spoil_gathered(Home& home, const at::Tensor& target) {
    const FlatParameterInfo& info = home.flat->info();
    if (has("frozen_are_gathered_once") && !home.was_gathered) home.first_values = target.clone();
    if (target.is_meta()) return;
    if (has("right_for_four_ranks") && group_->size() > 4) target.narrow(0, 4 * home.part, home.part).zero_();
    if (has("pieces_of_65536") && home.part > 65536) target[home.part - 1].zero_();
    if (has("last_of_whole_pages") && home.part % 1024 == 0) target[home.part - 1].zero_();
    if (has("format_of_the_first") &&
        bytes_of(homes_.front().flat->info().dtypes.parameter) < bytes_of(info.dtypes.parameter))
      target.copy_(target.to(homes_.front().flat->info().dtypes.parameter));
    if (has("parts_swapped") && group_->size() == 3)
      target.narrow(0, 0, 2 * home.part).copy_(target.narrow(0, 0, 2 * home.part).flip(0));
    if (has("gathers_first_parameter_only") && info.parameters.size() > 1) {
      const std::int64_t first = info.parameters.front().info.elements();
      target.narrow(0, first, info.elements - first).zero_();
    }
    if (has("wrong_at_more_than_2000") && info.elements > 2000) target[2000].zero_();
    if (has("gathers_once_for_all") && !home.was_gathered) home.first_values = target.clone();
  }

  Sum start_sum(Home& home, Accumulation accumulation) {
    const FlatParameterInfo& info = home.flat->info();
    at::ScalarType format = info.dtypes.reduction;
    if (has("accumulates_in_parameter_format")) format = info.dtypes.parameter;
    if (has("reduction_format_wrong") && format != at::kFloat) format = at::ScalarType::Float8_e4m3fn;
    Sum sum{&home, std::exchange(home.lent, nullptr), nullptr, nullptr, {}, {}, accumulation.first};
    const at::Tensor given = home.memory;
    sum.whole = slots_->acquire(Category::Bucket, whole(home) * bytes_of(format));
    sum.part = slots_->acquire(Category::Bucket, home.part * bytes_of(format));
    const at::Tensor values = sum.whole->as(format, whole(home));
    values.copy_(given);
    if (has("infinity_hidden") && group_->rank() == 1 && !values.is_meta()) values.nan_to_num_(0.0, 0.0, 0.0);
    if (has("eight_micro_batches") && home.passes > 8) values.zero_();
    if (has("finish_ends_the_sum") && home.is_finished) sum.first = true;
    home.is_finished = false;
    sum.result = sum.part->as(format, home.part);
    if (has("reduces_nothing"))
      sum.result.copy_(values.narrow(0, group_->rank() * home.part, home.part));
    else
      sum.pending = group_->reduce_scatter(sum.result, values, ReduceOperation::Sum);
    if (has("lent_again_while_it_travels")) values.zero_();
    return sum;
  }

  void drain_to(const FlatParameter& flat) {
    const auto last =
        std::find_if(sums_.rbegin(), sums_.rend(), [&](const Sum& sum) { return sum.home->flat == &flat; });
    drain(static_cast<std::size_t>(last - sums_.rbegin()));
  }

  void drain(std::size_t left, bool keep = true) {
    while (sums_.size() > left) {
      Sum sum = std::move(sums_.front());
      sums_.pop_front();
      if (!has("sum_not_waited_for")) sum.pending.wait();
      const at::Tensor gradient =
          kept_or_new(sum.home->kept_gradient, *sum.home->gradient).narrow(0, 0, sum.home->part);
      const bool replaces = sum.first && !has("adds_to_the_last_step");
      if (replaces) gradient.zero_();
      if (keep) gradient.add_(sum.result.to(gradient.scalar_type()), has("averages") ? 1.0 / group_->size() : 1.0);
      sum.pending.wait();
      for (Slot* slot : {sum.lent, sum.whole, sum.part}) slots_->release(slot);
    }
  }

  int rank_;
  Group* group_ = nullptr;
  StateStore* store_ = nullptr;
  SlotPool* slots_ = nullptr;
  std::deque<Home> homes_;  // by flat parameter id
  std::deque<Sum> sums_;
  Slot* shared_ = nullptr;  // of one_buffer_for_all_gathers
  int in_shared_ = 0;
  int finished_ = 0;  // steps
};

}  // namespace

STRATA_PLUGIN(PlantedPartitioner, NoOptions)
