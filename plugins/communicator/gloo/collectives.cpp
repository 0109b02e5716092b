#include "collectives.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

namespace strata::gloo_communicator {

namespace {
// The tag that tells one collective's messages from another's.
enum Kind : int { AllGather, AllToAll, ReduceScatter, AllReduce, Reduce, Broadcast, Barrier };
constexpr std::int64_t largest_chunk = 2 << 20;  // smaller ones cost more in waking threads than they gain by overlap
constexpr std::int64_t direct_bytes = 32 << 10;  // all-reduces up to this size take one round of messages, not two
constexpr std::int64_t part_alignment = 64;      // bytes

void wait_all(Transfers& transfers) {
  for (const std::unique_ptr<HostMessage>& transfer : transfers) transfer->wait();
  transfers.clear();
}

std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

std::int64_t element_bytes(Reduction reduction) {
  return static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
}
}  // namespace

// The messages of one chunk.
struct Collectives::Chunk {
  Transfers receives;
  Transfers sends;
};

void Collectives::all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) {
  wire_.begin(Kind::AllGather);
  gather_parts(output, input, [part_bytes](int rank) { return Range{rank * part_bytes, (rank + 1) * part_bytes}; });
}

// Sends `own` to all and receives the others' parts at their places in `buffer`.
void Collectives::gather_parts(std::byte* buffer, const std::byte* own, const Parts& part) {
  Transfers transfers;
  const Range mine = part(rank_);
  for (int step = 1; step < size_; ++step) {
    const int from = peer(size_ - step);
    const Range theirs = part(from);
    if (theirs.size() > 0) transfers.push_back(wire_.receive(from, buffer + theirs.begin, theirs.size()));
    if (mine.size() > 0) transfers.push_back(wire_.send(peer(step), own, mine.size()));
  }
  if (own != buffer + mine.begin && mine.size() > 0)
    std::memcpy(buffer + mine.begin, own, static_cast<std::size_t>(mine.size()));
  wait_all(transfers);
}

void Collectives::all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) {
  wire_.begin(Kind::AllToAll);
  Transfers transfers;
  for (int step = 1; step < size_; ++step) {
    const int from = peer(size_ - step);
    transfers.push_back(wire_.receive(from, output + from * part_bytes, part_bytes));
    transfers.push_back(wire_.send(peer(step), input + peer(step) * part_bytes, part_bytes));
  }
  std::memcpy(output + rank_ * part_bytes, input + rank_ * part_bytes, static_cast<std::size_t>(part_bytes));
  wait_all(transfers);
}

void Collectives::reduce_scatter(std::byte* output, const std::byte* input, std::int64_t part_elements,
                                 Reduction reduction) {
  wire_.begin(Kind::ReduceScatter);
  const std::int64_t bytes = part_elements * element_bytes(reduction);
  reduce_parts(
      output, input,
      [bytes](int rank) {
        return Range{rank * bytes, (rank + 1) * bytes};
      },
      reduction);
}

void Collectives::all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) {
  wire_.begin(Kind::AllReduce);
  const std::int64_t bytes = elements * element_bytes(reduction);
  if (bytes <= direct_bytes) {
    const auto everything = [bytes](int) { return Range{0, bytes}; };
    return reduce_parts(data, data, everything, reduction);
  }
  const std::int64_t share = divide_up(divide_up(bytes, size_), part_alignment) * part_alignment;
  const auto part = [bytes, share](int rank) {
    return Range{std::min(rank * share, bytes), std::min((rank + 1) * share, bytes)};
  };
  reduce_parts(data + part(rank_).begin, data, part, reduction, data);
}

void Collectives::reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) {
  wire_.begin(Kind::Reduce);
  const std::int64_t bytes = elements * element_bytes(reduction);
  reduce_parts(
      data, data,
      [bytes, root](int rank) {
        return Range{0, rank == root ? bytes : 0};
      },
      reduction);
}

// Passes chunks along the chain root, root + 1, ...: every rank but the last sends the buffer once.
void Collectives::broadcast(std::byte* data, std::int64_t bytes, int root) {
  wire_.begin(Kind::Broadcast);
  const int distance = (rank_ - root + size_) % size_;
  const bool receives = distance > 0;
  const bool sends = distance < size_ - 1;
  std::deque<std::unique_ptr<HostMessage>> arriving;
  std::deque<std::unique_ptr<HostMessage>> leaving;
  const std::int64_t chunks = divide_up(bytes, largest_chunk);
  const auto size_of = [&](std::int64_t chunk) { return std::min(largest_chunk, bytes - chunk * largest_chunk); };
  const auto post = [&](std::int64_t chunk) {
    if (receives && chunk < chunks)
      arriving.push_back(wire_.receive(peer(size_ - 1), data + chunk * largest_chunk, size_of(chunk)));
  };
  post(0);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    post(chunk + 1);
    if (receives) {
      arriving.front()->wait();
      arriving.pop_front();
    }
    if (!sends) continue;
    leaving.push_back(wire_.send(peer(1), data + chunk * largest_chunk, size_of(chunk)));
    if (leaving.size() <= 2) continue;
    leaving.front()->wait();
    leaving.pop_front();
  }
  for (const std::unique_ptr<HostMessage>& transfer : leaving) transfer->wait();
}

void Collectives::barrier() {
  wire_.begin(Kind::Barrier);
  std::byte out{};
  std::vector<std::byte> in(static_cast<std::size_t>(size_));
  gather_parts(in.data(), &out, [](int rank) { return Range{rank, rank + 1}; });
}

std::int64_t Collectives::chunk_bytes() const {
  const std::int64_t share = staging_bytes / (2 * std::max(1, size_ - 1));
  return std::max(part_alignment, std::min(largest_chunk, share / part_alignment * part_alignment));
}

// Where chunk `index` of the part of the rank `step` places before this one is received.
std::byte* Collectives::staging(std::int64_t index, int step) {
  const std::int64_t others = size_ - 1;
  if (staging_.empty()) staging_.resize(static_cast<std::size_t>(2 * others * chunk_bytes()));
  return staging_.data() + (index % 2 * others + step - 1) * chunk_bytes();
}

Collectives::Range Collectives::chunk_of(const Range& part, std::int64_t index) const {
  const std::int64_t begin = std::min(part.begin + index * chunk_bytes(), part.end);
  return {begin, std::min(begin + chunk_bytes(), part.end)};
}

// Starts moving chunk `index` of every part to the rank that reduces it.
Collectives::Chunk Collectives::post_chunk(const std::byte* input, const Parts& part, std::int64_t index) {
  Chunk chunk;
  const Range mine = chunk_of(part(rank_), index);
  for (int step = 1; step < size_; ++step) {
    const Range theirs = chunk_of(part(peer(step)), index);
    if (mine.size() > 0) chunk.receives.push_back(wire_.receive(peer(size_ - step), staging(index, step), mine.size()));
    if (theirs.size() > 0) chunk.sends.push_back(wire_.send(peer(step), input + theirs.begin, theirs.size()));
  }
  return chunk;
}

// Starts sending chunk `index` of this rank's part, reduced, to all, and receiving theirs at their places in
// `gathered`.
void Collectives::post_gather(std::byte* gathered, const Parts& part, std::int64_t index, Transfers& transfers) {
  const Range mine = chunk_of(part(rank_), index);
  for (int step = 1; step < size_; ++step) {
    const int from = peer(size_ - step);
    const Range theirs = chunk_of(part(from), index);
    if (theirs.size() > 0) transfers.push_back(wire_.receive(from, gathered + theirs.begin, theirs.size()));
    if (mine.size() > 0) transfers.push_back(wire_.send(peer(step), gathered + mine.begin, mine.size()));
  }
}

// output (as long as part(rank)) becomes the reduction over ranks of part(rank) of input. Parts may overlap; output may
// be in input: a chunk is sent before its place is written. With `gathered` (= input, output being this rank's part of
// it), every reduced chunk is passed on to all at once, while the next is summed.
void Collectives::reduce_parts(std::byte* output, const std::byte* input, const Parts& part, Reduction reduction,
                               std::byte* gathered) {
  std::int64_t longest = 0;
  for (int rank = 0; rank < size_; ++rank) longest = std::max(longest, part(rank).size());
  const std::int64_t chunks = divide_up(longest, chunk_bytes());
  const std::int64_t own_begin = part(rank_).begin;
  Transfers gathering;
  Chunk present = post_chunk(input, part, 0);
  for (std::int64_t index = 0; index < chunks; ++index) {
    Chunk next;
    if (index + 1 < chunks) next = post_chunk(input, part, index + 1);
    wait_all(present.receives);
    wait_all(present.sends);
    const Range mine = chunk_of(part(rank_), index);
    std::vector<const std::byte*> contributions;
    for (int rank = 0; rank < size_; ++rank)
      contributions.push_back(rank == rank_ ? input + mine.begin : staging(index, (rank_ - rank + size_) % size_));
    const std::int64_t elements = mine.size() / element_bytes(reduction);
    if (elements > 0) reduce_in_rank_order(output + (mine.begin - own_begin), contributions, elements, reduction);
    if (gathered != nullptr) post_gather(gathered, part, index, gathering);
    present = std::move(next);
  }
  wait_all(gathering);
}

}  // namespace strata::gloo_communicator
