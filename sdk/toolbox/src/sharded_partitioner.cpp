#include <strata/error.hpp>
#include <strata/toolbox/encoded_messages.hpp>
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
  Group* const summed_over = context.sums_replicas() ? replicate_ : nullptr;
  const std::string said = gradients_.attach(context, *shard_, summed_over, std::move(layouts), settings_.gradients);
  if (!said.empty() && settings_.log) settings_.log(LogLevel::Info, said);
  const ParameterSharding& parameters = settings_.parameters;
  const bool compresses = parameters.compression || parameters.code != nullptr || settings_.gradients.compression;
  if (compresses && settings_.log) say_what_is_compressed(summed_over);
}

void ShardedPartitioner::say_what_is_compressed(const Group* summed_over) const {
  const WeightCode* const code = settings_.parameters.code;
  const bool alone = shard_->size() == 1, replicas = summed_over != nullptr && summed_over->size() > 1;
  const bool weights = settings_.parameters.compression || code != nullptr;
  const auto say = [&](const std::string& text) { settings_.log(LogLevel::Info, text); };
  if (alone && !replicas) return say("ranks exchange no weights and no gradients, so nothing is compressed");
  if (alone && weights) return say("each rank keeps all weights and sends none, so no weights are compressed");
  if (settings_.secondary && weights)
    say("weights are compressed in the first gather after an update, but not in later ones, which read the second copy "
        "inside a group");
  if (code == nullptr) return;
  std::int64_t encoded = 0, all = 0;
  for (const FlatParameter* const flat : flat_parameters_) {
    all += flat->elements();
    for (const ParameterSpan* const weight : encoded_weights(flat->info(), *code)) encoded += weight->elements();
  }
  say(std::to_string(encoded) + " of " + std::to_string(all) +
      " elements of this stage's parameters are sent in the 8-bit format of the matmuls, one byte each");
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
