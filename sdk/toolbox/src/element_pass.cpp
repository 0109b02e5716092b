#include <ATen/Parallel.h>
#include <strata/error.hpp>
#include <strata/toolbox/element_pass.hpp>

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
constexpr std::int64_t largest_tile = 2048, converted_tile = 256;
constexpr std::int64_t smallest_part = 8 * largest_tile;  // elements for which a thread is worth its while

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
    if (dtype_ == at::kBFloat16) {
      widen(reinterpret_cast<const at::BFloat16*>(memory_) + begin, buffer, count);
    } else {
      widen(reinterpret_cast<const at::Half*>(memory_) + begin, buffer, count);
    }
    return buffer;
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

struct Streams {
  explicit Streams(const Piece& piece)
      : elements(piece.master.numel()), master(piece.master), gradient(piece.gradient) {
    strata_check(piece.gradient.numel() == elements, "a piece's gradient is as long as its master");
    if (piece.parameter.defined()) parameter.emplace(piece.parameter);
    for (const at::Tensor& tensor : piece.state) state.emplace_back(tensor);
  }

  bool converts() const {
    return master.is_converted() || gradient.is_converted() || parameter.has_value() ||
           std::ranges::any_of(state, &Stream::is_converted);
  }

  std::int64_t elements;
  Stream master;
  Stream gradient;
  std::optional<Stream> parameter;
  std::vector<Stream> state;
};

}  // namespace

bool takes_element_pass(const Piece& piece) {
  return is_known(piece.master) && is_known(piece.gradient) &&
         (!piece.parameter.defined() || is_known(piece.parameter)) &&
         piece.state.size() <= std::tuple_size_v<decltype(ElementTile::state)> &&
         std::all_of(piece.state.begin(), piece.state.end(), is_known);
}

void element_pass(std::span<Piece* const> pieces,
                  const std::function<void(std::size_t piece, const ElementTile& tile)>& update) {
  std::vector<Streams> streams;
  std::vector<std::int64_t> ends;  // of each piece, in tiles over all of them
  std::int64_t tiles = 0;
  for (const Piece* const piece : pieces) streams.emplace_back(*piece);
  const std::int64_t tile = std::ranges::any_of(streams, &Streams::converts) ? converted_tile : largest_tile;
  for (const Streams& of_piece : streams) ends.push_back(tiles += (of_piece.elements + tile - 1) / tile);
  at::parallel_for(0, tiles, smallest_part / tile, [&](std::int64_t first, std::int64_t last) {
    float master_buffer[largest_tile], gradient_buffer[largest_tile];
    std::array<std::array<float, largest_tile>, std::tuple_size_v<decltype(ElementTile::state)>> state_buffers;
    auto piece = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), first) - ends.begin());
    for (std::int64_t number = first; number < last; ++number) {
      while (number >= ends[piece]) ++piece;
      const Streams& from = streams[piece];
      const std::int64_t begin = (number - (piece == 0 ? 0 : ends[piece - 1])) * tile;
      ElementTile part;
      part.count = std::min(tile, from.elements - begin);
      part.master = from.master.read(begin, part.count, master_buffer);
      part.gradient = from.gradient.read(begin, part.count, gradient_buffer);
      for (std::size_t i = 0; i < from.state.size(); ++i)
        part.state[i] = from.state[i].read(begin, part.count, state_buffers[i].data());
      update(piece, part);
      for (std::size_t i = 0; i < from.state.size(); ++i) from.state[i].write(begin, part.count, part.state[i]);
      from.master.write(begin, part.count, part.master);
      if (from.parameter) from.parameter->write(begin, part.count, part.master);
    }
  });
}

}  // namespace strata
