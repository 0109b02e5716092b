#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <strata/toolbox/block_code.hpp>

#include <algorithm>
#include <limits>

namespace strata::toolbox {
namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 22;  // at a time: what is computed between takes memory

// Computed values of equal blocks, one per row.
struct Rows {
  std::int64_t begin = 0;  // elements
  std::int64_t rows = 0;
  std::int64_t length = 0;  // of a row
  std::int64_t block = 0;   // the first
  std::int64_t byte = 0;    // of the first's numbers, in a message

  at::Tensor of(const at::Tensor& values) const { return values.narrow(0, begin, rows * length).view({rows, length}); }
  at::Tensor scales(const at::Tensor& message) const {
    return message.narrow(0, 4 * block, 4 * rows).view(at::kFloat).view({rows, 1});
  }
  at::Tensor numbers(const at::Tensor& message, std::int64_t bytes) const {
    return message.narrow(0, byte, rows * bytes).view({rows, bytes});
  }
};

struct Coded {
  at::Tensor scale;
  at::Tensor numbers;  // int8
};

Coded code(const at::Tensor& values, int bits) {
  const at::Tensor exact = values.abs().amax(1, true).div(bits == 8 ? 127.0 : 7.0);
  const at::Tensor small = exact < std::numeric_limits<float>::min();
  const at::Tensor scale = at::where(small, at::zeros_like(exact), exact);
  const at::Tensor inverse = at::where(small, at::zeros_like(exact), exact.reciprocal());
  const at::Tensor numbers = values.mul(inverse).round();
  return {scale, at::where(scale.isfinite(), numbers, at::ones_like(numbers)).to(at::kChar)};
}

at::Tensor packed(const at::Tensor& numbers, int bits) {
  if (bits == 8) return numbers.view(at::kByte);
  at::Tensor even = numbers;
  if (numbers.size(1) % 2 != 0) {
    even = at::zeros({numbers.size(0), numbers.size(1) + 1}, numbers.options());
    even.narrow(1, 0, numbers.size(1)).copy_(numbers);
  }
  const at::Tensor pairs = even.view({even.size(0), even.size(1) / 2, 2}).view(at::kByte);
  return pairs.select(2, 0).bitwise_and(15).bitwise_or(pairs.select(2, 1).bitwise_left_shift(4));
}

at::Tensor unpacked(const at::Tensor& bytes, int bits, std::int64_t length) {
  if (bits == 8) return bytes.view(at::kChar).to(at::kFloat);
  const at::Tensor lower = bytes.bitwise_left_shift(4).view(at::kChar).bitwise_right_shift(4);
  const at::Tensor upper = bytes.contiguous().view(at::kChar).bitwise_right_shift(4);
  return at::stack({lower, upper}, 2).view({bytes.size(0), -1}).narrow(1, 0, length).to(at::kFloat);
}

}  // namespace

template <class Work>
void BlockCode::each_rows(const Work& work) const {
  const std::int64_t most_rows = std::max<std::int64_t>(1, most_elements / format_.block);
  for (const Segment& segment : segments_) {
    const std::int64_t full = segment.elements / format_.block, rest = segment.elements % format_.block;
    const auto rows_from = [&](std::int64_t number, std::int64_t rows, std::int64_t length) {
      work(Rows{segment.begin + number * format_.block, rows, length, segment.first_block + number,
                segment.byte + number * number_bytes(format_.block)});
    };
    for (std::int64_t number = 0; number < full; number += most_rows)
      rows_from(number, std::min(most_rows, full - number), format_.block);
    if (rest > 0) rows_from(full, 1, rest);
  }
}

void BlockCode::encode_by_operators(const at::Tensor& values, const at::Tensor& message, const at::Tensor& errors,
                                    double beta) const {
  check(values, message, bytes_);
  each_rows([&](const Rows& rows) {
    at::Tensor value = rows.of(values).to(at::kFloat), error, lost;
    if (errors.defined()) {
      lost = errors.narrow(0, 4 * blocks_ + rows.begin, rows.rows * rows.length).view({rows.rows, rows.length});
      error = unpacked(lost, 8, rows.length).mul(rows.scales(errors));
      value = value.add(error);
    }
    const auto [scale, numbers] = code(value, format_.bits);
    rows.scales(message).copy_(scale);
    rows.numbers(message, number_bytes(rows.length)).copy_(packed(numbers, format_.bits));
    if (!errors.defined()) return;
    const at::Tensor loss =
        value.sub(numbers.to(at::kFloat).mul(scale)).mul(static_cast<float>(1.0F - static_cast<float>(beta)));
    error = error.mul(static_cast<float>(beta)).add(loss);
    const Coded kept = code(at::where(scale.isfinite(), error, at::zeros_like(error)), 8);
    rows.scales(errors).copy_(kept.scale);
    lost.copy_(kept.numbers.view(at::kByte));
  });
}

void BlockCode::decode_sum_by_operators(const at::Tensor& messages, int count, std::int64_t stride,
                                        const at::Tensor& into, bool add) const {
  check(into, messages, (count - 1) * stride + bytes_);
  each_rows([&](const Rows& rows) {
    at::Tensor sum = at::zeros({rows.rows, rows.length}, into.options().dtype(at::kFloat));
    for (int i = 0; i < count; ++i) {
      const at::Tensor message = messages.narrow(0, i * stride, bytes_);
      const at::Tensor bytes = rows.numbers(message, number_bytes(rows.length));
      sum.add_(unpacked(bytes, format_.bits, rows.length).mul(rows.scales(message)));
    }
    const at::Tensor target = rows.of(into);
    target.copy_(add ? sum.add(target.to(at::kFloat)) : sum);
  });
}

}  // namespace strata::toolbox
