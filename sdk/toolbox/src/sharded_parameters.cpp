#include <strata/error.hpp>
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
  std::int64_t persistent = 0;
  for (FlatParameter* flat : context.flat_parameters()) {
    const FlatParameterInfo& info = flat->info();
    Home& home = home_of(*flat);
    home.flat = flat;
    home.layout = ShardLayout(info.elements, shard.size(), sharding.piece_elements);
    const bool persists = info.elements <= sharding.persistence_threshold &&
                          info.elements <= sharding.model_persistence_threshold - persistent;
    if (sharding.released && persists) persistent += info.elements;
    home.whole = !sharding.released || persists || (shard.size() == 1 && !context.moves(Category::Parameter));
    home.buffer = &context.buffer({.category = Category::Parameter,
                                   .flat = flat,
                                   .elements = home.whole ? home.layout.whole() : home.layout.part(),
                                   .dtype = info.dtypes.parameter,
                                   .resident = home.whole});
    if (home.whole) {
      flat->bind(home.buffer->tensor());
      continue;
    }
    home.written = context.device().make_event();
    if (secondary != nullptr)
      home.secondary = context.store().allocate(Category::Parameter, Tier::Device, info.name + ", secondary part",
                                                home.layout.whole() / secondary->size(), info.dtypes.parameter);
  }
}

BufferRange ShardedParameters::part(const FlatParameter& flat, const ShardLayout::Piece& piece) const {
  const Home& home = home_of(flat);
  if (home.whole) return home.layout.part_of(*home.buffer, piece, shard_->rank());
  return home.layout.stored_part(*home.buffer, piece);
}

void ShardedParameters::start_gather(Home& home, const at::Tensor& whole) {
  for (const ShardLayout::Piece& piece : home.layout.pieces()) {
    const at::Tensor target = home.layout.piece_of(whole, piece);
    if (home.secondary_current) {
      const std::int64_t part = target.numel() / secondary_->size();
      home.gathers.push_back(
          secondary_->all_gather(target, home.secondary.narrow(0, piece.begin / secondary_->size(), part)));
    } else {
      home.gathers.push_back(shard_->all_gather(target, part(*home.flat, piece).tensor()));
    }
  }
}

void ShardedParameters::wait(Home& home) {
  for (Pending& gather : home.gathers) gather.wait();
  home.gathers.clear();
}

// The communication stream waits for the slot's last use and the values alone, not for all the computing that was asked
// for before.
void ShardedParameters::prefetch(FlatParameter& flat) {
  Home& home = home_of(flat);
  if (home.whole || flat.residence() != Residence::Released) return;
  const at::ScalarType dtype = flat.info().dtypes.parameter;
  const std::int64_t elements = home.layout.whole();
  home.slot = slots_->acquire(Category::Gathered, elements * static_cast<std::int64_t>(c10::elementSize(dtype)));
  home.slot->last_use().block(StreamKind::Communication);
  home.written->block(StreamKind::Communication);
  device_->on(StreamKind::Communication, [&] { start_gather(home, home.slot->as(dtype, elements)); });
  flat.gathering();
}

void ShardedParameters::gather(FlatParameter& flat) {
  Home& home = home_of(flat);
  if (home.whole) return wait(home);
  if (flat.residence() == Residence::Gathered) return;
  prefetch(flat);
  wait(home);
  const at::Tensor whole = home.slot->as(flat.info().dtypes.parameter, home.layout.whole());
  flat.bind(whole);
  if (home.secondary.defined() && !home.secondary_current) keep_secondary(home, whole);
}

void ShardedParameters::keep_secondary(Home& home, const at::Tensor& whole) {
  for (const ShardLayout::Piece& piece : home.layout.pieces()) {
    const at::Tensor gathered = home.layout.piece_of(whole, piece);
    const std::int64_t part = gathered.numel() / secondary_->size();
    home.secondary.narrow(0, piece.begin / secondary_->size(), part)
        .copy_(gathered.narrow(0, secondary_->rank() * part, part));
  }
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
      throw Bug(flat.info().name + " is " + to_string(flat.residence()) + " while its values change");
    home.secondary_current = false;
    home.written->record(StreamKind::Compute);
    return;
  }
  if (shard_->size() == 1) return;
  wait(home);
  start_gather(home, home.buffer->tensor());
  if (!sharding_.overlap) wait(home);
}

void ShardedParameters::shutdown() {
  for (Home& home : homes_) {
    home.gathers.clear();  // a handle's end waits for its operation
    if (home.slot != nullptr) slots_->release(std::exchange(home.slot, nullptr));
  }
}

}  // namespace strata::toolbox
