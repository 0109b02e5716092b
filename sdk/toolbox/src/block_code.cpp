#include <ATen/Parallel.h>
#include <strata/error.hpp>
#include <strata/toolbox/block_code.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "half_precision.hpp"
#include "wide_rows.hpp"

namespace strata::toolbox {
namespace {

using Values = std::array<float, BlockCode::largest_block>;

// Added to a number below 2^22, it leaves the nearest whole number, ties to even, in the last bits.
constexpr float to_nearest = 12582912.0F;  // 1.5 x 2^23
constexpr std::uint32_t infinity = 0x7F800000U;

std::int32_t whole(float x) {
  return std::bit_cast<std::int32_t>(x + to_nearest) - std::bit_cast<std::int32_t>(to_nearest);
}

// As whole numbers the bits of |x| are in the order of the numbers, with NaN above infinity.
STRATA_VECTOR_CLONES std::uint32_t largest_bits(const float* values, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7FFFFFFF);
  return static_cast<std::uint32_t>(largest);
}

STRATA_VECTOR_CLONES void write_bytes(const float* values, float inverse, std::uint8_t* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) numbers[i] = static_cast<std::uint8_t>(whole(values[i] * inverse));
}

STRATA_VECTOR_CLONES void write_halves(const float* values, float inverse, std::uint8_t* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count / 2; ++i)
    numbers[i] =
        static_cast<std::uint8_t>((whole(values[2 * i] * inverse) & 15) | (whole(values[2 * i + 1] * inverse) << 4));
  if (count % 2 != 0) numbers[count / 2] = static_cast<std::uint8_t>(whole(values[count - 1] * inverse) & 15);
}

STRATA_VECTOR_CLONES void add_bytes(const std::uint8_t* numbers, float scale, float* sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += static_cast<float>(static_cast<std::int8_t>(numbers[i])) * scale;
}

float lower_half(std::uint8_t byte) {
  return static_cast<float>(static_cast<std::int8_t>(byte << 4) >> 4);
}

STRATA_VECTOR_CLONES void add_halves(const std::uint8_t* numbers, float scale, float* sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count / 2; ++i) {
    sum[2 * i] += lower_half(numbers[i]) * scale;
    sum[2 * i + 1] += static_cast<float>(static_cast<std::int8_t>(numbers[i]) >> 4) * scale;
  }
  if (count % 2 != 0) sum[count - 1] += lower_half(numbers[count / 2]) * scale;
}

STRATA_VECTOR_CLONES void add_to(float* sum, const float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

// error = beta x error + (1 - beta) x (value - decoded)
STRATA_VECTOR_CLONES void average_errors(float* error, const float* values, const float* decoded, float beta,
                                         std::int64_t count) {
  const float rest = 1.0F - beta;
  for (std::int64_t i = 0; i < count; ++i) error[i] = beta * error[i] + rest * (values[i] - decoded[i]);
}

void add_numbers(int bits, const std::uint8_t* numbers, float scale, float* sum, std::int64_t count) {
  bits == 8 ? add_bytes(numbers, scale, sum, count) : add_halves(numbers, scale, sum, count);
}

// Writes a block's numbers and gives its scale.
float write_numbers(int bits, const float* values, std::uint8_t* numbers, std::int64_t count) {
  const std::uint32_t largest = largest_bits(values, count);
  const float scale = std::bit_cast<float>(largest) / (bits == 8 ? 127.0F : 7.0F);
  if (largest >= infinity) {
    std::memset(numbers, bits == 8 ? 0x01 : 0x11, static_cast<std::size_t>(count * bits / 8));
    if (bits == 4 && count % 2 != 0) numbers[count / 2] = 0x01;
    return scale;
  }
  const bool small = scale < std::numeric_limits<float>::min();  // its inverse may be infinite
  const float inverse = small ? 0.0F : 1.0F / scale;
  bits == 8 ? write_bytes(values, inverse, numbers, count) : write_halves(values, inverse, numbers, count);
  return small ? 0.0F : scale;
}

float load_scale(const std::uint8_t* message, std::int64_t block) {
  float scale = 0.0F;
  std::memcpy(&scale, message + 4 * block, sizeof scale);
  return scale;
}
void store_scale(std::uint8_t* message, std::int64_t block, float scale) {
  std::memcpy(message + 4 * block, &scale, sizeof scale);
}

void load(const float* from, float* to, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
void load(const at::BFloat16* from, float* to, std::int64_t count) {
  widen(from, to, count);
}
void load(const at::Half* from, float* to, std::int64_t count) {
  widen(from, to, count);
}
void save(const float* from, float* to, std::int64_t count) {
  load(from, to, count);
}
void save(const float* from, at::BFloat16* to, std::int64_t count) {
  narrow(from, to, count);
}
void save(const float* from, at::Half* to, std::int64_t count) {
  narrow(from, to, count);
}

}  // namespace

BlockCode::BlockCode(std::int64_t elements, const std::vector<std::int64_t>& borders, const BlockFormat& format)
    : format_(format), elements_(elements) {
  strata_check(format.bits == 8 || format.bits == 4, "numbers are compressed to 8 or 4 bits");
  strata_check(format.block >= 1 && format.block <= largest_block, "a block that is compressed has 1 to 8000 elements");
  std::int64_t byte = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    segments_.push_back({begin, end - begin, blocks_, byte});
    const std::int64_t full = (end - begin) / format.block, rest = (end - begin) % format.block;
    blocks_ += full + (rest > 0 ? 1 : 0);
    byte += full * number_bytes(format.block) + number_bytes(rest);
  };
  std::int64_t begin = 0;
  for (const std::int64_t border : borders) {
    if (border <= begin || border >= elements) continue;
    add(begin, border);
    begin = border;
  }
  add(begin, elements);
  for (Segment& segment : segments_) segment.byte += 4 * blocks_;
  bytes_ = rounded(4 * blocks_ + byte);
}

BlockCode::Block BlockCode::block(std::int64_t index) const {
  const auto after = std::ranges::upper_bound(segments_, index, {}, &Segment::first_block);
  const Segment& segment = *std::prev(after);
  const std::int64_t number = index - segment.first_block, offset = number * format_.block;
  return {segment.begin + offset, std::min(format_.block, segment.elements - offset),
          segment.byte + number * number_bytes(format_.block)};
}

template <class Work>
void BlockCode::each_block(const Work& work) const {
  constexpr std::int64_t smallest_part = std::int64_t{1} << 15;  // elements for which a thread is worth its while
  at::parallel_for(0, blocks_, std::max<std::int64_t>(1, smallest_part / format_.block),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t index = begin; index < end; ++index) work(index, block(index));
                   });
}

template <class Element>
void BlockCode::encode_elements(const Element* values, std::uint8_t* message, std::uint8_t* errors, float beta) const {
  each_block([&](std::int64_t index, const Block& block) {
    const std::int64_t count = block.elements;
    Values value;
    load(values + block.begin, value.data(), count);
    if (errors == nullptr) {
      store_scale(message, index, write_numbers(format_.bits, value.data(), message + block.byte, count));
      return;
    }
    Values error, decoded;
    std::fill_n(error.data(), count, 0.0F);
    std::fill_n(decoded.data(), count, 0.0F);
    std::uint8_t* const lost = errors + 4 * blocks_ + block.begin;
    add_bytes(lost, load_scale(errors, index), error.data(), count);
    add_to(value.data(), error.data(), count);
    const float scale = write_numbers(format_.bits, value.data(), message + block.byte, count);
    store_scale(message, index, scale);
    if (std::bit_cast<std::uint32_t>(scale) >= infinity) {  // its sign bit is clear
      std::fill_n(error.data(), count, 0.0F);
    } else {
      add_numbers(format_.bits, message + block.byte, scale, decoded.data(), count);
      average_errors(error.data(), value.data(), decoded.data(), beta, count);
    }
    store_scale(errors, index, write_numbers(8, error.data(), lost, count));
  });
}

template <class Element>
void BlockCode::decode_elements(const std::uint8_t* messages, int count, std::int64_t stride, Element* into,
                                bool add) const {
  each_block([&](std::int64_t index, const Block& block) {
    Values sum;
    std::fill_n(sum.data(), block.elements, 0.0F);
    for (int i = 0; i < count; ++i) {
      const std::uint8_t* const message = messages + i * stride;
      add_numbers(format_.bits, message + block.byte, load_scale(message, index), sum.data(), block.elements);
    }
    if (add) {
      Values before;
      load(into + block.begin, before.data(), block.elements);
      add_to(sum.data(), before.data(), block.elements);
    }
    save(sum.data(), into + block.begin, block.elements);
  });
}

void BlockCode::check(const at::Tensor& values, const at::Tensor& message, std::int64_t bytes) const {
  strata_check(values.is_contiguous() && values.numel() == elements_, "values of another range than the code's");
  strata_check(message.scalar_type() == at::kByte && message.is_contiguous() && message.numel() >= bytes,
               "a message has too few bytes");
}

void BlockCode::encode(const at::Tensor& values, const at::Tensor& message, const at::Tensor& errors,
                       double beta) const {
  check(values, message, bytes_);
  if (values.is_meta() || elements_ == 0) return;
  if (!values.is_cpu()) return encode_by_operators(values, message, errors, beta);
  auto* const lost = errors.defined() ? errors.mutable_data_ptr<std::uint8_t>() : nullptr;
  with_type_of(values, [&]<class Element>(Element) {
    encode_elements(values.const_data_ptr<Element>(), message.mutable_data_ptr<std::uint8_t>(), lost,
                    static_cast<float>(beta));
  });
}

void BlockCode::decode_sum(const at::Tensor& messages, int count, std::int64_t stride, const at::Tensor& into,
                           bool add) const {
  check(into, messages, (count - 1) * stride + bytes_);
  if (into.is_meta() || elements_ == 0) return;
  if (!into.is_cpu()) return decode_sum_by_operators(messages, count, stride, into, add);
  with_type_of(into, [&]<class Element>(Element) {
    decode_elements(messages.const_data_ptr<std::uint8_t>(), count, stride, into.mutable_data_ptr<Element>(), add);
  });
}

}  // namespace strata::toolbox
