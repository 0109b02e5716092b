// Collectives by direct exchange between pairs of ranks: in step s each rank sends to (rank + s) and receives from
// (rank - s), all pairs at once. A reduce-scatter then moves (N-1)/N of the buffer per rank; gloo's own moves as much
// as an all-reduce.
//
// [Note: One order of summation] Every reduction sums each element in rank order 0, 1, 2, ..., regardless of how the
// buffer is split, so all_reduce, reduce_scatter + all_gather and reduce give the same bits on all ranks. A large
// all_reduce is a reduce_scatter that sends each chunk to all ranks as soon as it is summed; in a small one every rank
// sends everything to every other.
//
// [Note: Staging] Reductions receive chunks into two halves of a staging buffer: one chunk is received while the other
// is summed. The buffer is allocated at the first reduction and never exceeds staging_bytes. All other messages go
// directly from tensor to tensor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "wire.hpp"

namespace strata::gloo_communicator {

using Transfers = std::vector<std::unique_ptr<HostMessage>>;

inline constexpr std::int64_t staging_bytes = 8 << 20;

class Collectives final : public HostCollectives {
 public:
  Collectives(Wire& wire, int rank, int size) : wire_(wire), rank_(rank), size_(size) {}

  void all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) override;
  void all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) override;
  void reduce_scatter(std::byte* output, const std::byte* input, std::int64_t part_elements,
                      Reduction reduction) override;
  void all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) override;
  void reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) override;
  void broadcast(std::byte* data, std::int64_t bytes, int root) override;
  void barrier() override;

 private:
  struct Range {
    std::int64_t begin = 0;  // bytes
    std::int64_t end = 0;
    std::int64_t size() const { return end - begin; }
  };
  using Parts = std::function<Range(int rank)>;  // the part of the buffer that belongs to a rank
  struct Chunk;

  void gather_parts(std::byte* buffer, const std::byte* own, const Parts& part);
  void reduce_parts(std::byte* output, const std::byte* input, const Parts& part, Reduction reduction,
                    std::byte* gathered = nullptr);
  void post_gather(std::byte* gathered, const Parts& part, std::int64_t index, Transfers& transfers);
  Chunk post_chunk(const std::byte* input, const Parts& part, std::int64_t index);
  Range chunk_of(const Range& part, std::int64_t index) const;
  std::int64_t chunk_bytes() const;
  std::byte* staging(std::int64_t index, int step);
  int peer(int step) const { return (rank_ + step) % size_; }

  Wire& wire_;
  int rank_;
  int size_;
  std::vector<std::byte> staging_;
};

}  // namespace strata::gloo_communicator
