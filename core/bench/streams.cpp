#include "bench/streams.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <string>

namespace strata::bench {

namespace {

constexpr std::int64_t block = 1024;  // elements, which stay in the first cache

struct Array {
  float* data = nullptr;
  std::int64_t elements = 0;
  bool read = false;
  bool written = false;
};

// Array's part number `index` of `count`.
std::pair<std::int64_t, std::int64_t> part(const Array& array, std::int64_t index, std::int64_t count) {
  return {array.elements * index / count, array.elements * (index + 1) / count};
}

void add(float* sum, const float* from, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) sum[i] += from[i];
}

}  // namespace

Streams::Streams(const std::vector<Stream>& streams) : streams_(streams) {
  for (const Stream& stream : streams) arrays_.push_back(at::full({std::max<std::int64_t>(stream.bytes / 4, 1)}, 1e-30));
}

void Streams::pass() const {
  std::vector<Array> arrays;
  std::int64_t longest = 1;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    arrays.push_back({arrays_[i].data_ptr<float>(), arrays_[i].numel(), streams_[i].read, streams_[i].written});
    longest = std::max(longest, arrays_[i].numel());
  }
  const std::int64_t blocks = (longest + block - 1) / block;
  at::parallel_for(0, blocks, 16, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, block> sum{};
    for (std::int64_t index = begin; index < end; ++index) {
      sum.fill(0.0F);
      for (const Array& array : arrays) {
        const auto [from, to] = part(array, index, blocks);
        if (array.read) add(sum.data(), array.data + from, to - from);
      }
      for (const Array& array : arrays) {
        const auto [from, to] = part(array, index, blocks);
        if (array.written) std::copy_n(sum.data(), to - from, array.data + from);
      }
    }
    // Without a written array nobody would see that it was computed.
    volatile float seen = sum[0];
    static_cast<void>(seen);
  });
}

double Streams::bytes() const {
  double bytes = 0.0;
  for (const Stream& stream : streams_)
    bytes += static_cast<double>(stream.bytes) * ((stream.read ? 1 : 0) + (stream.written ? 1 : 0));
  return bytes;
}

std::string Streams::name() const {
  int count = 0;
  for (const Stream& stream : streams_) count += (stream.read ? 1 : 0) + (stream.written ? 1 : 0);
  return "triad of " + std::to_string(count) + " streams";
}

}  // namespace strata::bench
