#include <strata/error.hpp>
#include <strata/toolbox/sharded_gradients.hpp>

#include <algorithm>
#include <utility>

namespace strata::toolbox {

namespace {
double power_of_two_from(int ranks) {
  double power = 1.0;
  while (power < ranks) power *= 2.0;
  return power;
}
}  // namespace

std::string ShardedGradients::attach(PartitionContext& context, Group& shard, Group* replicate,
                                     std::vector<ShardLayout> layouts, const GradientSharding& sharding) {
  shard_ = &shard;
  replicate_ = replicate != nullptr && replicate->size() > 1 ? replicate : nullptr;
  slots_ = &context.slots();
  sharding_ = sharding;
  if (sharding.compression) compressed_.attach(context, shard, replicate_, layouts, *sharding.compression);
  scale_ = sharding.prescale || sharding.compression
               ? 1.0
               : power_of_two_from(shard.size() * (replicate != nullptr ? replicate->size() : 1)) /
                     sharding.predivide_factor;
  homes_.resize(context.flat_parameters().size());
  for (FlatParameter* flat : context.flat_parameters()) {
    const FlatParameterInfo& info = flat->info();
    Home& home = home_of(*flat);
    home.flat = flat;
    home.layout = std::move(layouts[static_cast<std::size_t>(info.id)]);
    if (!info.trainable) continue;
    home.whole = sharding.whole || shard.size() == 1;
    if (const std::int64_t kept = home.whole ? home.layout.whole() : home.layout.part(); kept > 0)
      home.buffer = &context.buffer(
          {.category = Category::Gradient, .flat = flat, .elements = kept, .dtype = info.dtypes.gradient});
  }
  return sharding.rows ? row_sums_.attach(context, shard) : "";
}

BufferRange ShardedGradients::part(const FlatParameter& flat, const ShardLayout::Piece& piece) const {
  const Home& home = homes_[static_cast<std::size_t>(flat.info().id)];
  if (home.whole) return home.layout.part_of(*home.buffer, piece);
  return home.layout.stored_part(*home.buffer, piece);
}

LentGradient ShardedGradients::gradient(FlatParameter& flat, Accumulation accumulation) {
  Home& home = home_of(flat);
  if (std::exchange(home.lent, true)) throw Bug("the gradient of {} is lent already", flat.info().name);
  const auto lend = [&](const at::Tensor& whole, bool empty) -> LentGradient {
    const std::int64_t elements = flat.elements();
    if (empty) whole.narrow(0, elements, whole.numel() - elements).zero_();  // the padding travels too
    return {whole.narrow(0, 0, elements), empty};
  };
  if (home.whole) return lend(home.buffer->tensor(), accumulation.first);
  const at::ScalarType dtype = flat.info().dtypes.gradient;
  home.slot =
      slots_->acquire(Category::Gradient, home.layout.whole() * static_cast<std::int64_t>(c10::elementSize(dtype)));
  home.slot->last_use().block(StreamKind::Compute);
  return lend(home.slot->as(dtype, home.layout.whole()), true);
}

void ShardedGradients::reduce(FlatParameter& flat, Accumulation accumulation) {
  Home& home = home_of(flat);
  if (!std::exchange(home.lent, false)) throw Bug("the gradient of {} is reduced and was not lent", flat.info().name);
  if (sharding_.compression && accumulation.first) compressed_.update_begins(flat);
  if (home.whole && !accumulation.last) return;
  if (sharding_.exchange != nullptr && sharding_.exchange->leaves_gradients()) return;
  // At most one lent gradient is on its way while the next is filled: its buffers are what bounds the memory.
  if (!home.whole) finish_down_to(sums_, 0);
  const at::Tensor whole =
      home.whole ? home.buffer->tensor() : home.slot->as(flat.info().dtypes.gradient, home.layout.whole());
  for (const ShardLayout::Piece& piece : home.layout.pieces()) {
    if (shard_->size() > 1)
      start_sum(home, piece, whole, accumulation);
    else if (replicate_ != nullptr)
      start_replica_sum(home, piece, home.layout.piece_of(whole, piece));
  }
  if (home.slot != nullptr) sums_.back().slot = std::exchange(home.slot, nullptr);
  if (!sharding_.overlap) finish_all();
}

void ShardedGradients::start_sum(Home& home, const ShardLayout::Piece& piece, const at::Tensor& whole,
                                 Accumulation accumulation) {
  at::Tensor values = home.layout.piece_of(whole, piece);
  if (sharding_.compression) return start_compressed_sum(home, piece, values, accumulation);
  if (scale_ != 1.0) values.mul_(scale_);
  const bool same_dtype = home.flat->info().dtypes.reduction == home.flat->info().dtypes.gradient;
  if (!same_dtype) finish_down_to(sums_, 1);  // one is rounded while one travels
  Sum sum;
  if (!same_dtype) values = staged(sum, home, values);
  sum.home = &home;
  sum.piece = &piece;
  sum.add = !home.whole && !accumulation.first;
  sum.replicas = accumulation.last && replicate_ != nullptr;
  if (piece.part > 0) sum.destination = part(*home.flat, piece).tensor();
  bool scatters = sharding_.reduce_scatter;
  if (row_sums_.takes(*home.flat)) sum.rows = row_sums_.start(*home.flat, values, scatters);
  const bool by_rows = sum.rows && sum.rows->travels();
  if (by_rows) scatters = false;
  sum.in_place = same_dtype && (home.whole || (piece.in_parts && accumulation.first && scatters));
  if (piece.in_parts && !sum.in_place)
    sum.sum = values.narrow(0, shard_->rank() * piece.part, piece.part);
  else
    sum.sum = sum.in_place ? sum.destination : values;
  const auto dense = [&] {
    if (!scatters) return shard_->all_reduce(values, ReduceOperation::Sum);
    if (piece.in_parts) return shard_->reduce_scatter(sum.sum, values, ReduceOperation::Sum);
    return shard_->reduce(values, piece.owner, ReduceOperation::Sum);
  };
  if (!by_rows) sum.pending = dense();
  sums_.push_back(std::move(sum));
}

void ShardedGradients::start_compressed_sum(Home& home, const ShardLayout::Piece& piece, const at::Tensor& values,
                                            Accumulation accumulation) {
  finish_down_to(sums_, 1);  // one is compressed while one travels
  Sum sum;
  sum.home = &home;
  sum.piece = &piece;
  sum.replicas = accumulation.last && replicate_ != nullptr;
  if (piece.part > 0) sum.destination = part(*home.flat, piece).tensor();
  sum.compressed =
      compressed_.sum(*home.flat, home.number_of(piece), values, sum.destination, !home.whole && !accumulation.first);
  sums_.push_back(std::move(sum));
}

void ShardedGradients::start_replica_sum(const Home& home, const ShardLayout::Piece& piece, const at::Tensor& values) {
  if (sharding_.compression) {
    finish_down_to(replica_sums_, 1);
    Sum& sum = replica_sums_.emplace_back();
    sum.home = &home;
    sum.piece = &piece;
    sum.destination = values;
    sum.shares = true;
    sum.compressed = compressed_.sum_over_replicas(*home.flat, home.number_of(piece), values);
    return;
  }
  if (scale_ != 1.0) values.mul_(scale_);
  Sum sum;
  sum.home = &home;
  sum.destination = values;
  sum.in_place = home.flat->info().dtypes.reduction == home.flat->info().dtypes.gradient;
  if (!sum.in_place) finish_down_to(replica_sums_, 1);
  sum.sum = sum.in_place ? values : staged(sum, home, values);
  sum.pending = replicate_->all_reduce(sum.sum, ReduceOperation::Sum);
  replica_sums_.push_back(std::move(sum));
}

void ShardedGradients::start_replica_gather(const Sum& shares) {
  finish_down_to(replica_gathers_, 1);
  Sum& sum = replica_gathers_.emplace_back();
  sum.home = shares.home;
  sum.compressed =
      compressed_.gather_over_replicas(*sum.home->flat, sum.home->number_of(*shares.piece), shares.destination);
}

at::Tensor ShardedGradients::staged(Sum& sum, const Home& home, const at::Tensor& values) {
  const at::ScalarType dtype = home.flat->info().dtypes.reduction;
  sum.staging = slots_->acquire(Category::Bucket, values.numel() * static_cast<std::int64_t>(c10::elementSize(dtype)));
  sum.staging->last_use().block(StreamKind::Compute);
  const at::Tensor rounded = sum.staging->as(dtype, values.numel());
  rounded.copy_(values);
  return rounded;
}

void ShardedGradients::finish_down_to(std::deque<Sum>& sums, std::size_t left) {
  while (sums.size() > left) {
    Sum sum = std::move(sums.front());
    sums.pop_front();
    finish(sum);
  }
}

void ShardedGradients::finish(Sum& sum) {
  sum.pending.wait();
  if (sum.rows) row_sums_.finish(*sum.rows);
  for (Pending& pending : sum.compressed.pending) pending.wait();
  const double inverse = 1.0 / scale_;
  if (sum.compressed.arrived) {
    sum.compressed.arrived();
  } else if (!sum.destination.defined()) {
    // another rank's
  } else if (sum.add) {
    sum.destination.add_(sum.sum, inverse);
  } else {
    if (!sum.in_place) sum.destination.copy_(sum.sum);
    if (inverse != 1.0) sum.destination.mul_(inverse);
  }
  give_back(sum);
  if (sum.replicas && sum.destination.defined()) start_replica_sum(*sum.home, *sum.piece, sum.destination);
  if (sum.shares) start_replica_gather(sum);
}

void ShardedGradients::finish_all() {
  finish_down_to(sums_, 0);
  finish_down_to(replica_sums_, 0);
  finish_down_to(replica_gathers_, 0);
}

// Sums end in the order in which they started: those of other flat parameters that started earlier end with it, later
// ones continue.
void ShardedGradients::finish(FlatParameter& flat) {
  for (std::deque<Sum>* const sums : {&sums_, &replica_sums_, &replica_gathers_}) {
    const auto last =
        std::find_if(sums->rbegin(), sums->rend(), [&](const Sum& sum) { return sum.home->flat == &flat; });
    finish_down_to(*sums, static_cast<std::size_t>(last - sums->rbegin()));
  }
}

void ShardedGradients::give_back(Sum& sum) {
  give_back(sum.staging);
  give_back(sum.compressed.messages);
  give_back(sum.slot);
}

void ShardedGradients::give_back(Slot*& slot) {
  if (slot == nullptr) return;
  slot->last_use().record(StreamKind::Compute);
  slots_->release(std::exchange(slot, nullptr));
}

void ShardedGradients::shutdown() {
  for (std::deque<Sum>* sums : {&sums_, &replica_sums_, &replica_gathers_}) {
    for (Sum& sum : *sums) {
      const Pending ended = std::move(sum.pending);  // a handle's end waits for its operation
      sum.compressed.pending.clear();
      if (sum.rows) row_sums_.drop(*sum.rows);
    }
    for (Sum& sum : *sums) give_back(sum);
    sums->clear();
  }
  for (Home& home : homes_) give_back(home.slot);
}

}  // namespace strata::toolbox
