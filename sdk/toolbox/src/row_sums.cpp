#include <ATen/ops/aminmax.h>
#include <ATen/ops/index_select.h>

#include <strata/error.hpp>
#include <strata/toolbox/row_sums.hpp>
#include <strata/toolbox/sign_code.hpp>

#include <algorithm>
#include <utility>

namespace strata::toolbox {

namespace {
// Elements of a row of this rank's part of an embedding; 0 for any other parameter.
std::int64_t embedding_width(const ParameterSpan& span) {
  const ParameterInfo& info = span.info;
  if (info.shape.size() != 2 || info.linear_only) return 0;
  return info.split.dimension == 1 ? info.shape[1] / span.tensor_ranks : info.shape[1];
}

// As integers, in which a number that is not +0 is not 0.
at::Tensor as_integers(const at::Tensor& values) {
  switch (values.element_size()) {
    case 2:
      return values.view(at::kShort);
    case 4:
      return values.view(at::kInt);
    default:
      return values.view(at::kLong);
  }
}
}  // namespace

std::string RowSums::attach(PartitionContext& context, Group& group) {
  group_ = &group;
  slots_ = &context.slots();
  widths_.assign(context.flat_parameters().size(), 0);
  bool has_first_layer = false, found = false;
  for (const FlatParameter* flat : context.flat_parameters()) {
    const FlatParameterInfo& info = flat->info();
    if (std::ranges::find(info.layers, 0) == info.layers.end()) continue;
    has_first_layer = true;
    const auto embedding =
        std::ranges::find_if(info.parameters, [](const ParameterSpan& span) { return embedding_width(span) > 0; });
    if (embedding == info.parameters.end()) continue;
    found = true;
    if (!embedding->info.tie.empty())
      throw UserError(
          "sparse_gradients is true and {} is tied: the head's gradient touches every row, so nothing would be saved; "
          "leave sparse_gradients out, or untie embedding and head",
          embedding->info.name);
    if (info.trainable) widths_[static_cast<std::size_t>(info.id)] = embedding_width(*embedding);
  }
  return has_first_layer && !found ? "sparse_gradients has no effect: the model's first layer has no embedding matrix"
                                   : "";
}

// The bits of all ranks are exchanged in `bits`, uint8 [ranks x bit_bytes(rows)].
at::Tensor RowSums::touched_rows(const at::Tensor& values, const at::Tensor& bits) const {
  const std::int64_t rows = values.size(0), bytes = bit_bytes(rows);
  const at::Tensor own = bits.narrow(0, group_->rank() * bytes, bytes);
  if (!values.is_meta()) {
    const auto [least, largest] = at::aminmax(as_integers(values), 1);
    write_bits(least.ne(0).logical_or(largest.ne(0)), own);
  }
  group_->all_gather(bits, own).wait();
  if (values.is_meta()) return {};
  return read_bits(bits, 8 * bits.numel()).view({group_->size(), -1}).any(0).narrow(0, 0, rows).nonzero().view({-1});
}

std::optional<RowExchange> RowSums::start(const FlatParameter& flat, const at::Tensor& values, bool scatters) {
  const std::int64_t width = width_of(flat);
  const std::int64_t rows = values.numel() / width, rest = values.numel() - rows * width;
  if (rows == 0) return std::nullopt;
  const std::int64_t bits = group_->size() * bit_bytes(rows);
  const std::int64_t most = scatters ? values.numel() / 2 : values.numel();  // elements that may travel, less one
  // Always as large as what may travel, and held until the sum ends, so that a plan counts it. The bits are read when
  // the rows are written.
  RowExchange exchange;
  exchange.slot = slots_->acquire(Category::Bucket, std::max(bits, most * values.element_size()));
  exchange.slot->last_use().block(StreamKind::Compute);
  exchange.values = values.narrow(0, 0, rows * width).view({rows, width});
  const at::Tensor touched = touched_rows(exchange.values, exchange.slot->as(at::kByte, bits));
  const std::int64_t elements = values.is_meta() ? most : touched.numel() * width + rest;
  if (elements >= most) return exchange;
  exchange.rows = touched;
  exchange.rest = values.narrow(0, rows * width, rest);
  exchange.sent = exchange.slot->as(values.scalar_type(), elements);
  at::Tensor sent_rows = exchange.sent.narrow(0, 0, elements - rest).view({-1, width});
  at::index_select_out(sent_rows, exchange.values, 0, exchange.rows);
  exchange.sent.narrow(0, elements - rest, rest).copy_(exchange.rest);
  if (elements > 0) exchange.pending = group_->all_reduce(exchange.sent, ReduceOperation::Sum);
  return exchange;
}

void RowSums::finish(RowExchange& exchange) {
  if (!exchange.travels()) return drop(exchange);
  exchange.pending.wait();
  const std::int64_t rest = exchange.rest.numel(), elements = exchange.sent.numel();
  const at::Tensor sums = exchange.sent.narrow(0, 0, elements - rest).view({-1, exchange.values.size(1)});
  exchange.values.index_copy_(0, exchange.rows, sums);
  exchange.rest.copy_(exchange.sent.narrow(0, elements - rest, rest));
  drop(exchange);
}

void RowSums::drop(RowExchange& exchange) {
  const Pending ended = std::move(exchange.pending);  // a handle's end waits for its operation
  if (exchange.slot == nullptr) return;
  exchange.slot->last_use().record(StreamKind::Compute);
  slots_->release(std::exchange(exchange.slot, nullptr));
}

}  // namespace strata::toolbox
