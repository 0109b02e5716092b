#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <strata/error.hpp>
#include <strata/toolbox/compressed_sums.hpp>
#include <strata/toolbox/tensor_bytes.hpp>

#include <algorithm>
#include <cstring>
#include <span>

namespace strata::toolbox {

void CompressedSums::attach(PartitionContext& context, Group& shard, Group* replicate,
                            const std::vector<ShardLayout>& layouts, const GradientCompression& compression) {
  shard_ = &shard;
  replicate_ = replicate;
  slots_ = &context.slots();
  compression_ = compression;
  const BlockFormat sums{8, compression.format.block};
  layout_ = format("{} of {}", compression.format.block, shard.size());
  homes_.resize(context.flat_parameters().size());
  for (const FlatParameter* flat : context.flat_parameters()) {
    const FlatParameterInfo& info = flat->info();
    if (!info.trainable) continue;
    Home& home = homes_[static_cast<std::size_t>(info.id)];
    for (const ShardLayout::Piece& piece : layouts[static_cast<std::size_t>(info.id)].pieces()) {
      home.pieces.push_back({{info, WireMessages::ranges_of(piece, shard.size()), compression.format},
                             {},
                             piece.in_parts ? -1 : piece.owner});
      if (replicate == nullptr) continue;
      const std::int64_t begin = piece.begin + (piece.in_parts ? shard.rank() * piece.part : 0);
      const std::int64_t share = (piece.part + replicate->size() - 1) / replicate->size();
      WireMessages::Ranges ranges;
      for (int replica = 0; replica < replicate->size(); ++replica)
        ranges.emplace_back(begin + std::min(piece.part, replica * share),
                            begin + std::min(piece.part, (replica + 1) * share));
      home.shares.push_back({{info, ranges, compression.format}, {}, -1});
      home.sums.push_back({{info, ranges, sums}, {}, -1});
    }
    if (compression.error_feedback) keep_errors(context, info, home);
  }
}

void CompressedSums::keep_errors(PartitionContext& context, const FlatParameterInfo& flat, Home& home) {
  std::vector<Messages*> all;
  if (shard_->size() > 1)
    for (Messages& messages : home.pieces) all.push_back(&messages);
  for (Messages& messages : home.shares) all.push_back(&messages);
  std::int64_t bytes = 0;
  for (const Messages* messages : all) bytes += messages->of.error_bytes();
  layout_ += ", " + flat.name;
  if (bytes == 0) return;
  home.errors = context.store().allocate(Category::Gradient, Tier::Device, flat.name + ", errors of its messages",
                                         bytes, at::kByte);
  std::int64_t begin = 0;
  for (Messages* messages : all) {
    const std::int64_t size = messages->of.error_bytes();
    messages->errors = home.errors.narrow(0, begin, size);
    begin += size;
    layout_ += format(" {}", size);
  }
}

void CompressedSums::update_begins(const FlatParameter& flat) {
  Home& home = homes_[static_cast<std::size_t>(flat.info().id)];
  if (home.errors.defined() && home.updates++ % compression_.error_reset == 0) home.errors.zero_();
}

Slot* CompressedSums::messages(std::int64_t count, const WireMessages& of) {
  Slot* const slot = slots_->acquire(Category::Bucket, count * of.bytes());
  slot->last_use().block(StreamKind::Compute);
  return slot;
}

void CompressedSums::encode(const Messages& messages, const at::Tensor& values, const at::Tensor& into) const {
  for (int range = 0; range < messages.of.ranges(); ++range)
    messages.of.code(range).encode(messages.of.values(values, range), messages.of.message(into, range),
                                   messages.of.errors(messages.errors, range), compression_.error_beta);
}

// Where a piece has one owner, the others send it theirs.
CompressedExchange CompressedSums::sum(const FlatParameter& flat, std::size_t piece, const at::Tensor& values,
                                       const at::Tensor& destination, bool add) {
  const Messages& own = home_of(flat).pieces[piece];
  const WireMessages& of = own.of;
  const int ranks = shard_->size(), rank = shard_->rank();
  if (own.owner < 0) return exchange(*shard_, own, values, destination, add);
  CompressedExchange exchange;
  const int count = own.owner == rank ? ranks : 1;
  exchange.messages = messages(count, of);
  const at::Tensor all = exchange.messages->as(at::kByte, count * of.bytes());
  const at::Tensor mine = of.message(all, own.owner == rank ? rank : 0);
  encode(own, values, mine);
  if (own.owner != rank) {
    exchange.pending.push_back(shard_->send(mine, own.owner));
    exchange.arrived = [] {};
    return exchange;
  }
  for (int other = 0; other < ranks; ++other)
    if (other != rank) exchange.pending.push_back(shard_->receive(of.message(all, other), other));
  exchange.arrived = [&of, all, destination, add, ranks] {
    of.code(0).decode_sum(all, ranks, of.bytes(), destination, add);
  };
  return exchange;
}

// Message r goes to rank r; what comes is summed.
CompressedExchange CompressedSums::exchange(Group& group, const Messages& own, const at::Tensor& values,
                                            const at::Tensor& destination, bool add) {
  const WireMessages& of = own.of;
  const int ranks = group.size(), rank = group.rank();
  const std::int64_t bytes = ranks * of.bytes();
  CompressedExchange exchange;
  exchange.messages = messages(2 * ranks, of);
  const at::Tensor both = exchange.messages->as(at::kByte, 2 * bytes);
  const at::Tensor sent = both.narrow(0, 0, bytes), received = both.narrow(0, bytes, bytes);
  encode(own, values, sent);
  exchange.pending.push_back(group.all_to_all(received, sent));
  exchange.arrived = [&of, received, destination, add, ranks, rank] {
    of.code(rank).decode_sum(received, ranks, of.bytes(), destination, add);
  };
  return exchange;
}

CompressedExchange CompressedSums::sum_over_replicas(const FlatParameter& flat, std::size_t piece,
                                                     const at::Tensor& values) {
  const Messages& own = home_of(flat).shares[piece];
  return exchange(*replicate_, own, values, own.of.values(values, replicate_->rank()), false);
}

// This rank's own share is decoded as the others decode it.
CompressedExchange CompressedSums::gather_over_replicas(const FlatParameter& flat, std::size_t piece,
                                                        const at::Tensor& values) {
  const WireMessages& of = home_of(flat).sums[piece].of;
  const int ranks = replicate_->size(), rank = replicate_->rank();
  CompressedExchange exchange;
  exchange.messages = messages(ranks, of);
  const at::Tensor all = exchange.messages->as(at::kByte, ranks * of.bytes());
  const at::Tensor mine = of.message(all, rank);
  of.code(rank).encode(of.values(values, rank), mine);
  exchange.pending.push_back(replicate_->all_gather(all, mine));
  exchange.arrived = [&of, all, values, ranks] {
    for (int share = 0; share < ranks; ++share)
      of.code(share).decode_sum(of.message(all, share), 1, 0, of.values(values, share));
  };
  return exchange;
}

void CompressedSums::save(StateWriter& writer) const {
  if (!compression_.error_feedback) return;
  std::vector<std::int64_t> updates;
  std::vector<at::Tensor> errors;
  for (const Home& home : homes_) {
    if (!home.errors.defined()) continue;
    updates.push_back(home.updates);
    errors.push_back(home.errors);
  }
  writer.rank_bytes("errors_layout", std::as_bytes(std::span(layout_)));
  writer.rank_bytes("errors_updates", std::as_bytes(std::span(updates)));
  save_tensors(writer, "errors", errors);
}

std::string CompressedSums::load(const StateReader& reader) {
  if (!compression_.error_feedback) return "";
  if (!reader.contains("errors_layout"))
    return "error feedback of compressed gradients starts from zero: the checkpoint has none for this rank and number "
           "of ranks";
  const std::vector<std::byte> layout = reader.bytes("errors_layout");
  if (!std::ranges::equal(layout, std::as_bytes(std::span(layout_))))
    return "error feedback of compressed gradients starts from zero: the checkpoint was saved with other blocks or "
           "buckets";
  // Of former versions: each one's updates before its errors.
  const bool together = reader.contains("errors");
  std::vector<at::Tensor> updates, errors, all;
  for (Home& home : homes_) {
    if (!home.errors.defined()) continue;
    updates.push_back(at::from_blob(&home.updates, {1}, at::TensorOptions().dtype(at::kLong)));
    errors.push_back(home.errors);
    all.insert(all.end(), {updates.back(), errors.back()});
  }
  if (together) {
    load_tensors(reader, "errors", all);
    return "";
  }
  const std::vector<std::byte> numbers = reader.bytes("errors_updates");
  if (numbers.size() != updates.size() * sizeof(std::int64_t))
    throw UserError("errors of compressed gradients: the checkpoint has another number of them");
  for (std::size_t i = 0; i < updates.size(); ++i)
    std::memcpy(updates[i].mutable_data_ptr(), numbers.data() + i * sizeof(std::int64_t), sizeof(std::int64_t));
  load_tensors(reader, "errors", errors);
  return "";
}

}  // namespace strata::toolbox
