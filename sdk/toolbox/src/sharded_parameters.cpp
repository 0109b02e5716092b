#include <strata/error.hpp>
#include <strata/toolbox/encoded_messages.hpp>
#include <strata/toolbox/sharded_parameters.hpp>

#include <utility>

namespace strata::toolbox {

void ShardedParameters::attach(PartitionContext& context, Group& shard, Group* secondary,
                               const ParameterSharding& sharding) {
  shard_ = &shard;
  secondary_ = secondary;
  slots_ = &context.slots();
  device_ = &context.device();
  sharding_ = sharding;
  homes_.resize(context.flat_parameters().size());
  std::vector<ShardLayout> layouts =
      ShardLayout::of(context.flat_parameters(), shard.rank(), shard.size(), sharding.piece_elements);
  std::int64_t persistent = 0;
  for (FlatParameter* flat : context.flat_parameters()) {
    const FlatParameterInfo& info = flat->info();
    Home& home = home_of(*flat);
    home.flat = flat;
    home.layout = std::move(layouts[static_cast<std::size_t>(info.id)]);
    const bool persists = info.elements <= sharding.persistence_threshold &&
                          info.elements <= sharding.model_persistence_threshold - persistent;
    if (sharding.released && persists) persistent += info.elements;
    home.whole = !sharding.released || persists || (shard.size() == 1 && !context.moves(Category::Parameter));
    if (const std::int64_t kept = home.whole ? home.layout.whole() : home.layout.part(); kept > 0)
      home.buffer = &context.buffer({.category = Category::Parameter,
                                     .flat = flat,
                                     .elements = kept,
                                     .dtype = info.dtypes.parameter,
                                     .resident = home.whole});
    if (shard.size() > 1) make_messages(context, home);
    if (home.whole) {
      flat->bind(home.buffer->tensor());
      if (!home.compressed.empty() && home.layout.part() > 0)
        home.parts = &context.buffer({.category = Category::Parameter,
                                      .flat = flat,
                                      .elements = home.layout.part(),
                                      .dtype = info.dtypes.parameter,
                                      .resident = true});
      continue;
    }
    home.written = context.device().make_event();
    if (secondary == nullptr) continue;
    home.secondary_layout = ShardLayout(info.elements, secondary->rank(), secondary->size(), sharding.piece_elements);
    home.secondary = context.store().allocate(Category::Parameter, Tier::Device, info.name + ", secondary part",
                                              home.secondary_layout.part(), info.dtypes.parameter);
  }
}

void ShardedParameters::make_messages(PartitionContext& context, Home& home) {
  const FlatParameterInfo& info = home.flat->info();
  std::vector<const ParameterSpan*> encoded;
  if (sharding_.code != nullptr) encoded = encoded_weights(info, *sharding_.code);
  for (const ParameterSpan* const weight : encoded) sharding_.code->comes_decoded(weight->info);
  if (!encoded.empty())
    home.magnitudes = context.store().allocate(Category::Staging, Tier::Device, info.name + ", magnitudes",
                                               static_cast<std::int64_t>(encoded.size()), at::kFloat);
  for (const ShardLayout::Piece& piece : home.layout.pieces()) {
    const RangeMessages::Ranges ranges = RangeMessages::ranges_of(piece, shard_->size());
    if (!encoded.empty())
      home.compressed.push_back(std::make_unique<EncodedMessages>(info, ranges, *sharding_.code, home.magnitudes));
    else if (sharding_.compression)
      home.compressed.push_back(std::make_unique<WireMessages>(info, ranges, *sharding_.compression));
  }
}

BufferRange ShardedParameters::part(const FlatParameter& flat, const ShardLayout::Piece& piece) const {
  const Home& home = home_of(flat);
  if (home.parts != nullptr) return home.layout.stored_part(*home.parts, piece);
  if (home.whole) return home.layout.part_of(*home.buffer, piece);
  return home.layout.stored_part(*home.buffer, piece);
}

void ShardedParameters::start_gather(Home& home, const at::Tensor& whole) {
  if (home.messages != nullptr) return start_compressed_gather(home);
  const ShardLayout& layout = home.secondary_current ? home.secondary_layout : home.layout;
  for (const ShardLayout::Piece& piece : layout.pieces()) {
    const at::Tensor target = layout.piece_of(whole, piece);
    if (home.secondary_current) {
      home.gathers.push_back(secondary_->all_gather(target, home.secondary.narrow(0, piece.stored, piece.part)));
    } else if (piece.in_parts) {
      home.gathers.push_back(shard_->all_gather(target, part(*home.flat, piece).tensor()));
    } else {
      if (piece.part > 0 && !home.whole) target.copy_(part(*home.flat, piece).tensor());
      home.gathers.push_back(shard_->broadcast(target, piece.owner));
    }
  }
}

std::int64_t ShardedParameters::Home::message_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& piece : compressed) bytes += piece->ranges() * piece->bytes();
  return bytes;
}

// Where the next gather of `home` is a compressed one.
void ShardedParameters::take_messages(Home& home, StreamKind stream) {
  if (home.compressed.empty() || home.secondary_current) return;
  home.messages = slots_->acquire(Category::Bucket, home.message_bytes());
  home.messages->last_use().block(stream);
}

// A weight's magnitude is the largest that a rank's part has. Waited for here, where ranks have just met, and not in
// prefetch(), which does not block.
void ShardedParameters::measure(Home& home) {
  if (!home.magnitudes.defined()) return;
  home.magnitudes.zero_();
  for (std::size_t i = 0; i < home.compressed.size(); ++i) {
    const ShardLayout::Piece& piece = home.layout.pieces()[i];
    if (piece.part > 0)
      home.compressed[i]->measure(piece.in_parts ? shard_->rank() : 0, part(*home.flat, piece).tensor());
  }
  shard_->all_reduce(home.magnitudes, ReduceOperation::Max).wait();
}

void ShardedParameters::start_compressed_gather(Home& home) {
  const int rank = shard_->rank();
  at::Tensor left = home.messages->as(at::kByte, home.message_bytes());
  for (std::size_t i = 0; i < home.compressed.size(); ++i) {
    const ShardLayout::Piece& piece = home.layout.pieces()[i];
    const RangeMessages& messages = *home.compressed[i];
    const std::int64_t bytes = messages.ranges() * messages.bytes();
    const at::Tensor all = left.narrow(0, 0, bytes), mine = messages.message(all, piece.in_parts ? rank : 0);
    if (piece.part > 0) messages.encode(piece.in_parts ? rank : 0, part(*home.flat, piece).tensor(), mine);
    home.gathers.push_back(piece.in_parts ? shard_->all_gather(all, mine) : shard_->broadcast(all, piece.owner));
    left = left.narrow(0, bytes, left.numel() - bytes);
  }
}

// This rank's own parts too: all ranks compute with the same values.
void ShardedParameters::decode(Home& home) {
  const at::Tensor whole =
      home.whole ? home.buffer->tensor() : home.slot->as(home.flat->info().dtypes.parameter, home.slot_elements());
  at::Tensor left = home.messages->as(at::kByte, home.message_bytes());
  for (std::size_t i = 0; i < home.compressed.size(); ++i) {
    const at::Tensor values = home.layout.piece_of(whole, home.layout.pieces()[i]);
    const RangeMessages& messages = *home.compressed[i];
    for (int range = 0; range < messages.ranges(); ++range)
      messages.decode(range, messages.message(left, range), messages.values(values, range));
    const std::int64_t bytes = messages.ranges() * messages.bytes();
    left = left.narrow(0, bytes, left.numel() - bytes);
  }
}

void ShardedParameters::give_back_messages(Home& home) {
  if (home.messages == nullptr) return;
  home.messages->last_use().record(StreamKind::Compute);
  slots_->release(std::exchange(home.messages, nullptr));
}

// The values of a slot are there when the communication stream has made its own copies, and the gathers have ended. A
// gather's wait() does not say the former: a group of one rank copies where it is started and has nothing to wait for.
void ShardedParameters::wait(Home& home) {
  if (home.slot != nullptr) home.slot->ready().block(StreamKind::Compute);
  for (Pending& gather : home.gathers) gather.wait();
  home.gathers.clear();
  if (home.messages == nullptr) return;
  decode(home);
  give_back_messages(home);
}

// The communication stream waits for the slot's last use and the values alone, not for all the computing that was asked
// for before.
void ShardedParameters::prefetch(FlatParameter& flat) {
  Home& home = home_of(flat);
  if (home.whole || flat.residence() != Residence::Released) return;
  const at::ScalarType dtype = flat.info().dtypes.parameter;
  const std::int64_t elements = home.slot_elements();
  home.slot = slots_->acquire(Category::Gathered, elements * static_cast<std::int64_t>(c10::elementSize(dtype)));
  home.slot->last_use().block(StreamKind::Communication);
  take_messages(home, StreamKind::Communication);
  home.written->block(StreamKind::Communication);
  device_->on(StreamKind::Communication, [&] { start_gather(home, home.slot->as(dtype, elements)); });
  home.slot->ready().record(StreamKind::Communication);
  flat.gathering();
}

void ShardedParameters::gather(FlatParameter& flat) {
  Home& home = home_of(flat);
  if (home.whole) return wait(home);
  if (flat.residence() == Residence::Gathered) return;
  prefetch(flat);
  wait(home);
  const at::Tensor whole = home.slot->as(flat.info().dtypes.parameter, home.slot_elements());
  flat.bind(whole);
  if (home.secondary.defined() && !home.secondary_current) keep_secondary(home, whole);
}

void ShardedParameters::keep_secondary(Home& home, const at::Tensor& whole) {
  for (const ShardLayout::Piece& piece : home.secondary_layout.pieces())
    home.secondary.narrow(0, piece.stored, piece.part)
        .copy_(whole.narrow(0, piece.begin + secondary_->rank() * piece.part, piece.part));
  home.secondary_current = true;
  home.written->record(StreamKind::Compute);
}

void ShardedParameters::release(FlatParameter& flat) {
  Home& home = home_of(flat);
  if (home.whole) return;
  flat.unbind();
  home.slot->last_use().record(StreamKind::Compute);
  slots_->release(std::exchange(home.slot, nullptr));
}

void ShardedParameters::publish(FlatParameter& flat) {
  Home& home = home_of(flat);
  if (!home.whole) {
    // The parts are the published form: the next gather sends the new values.
    if (flat.residence() != Residence::Released)
      throw Bug("{} is {} while its values change", flat.info().name, to_string(flat.residence()));
    home.secondary_current = false;
    measure(home);
    home.written->record(StreamKind::Compute);
    return;
  }
  if (shard_->size() == 1) return;
  wait(home);
  measure(home);
  take_messages(home, StreamKind::Compute);
  start_gather(home, home.buffer->tensor());
  if (!sharding_.overlap) wait(home);
}

void ShardedParameters::shutdown() {
  for (Home& home : homes_) {
    home.gathers.clear();  // a handle's end waits for its operation
    give_back_messages(home);
    if (home.slot != nullptr) slots_->release(std::exchange(home.slot, nullptr));
  }
}

}  // namespace strata::toolbox
