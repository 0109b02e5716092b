#include <strata/error.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/state_version.hpp>

#include <limits>

namespace strata::toolbox {

void ShardedPartitioner::attach(PartitionContext& context) {
  if (!settings_.parameters.released && context.moves(Category::Parameter))
    throw UserError(
        "offload.parameters: this partitioner keeps parameters whole on the device; leave it out, or shard parameters "
        "(ZeRO stage 3)");
  shard_ = &context.group("shard");
  replicate_ = settings_.replicas ? &context.group("replicate") : nullptr;
  flat_parameters_ = context.flat_parameters();
  parameters_.attach(context, *shard_, settings_.secondary ? &context.group("secondary") : nullptr,
                     settings_.parameters);
  std::vector<ShardLayout> layouts(flat_parameters_.size());
  for (const FlatParameter* flat : flat_parameters_)
    layouts[static_cast<std::size_t>(flat->info().id)] = parameters_.layout(*flat);
  const std::string said = gradients_.attach(context, *shard_, context.sums_replicas() ? replicate_ : nullptr,
                                             std::move(layouts), settings_.gradients);
  if (!said.empty() && settings_.log) settings_.log(LogLevel::Info, said);
  if (settings_.parameters.compression || settings_.gradients.compression) say_what_is_not_compressed();
}

void ShardedPartitioner::say_what_is_not_compressed() const {
  if (!settings_.log) return;
  const bool alone = shard_->size() == 1, replicas = replicate_ != nullptr && replicate_->size() > 1;
  if (alone && !replicas)
    settings_.log(LogLevel::Info, "one rank sends neither weights nor gradients: nothing is compressed");
  else if (alone && settings_.parameters.compression)
    settings_.log(LogLevel::Info, "each rank keeps all weights and sends none: weights_on_wire changes nothing");
  else if (settings_.secondary && settings_.parameters.compression)
    settings_.log(LogLevel::Info,
                  "weights are compressed in the first gather after an update; the later ones of the step, from the "
                  "second copy inside a group, are not");
}

void ShardedPartitioner::load(StateReader& reader, int version) {
  refuse_newer_state(*this, version);
  const std::string said = gradients_.load(reader);
  if (!said.empty() && settings_.log) settings_.log(LogLevel::Warning, said);
}

// Parameters that stay are "gathered" by waiting for their new values before their first use in a step.
Lookahead ShardedPartitioner::lookahead() const {
  if (settings_.parameters.released) return settings_.lookahead;
  Lookahead lookahead;
  lookahead.reuse_distance = std::numeric_limits<std::int64_t>::max();
  lookahead.live_parameters = std::numeric_limits<std::int64_t>::max();
  return lookahead;
}

std::vector<Slice> ShardedPartitioner::owned() {
  const std::int64_t replicas = replicate_ != nullptr ? replicate_->size() : 1;
  const std::int64_t replica = replicate_ != nullptr ? replicate_->rank() : 0;
  std::vector<Slice> slices;
  for (FlatParameter* flat : flat_parameters_) {
    const ShardLayout& layout = parameters_.layout(*flat);
    for (const ShardLayout::Piece& piece : layout.pieces()) {
      const auto [begin, end] = layout.owned(piece);
      const std::int64_t elements = end - begin;
      if (elements == 0) continue;  // padding only
      Slice& slice = slices.emplace_back(Slice{.flat = flat, .begin = begin, .end = end});
      slice.parameter = parameters_.part(*flat, piece);
      if (flat->info().trainable) slice.gradient = gradients_.part(*flat, piece);
      slice.parameter.elements = slice.gradient.elements = elements;  // without padding
      slice.counted_begin = begin + elements * replica / replicas;
      slice.counted_end = begin + elements * (replica + 1) / replicas;
    }
  }
  return slices;
}

void ShardedPartitioner::shutdown() {
  parameters_.shutdown();
  gradients_.shutdown();
}

}  // namespace strata::toolbox
