#include <ATen/Parallel.h>
#include <strata/error.hpp>
#include <strata/toolbox/element_pass.hpp>
#include <strata/toolbox/random_rounding.hpp>
#include <strata/vector_clones.hpp>

#include "half_precision.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace strata {
namespace {

// Elements of a tile. Seven fp32 streams of the larger fit the first-level caches of today's CPUs. Where tensors are
// converted, each conversion is a loop of its own, in which nothing comes from memory: with the smaller a processor has
// begun with the next tile's loads before it is through with this one's conversions.
constexpr std::int64_t largest_tile = 2048, converted_tile = 2 * element_tile_unit;
constexpr std::int64_t smallest_part = 8 * largest_tile;  // elements for which a thread is worth its while
// Elements, as measured on AMD's and on Intel's processors. With `far_ahead` a tile's 16-bit numbers are asked for too,
// with the tile before.
constexpr std::int64_t near_ahead = 96, far_ahead = 256;

bool is_known(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.is_cpu() && tensor.is_contiguous() &&
         (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
}

// One tensor of a piece, its tiles seen as fp32.
class Stream {
 public:
  explicit Stream(const at::Tensor& tensor)
      : dtype_(tensor.scalar_type()),
        // The pointer that may be written is asked for where it is written only: the gradient may be shared.
        memory_(const_cast<char*>(static_cast<const char*>(tensor.const_data_ptr()))) {}

  bool is_converted() const { return dtype_ != at::kFloat; }

  float* read(std::int64_t begin, std::int64_t count, float* buffer) const {
    if (dtype_ == at::kFloat) return reinterpret_cast<float*>(memory_) + begin;
    if (prefetched_ahead() == far_ahead) {
      constexpr std::int64_t line = 64 / sizeof(at::Half);
      for (std::int64_t i = begin; i < begin + count; i += line)  // of the next tile
        __builtin_prefetch(reinterpret_cast<const at::Half*>(memory_) + count + i);
    }
    if (dtype_ == at::kBFloat16) {
      widen(reinterpret_cast<const at::BFloat16*>(memory_) + begin, buffer, count);
    } else {
      widen(reinterpret_cast<const at::Half*>(memory_) + begin, buffer, count);
    }
    return buffer;
  }

  // Into a tensor that was not read.
  void write_only(std::int64_t begin, std::int64_t count, const float* values) const {
    if (dtype_ == at::kBFloat16)
      narrow_past_caches(values, reinterpret_cast<at::BFloat16*>(memory_) + begin, count);
    else
      write(begin, count, values);
  }

  // `values` came from read(), or hold what is to be rounded into this tensor.
  void write(std::int64_t begin, std::int64_t count, const float* values) const {
    if (dtype_ == at::kFloat) {
      float* const target = reinterpret_cast<float*>(memory_) + begin;
      if (target != values) std::memcpy(target, values, static_cast<std::size_t>(count) * sizeof(float));
    } else if (dtype_ == at::kBFloat16) {
      narrow(values, reinterpret_cast<at::BFloat16*>(memory_) + begin, count);
    } else {
      narrow(values, reinterpret_cast<at::Half*>(memory_) + begin, count);
    }
  }

 private:
  at::ScalarType dtype_;
  char* memory_;
};

// A tile of every tensor of a piece that is not fp32.
struct alignas(64) Buffers {
  float master[largest_tile], gradient[largest_tile];
  std::array<std::array<float, largest_tile>, std::tuple_size_v<decltype(ElementTile::state)>> state;
};

struct Streams {
  explicit Streams(const Piece& piece, const StepScalars* scalars = nullptr)
      : elements(piece.master.numel()), master(piece.master), gradient(piece.gradient) {
    if (scalars != nullptr && RandomRounding::rounds(piece.master)) rounding.emplace(piece.info, *scalars);
    strata_check(piece.gradient.numel() == elements, "a piece's gradient is as long as its master");
    if (piece.parameter.defined()) parameter.emplace(piece.parameter);
    for (const at::Tensor& tensor : piece.state) {
      const bool by_element = tensor.numel() == elements && tensor.scalar_type() != at::kByte;
      state.push_back(by_element ? std::optional<Stream>(tensor) : std::nullopt);
    }
  }

  bool converts() const {
    return master.is_converted() || gradient.is_converted() || parameter.has_value() ||
           std::ranges::any_of(state, [](const auto& stream) { return stream && stream->is_converted(); });
  }

  ElementTile read(std::int64_t begin, std::int64_t most, Buffers& buffers) const {
    ElementTile tile;
    tile.begin = begin;
    tile.count = std::min(most, elements - begin);
    tile.master = master.read(begin, tile.count, buffers.master);
    tile.gradient = gradient.read(begin, tile.count, buffers.gradient);
    for (std::size_t i = 0; i < state.size(); ++i)
      if (state[i]) tile.state[i] = state[i]->read(begin, tile.count, buffers.state[i].data());
    return tile;
  }

  void write(const ElementTile& tile) const {
    for (std::size_t i = 0; i < state.size(); ++i)
      if (state[i]) state[i]->write(tile.begin, tile.count, tile.state[i]);
    if (rounding) rounding->round(tile.master, tile.begin, tile.count);
    master.write(tile.begin, tile.count, tile.master);
    if (parameter) parameter->write_only(tile.begin, tile.count, tile.master);
  }

  std::int64_t elements;
  Stream master;
  Stream gradient;
  std::optional<Stream> parameter;
  std::optional<RandomRounding> rounding;  // of the master
  std::vector<std::optional<Stream>> state;
};

}  // namespace

std::int64_t prefetched_ahead() {
#if defined(__x86_64__)
  static const std::int64_t ahead = __builtin_cpu_is("amd") != 0 ? near_ahead : far_ahead;
  return ahead;
#else
  return far_ahead;
#endif
}

bool takes_element_pass(const Piece& piece) {
  return is_known(piece.master) && is_known(piece.gradient) &&
         (!piece.parameter.defined() || is_known(piece.parameter)) &&
         piece.state.size() <= std::tuple_size_v<decltype(ElementTile::state)> &&
         std::ranges::all_of(piece.state, [](const at::Tensor& tensor) {
           return is_known(tensor) || (tensor.scalar_type() == at::kByte && tensor.is_cpu() && tensor.is_contiguous());
         });
}

void element_pass(std::span<Piece* const> pieces, const StepScalars& scalars,
                  const std::function<void(std::size_t piece, const ElementTile& tile)>& update) {
  std::vector<Streams> streams;
  std::vector<std::int64_t> ends;  // of each piece, in tiles over all of them
  std::int64_t tiles = 0;
  for (const Piece* const piece : pieces) streams.emplace_back(*piece, &scalars);
  const std::int64_t tile = std::ranges::any_of(streams, &Streams::converts) ? converted_tile : largest_tile;
  for (const Streams& of_piece : streams) ends.push_back(tiles += (of_piece.elements + tile - 1) / tile);
  at::parallel_for(0, tiles, smallest_part / tile, [&](std::int64_t first, std::int64_t last) {
    Buffers buffers;
    auto piece = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), first) - ends.begin());
    for (std::int64_t number = first; number < last; ++number) {
      while (number >= ends[piece]) ++piece;
      const Streams& from = streams[piece];
      const std::int64_t begin = (number - (piece == 0 ? 0 : ends[piece - 1])) * tile;
      const ElementTile part = from.read(begin, tile, buffers);
      update(piece, part);
      from.write(part);
    }
    fence_stores();
  });
}

void element_measure(const Piece& part, const std::function<void(const ElementTile& tile)>& measure) {
  const Streams streams(part);
  const std::int64_t tiles = (streams.elements + measured_tile - 1) / measured_tile;
  at::parallel_for(0, tiles, smallest_part / measured_tile, [&](std::int64_t first, std::int64_t last) {
    Buffers buffers;
    for (std::int64_t number = first; number < last; ++number)
      measure(streams.read(number * measured_tile, measured_tile, buffers));
  });
}

STRATA_VECTOR_CLONES double sum_of_squares(const float* values, std::int64_t count) {
  using Doubles [[gnu::vector_size(64)]] = double;
  using Floats [[gnu::vector_size(32)]] = float;
  constexpr std::int64_t lanes = 8;
  std::array<Doubles, 4> sums{};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (std::int64_t part = 0; part < 4; ++part) {
      Floats some;
      std::memcpy(&some, values + i + part * lanes, sizeof some);
      const Doubles wide = __builtin_convertvector(some, Doubles);
      sums[static_cast<std::size_t>(part)] += wide * wide;
    }
  }
  double sum = 0.0;
  const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int lane = 0; lane < lanes; ++lane) sum += all[lane];
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

namespace {
template <typename Narrow>
double squares_of_narrow(const Narrow* values, std::int64_t count) {
  std::array<float, 1024> wide;
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < count; begin += std::ssize(wide)) {
    const std::int64_t some = std::min(std::ssize(wide), count - begin);
    widen(values + begin, wide.data(), some);
    sum += sum_of_squares(wide.data(), some);
  }
  return sum;
}
}  // namespace

double sum_of_squares(const at::BFloat16* values, std::int64_t count) {
  return squares_of_narrow(values, count);
}
double sum_of_squares(const at::Half* values, std::int64_t count) {
  return squares_of_narrow(values, count);
}

}  // namespace strata
