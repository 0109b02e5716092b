// A tile of a product is as large as its sums fit in vector registers. Both matrices are packed: their numbers are
// copied into small buffers, in the order in which tiles read them. MKL does so with fp32; here packing converts 16
// bits to fp32 too. (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.)
#include "widened_product.hpp"

#include <ATen/Parallel.h>
#include <strata/error.hpp>

#include "half_precision.hpp"
#include "number_vectors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

namespace strata {
namespace {

constexpr std::int64_t most_inner = 256, most_rows = 256, most_columns = 1024;  // in fp32 at a time
constexpr int tile_vectors = 3, widest_vector = 16;                             // in a row of a tile; numbers

struct Stored {
  const std::uint16_t* numbers = nullptr;
  std::int64_t row_stride = 0, column_stride = 0;
  const std::uint16_t* at(std::int64_t row, std::int64_t column) const {
    return numbers + row * row_stride + column * column_stride;
  }
};

struct Product {
  Stored left, right;
  void* result = nullptr;
  std::int64_t result_stride = 0;  // of rows
  std::int64_t rows = 0, inner = 0, columns = 0;
  const float* bias = nullptr;  // of all columns; null: none
  bool add = false;
};

struct Part {
  std::int64_t begin = 0, end = 0;
};

struct alignas(64) Scratch {
  std::array<float, most_rows * most_inner> left;
  std::array<float, most_inner * tile_vectors * widest_vector> right;
  std::array<float, most_rows * most_columns> sums;
  std::array<float, most_columns> none;  // zeros
};

// Kept, as new pages would take longer than a small product.
Scratch& scratch_of_this_thread() {
  thread_local const std::unique_ptr<Scratch> scratch(new Scratch());
  return *scratch;
}

// Converts Lanes numbers of each of `inner` lines; where only `width` are there, zeros follow. Strides: from a line to
// the next, and from a number of a line to the next. The numbers `ahead` of these come next, so they are prefetched.
template <class Number, int Lanes>
STRATA_INLINED void pack_lanes(const std::uint16_t* from, std::int64_t line_stride, std::int64_t stride,
                               std::int64_t inner, std::int64_t width, std::int64_t ahead, float* to,
                               std::int64_t to_stride) {
  std::int64_t line = 0;
  if (width < Lanes) {
    for (; line < inner; ++line)
      for (std::int64_t i = 0; i < Lanes; ++i)
        to[line * to_stride + i] =
            i < width ? widened(std::bit_cast<Number>(from[line * line_stride + i * stride])) : 0.0F;
  } else if (stride == 1) {
    for (; line < inner; ++line) {
      const std::uint16_t* const numbers = from + line * line_stride;
      __builtin_prefetch(numbers + ahead);
      store(to + line * to_stride,
            widened_bits<Number, Lanes>(__builtin_convertvector(load<Halves<Lanes>>(numbers), Bits<Lanes>)));
    }
  } else if (line_stride == 1) {
    for (; line + 2 * Lanes <= inner; line += 2 * Lanes) {
      Bits<Lanes> pairs[Lanes];  // of numbers of a line and the next
      for (int i = 0; i < Lanes; ++i) {
        pairs[i] = load<Bits<Lanes>>(from + line + i * stride);
        __builtin_prefetch(from + line + (i + ahead) * stride);
      }
      transpose<Lanes>(pairs);
      constexpr bool is_little = std::endian::native == std::endian::little;
      for (int i = 0; i < Lanes; ++i) {
        const Bits<Lanes> low = pairs[i] & 0xFFFFU, high = pairs[i] >> 16;
        store(to + (line + 2 * i) * to_stride, widened_bits<Number, Lanes>(is_little ? low : high));
        store(to + (line + 2 * i + 1) * to_stride, widened_bits<Number, Lanes>(is_little ? high : low));
      }
    }
  }
  for (; line < inner; ++line)
    for (int i = 0; i < Lanes; ++i)
      to[line * to_stride + i] = widened(std::bit_cast<Number>(from[line * line_stride + i * stride]));
}

// Lines of Width numbers, only `width` of them present. Sums of what the buffer held beyond them are dropped.
template <class Number, int Lanes, int Width>
STRATA_INLINED void pack(const std::uint16_t* from, std::int64_t line_stride, std::int64_t stride, std::int64_t inner,
                         std::int64_t width, float* to) {
  for (int begin = 0; begin < Width && begin < width; begin += Lanes)
    pack_lanes<Number, Lanes>(from + begin * stride, line_stride, stride, inner, width - begin, Width, to + begin,
                              Width);
}

// The operands: both matrices in the form of pack(). The sums begin with `start`.
struct Tile {
  const float* left = nullptr;
  const float* right = nullptr;
  std::int64_t inner = 0;
  const float* start = nullptr;
  std::int64_t start_stride = 0;
  std::int64_t rows = 0, columns = 0;  // that are there
};

// Rows rows and Count vectors of columns.
template <int Count, class Number, int Lanes, int Rows, class Result>
STRATA_INLINED void multiply_whole(const Tile& tile, Result* result, std::int64_t result_stride) {
  using Vector = Floats<Lanes>;
  Vector sums[Rows][Count];
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) sums[row][i] = load<Vector>(tile.start + row * tile.start_stride + i * Lanes);
  const float *left = tile.left, *right = tile.right;
  for (std::int64_t k = 0; k < tile.inner; ++k, left += Rows, right += tile_vectors * Lanes) {
    Vector numbers[Count];
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) numbers[i] = load<Vector>(right + i * Lanes);
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 16
      for (int i = 0; i < Count; ++i) sums[row][i] += left[row] * numbers[i];
  }
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) {
      Result* const to = result + row * result_stride + i * Lanes;
      if constexpr (std::is_same_v<Result, float>)
        store(to, sums[row][i]);
      else
        store(to, rounded<Number, Lanes>(sums[row][i]));
    }
}

// Through a whole tile next to the result.
template <class Number, int Lanes, int Rows, class Result>
STRATA_INLINED void multiply_corner(Tile tile, Result* result, std::int64_t result_stride) {
  constexpr int width = tile_vectors * Lanes;
  const std::int64_t rows = std::min<std::int64_t>(Rows, tile.rows);
  const auto columns = static_cast<std::size_t>(tile.columns);
  alignas(64) float start[Rows * width] = {};
  alignas(64) Result made[Rows * width];
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(start + row * width, tile.start + row * tile.start_stride, columns * sizeof(float));
  tile.start = start;
  tile.start_stride = width;
  multiply_whole<tile_vectors, Number, Lanes, Rows>(tile, made, width);
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(result + row * result_stride, made + row * width, columns * sizeof(Result));
}

template <class Number, int Lanes, int Rows, class Result>
STRATA_INLINED void multiply_tile(const Tile& tile, Result* result, std::int64_t result_stride) {
  if (tile.rows >= Rows && tile.columns == 3 * Lanes)
    multiply_whole<3, Number, Lanes, Rows>(tile, result, result_stride);
  else if (tile.rows >= Rows && tile.columns == 2 * Lanes)
    multiply_whole<2, Number, Lanes, Rows>(tile, result, result_stride);
  else if (tile.rows >= Rows && tile.columns == Lanes)
    multiply_whole<1, Number, Lanes, Rows>(tile, result, result_stride);
  else
    multiply_corner<Number, Lanes, Rows>(tile, result, result_stride);
}

// Result: float, or std::uint16_t for a result of the matrices' dtype.
template <class Number, int Lanes, int Rows, class Result>
STRATA_INLINED void multiply_block(const Product& product, Part rows, Part columns, Scratch& scratch) {
  constexpr int width = tile_vectors * Lanes;
  constexpr bool is_wide = std::is_same_v<Result, float>;
  const std::int64_t row_count = rows.end - rows.begin, column_count = columns.end - columns.begin;
  Result* const result = static_cast<Result*>(product.result) + rows.begin * product.result_stride + columns.begin;
  float* sums = scratch.sums.data();
  std::int64_t sums_stride = most_columns;
  if constexpr (is_wide) {
    sums = result;
    sums_stride = product.result_stride;
  }
  const float* start = product.add               ? sums
                       : product.bias != nullptr ? product.bias + columns.begin
                                                 : scratch.none.data();
  std::int64_t start_stride = product.add ? sums_stride : 0;
  for (std::int64_t k = 0; k == 0 || k < product.inner; k += most_inner) {
    const std::int64_t inner = std::min(most_inner, product.inner - k);
    const bool is_last = k + most_inner >= product.inner;
    for (std::int64_t row = 0; row < row_count; row += Rows)
      pack<Number, std::min(Lanes, Rows), Rows>(
          product.left.at(rows.begin + row, k), product.left.column_stride, product.left.row_stride, inner,
          std::min<std::int64_t>(Rows, row_count - row), scratch.left.data() + row * inner);
    for (std::int64_t column = 0; column < column_count; column += width) {
      const std::int64_t columns_here = std::min<std::int64_t>(width, column_count - column);
      pack<Number, Lanes, width>(product.right.at(k, columns.begin + column), product.right.row_stride,
                                 product.right.column_stride, inner, columns_here, scratch.right.data());
      for (std::int64_t row = 0; is_last && row < row_count; ++row)
        for (std::size_t byte = 0; byte < width * sizeof(Result); byte += 64)
          __builtin_prefetch(reinterpret_cast<const char*>(result + row * product.result_stride + column) + byte, 1);
      for (std::int64_t row = 0; row < row_count; row += Rows) {
        const Tile tile{scratch.left.data() + row * inner,
                        scratch.right.data(),
                        inner,
                        start + row * start_stride + column,
                        start_stride,
                        row_count - row,
                        columns_here};
        if (is_last)
          multiply_tile<Number, Lanes, Rows>(tile, result + row * product.result_stride + column,
                                             product.result_stride);
        else
          multiply_tile<Number, Lanes, Rows>(tile, sums + row * sums_stride + column, sums_stride);
      }
    }
    start = sums;
    start_stride = sums_stride;
  }
}

template <class Number, int Lanes, int Rows, class Result>
STRATA_INLINED void multiply_part(const Product& product, Part rows, Part columns) {
  Scratch& scratch = scratch_of_this_thread();
  for (std::int64_t row = rows.begin; row < rows.end; row += most_rows)
    for (std::int64_t column = columns.begin; column < columns.end; column += most_columns)
      multiply_block<Number, Lanes, Rows, Result>(product, {row, std::min(row + most_rows, rows.end)},
                                                  {column, std::min(column + most_columns, columns.end)}, scratch);
}

using Multiply = void (*)(const Product& product, Part rows, Part columns);

template <class Number, class Result>
void multiply_with_any(const Product& product, Part rows, Part columns) {
  multiply_part<Number, 4, 4, Result>(product, rows, columns);
}

#if defined(__x86_64__)
template <class Number, class Result>
[[gnu::target("avx2,fma")]] void multiply_with_avx2(const Product& product, Part rows, Part columns) {
  multiply_part<Number, 8, 4, Result>(product, rows, columns);
}

template <class Number, class Result>
[[gnu::target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]] void multiply_with_avx512(const Product& product,
                                                                                         Part rows, Part columns) {
  multiply_part<Number, 16, 8, Result>(product, rows, columns);
}
#endif

template <class Number, class Result>
Multiply compiled_for(Vectors code) {
#if defined(__x86_64__)
  if (code == Vectors::Avx512) return multiply_with_avx512<Number, Result>;
  if (code == Vectors::Avx2) return multiply_with_avx2<Number, Result>;
#endif
  return multiply_with_any<Number, Result>;
}

Stored stored(const at::Tensor& matrix) {
  return {static_cast<const std::uint16_t*>(matrix.const_data_ptr()), matrix.stride(0), matrix.stride(1)};
}

// Not a tensor, which a dry run would have to count.
std::vector<float> widened_bias(const at::Tensor& bias) {
  std::vector<float> wide(bias.defined() ? static_cast<std::size_t>(bias.numel()) : 0);
  if (wide.empty()) return wide;
  if (bias.scalar_type() == at::kFloat)
    std::copy_n(bias.const_data_ptr<float>(), wide.size(), wide.begin());
  else if (bias.scalar_type() == at::kHalf)
    widen(bias.const_data_ptr<at::Half>(), wide.data(), bias.numel());
  else
    widen(bias.const_data_ptr<at::BFloat16>(), wide.data(), bias.numel());
  return wide;
}

Vectors find_widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return Vectors::Any;
  const bool has_all = __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                       __builtin_cpu_supports("avx512dq") != 0;
  return has_all ? Vectors::Avx512 : Vectors::Avx2;
#else
  return Vectors::Any;
#endif
}

}  // namespace

Vectors widest_vectors() {
  static const Vectors widest = find_widest_vectors();
  return widest;
}

void widened_product(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                     bool add, Vectors code) {
  if (result.numel() == 0 || (add && left.size(1) == 0)) return;
  if (result.stride(1) != 1 && result.size(1) > 1) {
    const at::Tensor rows = result.contiguous();
    widened_product(rows, left, right, bias, add, code);
    result.copy_(rows);
    return;
  }
  if (result.is_meta()) return;
  const bool rounds = result.scalar_type() != at::kFloat;
  strata_check(!(rounds && add), "a product is added to fp32");
  const std::vector<float> wide_bias = widened_bias(bias);
  const Product product{stored(left),
                        stored(right),
                        result.mutable_data_ptr(),
                        result.stride(0),
                        left.size(0),
                        left.size(1),
                        right.size(1),
                        wide_bias.empty() ? nullptr : wide_bias.data(),
                        add};
  const auto multiply_as = [&]<class Number>(Number) {
    return rounds ? compiled_for<Number, std::uint16_t>(code) : compiled_for<Number, float>(code);
  };
  const Multiply multiply = left.scalar_type() == at::kHalf ? multiply_as(at::Half()) : multiply_as(at::BFloat16());
  const bool by_columns = product.columns >= product.rows;
  const std::int64_t cut = by_columns ? product.columns : product.rows,
                     other = by_columns ? product.rows : product.columns;
  constexpr std::int64_t unit = 48, worth_a_thread = std::int64_t{1} << 21;  // lines; multiplications
  const std::int64_t units_worth_a_thread =
      worth_a_thread / std::max<std::int64_t>(unit * other * product.inner, 1) + 1;
  at::parallel_for(0, (cut + unit - 1) / unit, units_worth_a_thread, [&](std::int64_t begin, std::int64_t end) {
    const Part part{begin * unit, std::min(end * unit, cut)};
    by_columns ? multiply(product, {0, product.rows}, part) : multiply(product, part, {0, product.columns});
  });
}

}  // namespace strata
