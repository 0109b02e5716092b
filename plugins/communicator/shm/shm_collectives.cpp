#include "shm_collectives.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cstring>

namespace strata::shm_communicator {

namespace {
std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}
std::int64_t element_bytes(Reduction reduction) {
  return static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// A part of a buffer, cut into chunks.
struct Range {
  std::int64_t begin = 0;  // bytes
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  Range chunk(std::int64_t index, std::int64_t bytes) const {
    const std::int64_t at = std::min(begin + index * bytes, end);
    return {at, std::min(at + bytes, end)};
  }
};
}  // namespace

const char* ShmCollectives::name_of(Operation operation) {
  switch (operation) {
    case Operation::AllGather:
      return "all_gather";
    case Operation::AllToAll:
      return "all_to_all";
    case Operation::ReduceScatter:
      return "reduce_scatter";
    case Operation::AllReduce:
      return "all_reduce";
    case Operation::Reduce:
      return "reduce";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::Barrier:
      return "barrier";
  }
  return "an unknown operation";
}

void ShmCollectives::begin(Operation operation, int root, std::int64_t bytes) {
  announcement_ = {static_cast<std::uint32_t>(operation), static_cast<std::uint32_t>(root),
                   static_cast<std::uint64_t>(bytes)};
}

std::byte* ShmCollectives::free_slot() {
  if (round_ >= depth) {
    const std::uint64_t needed = round_ - depth + 1;
    arena_.wait([&] {
      for (int peer = 0; peer < size(); ++peer)
        if (arena_.board(peer).consumed.load(std::memory_order_acquire) < needed) return peer;
      return Arena::nobody;
    });
  }
  return arena_.slot(rank(), round_);
}

void ShmCollectives::publish() {
  Board& mine = arena_.board(rank());
  mine.announcements[round_ % depth] = announcement_;
  mine.published.store(round_ + 1, std::memory_order_release);
  arena_.ring_all_bells();
  arena_.wait([&] {
    for (int peer = 0; peer < size(); ++peer)
      if (arena_.board(peer).published.load(std::memory_order_acquire) <= round_) return peer;
    return Arena::nobody;
  });
  check_same();
}

void ShmCollectives::check_same() const {
  const auto text = [](const Announcement& announcement) {
    return format("{} of {} bytes with root {}", name_of(static_cast<Operation>(announcement.operation)),
                  announcement.bytes, announcement.root);
  };
  for (int peer = 0; peer < size(); ++peer) {
    const Announcement theirs = arena_.board(peer).announcements[round_ % depth];
    if (!(theirs == announcement_))
      throw Bug(
          "rank {} of the group calls {} and rank {} calls {}; all must call the same operations with the same sizes "
          "in the same order",
          rank(), text(announcement_), peer, text(theirs));
  }
}

void ShmCollectives::end_round() {
  arena_.board(rank()).consumed.store(++round_, std::memory_order_release);
  arena_.ring_all_bells();
}

void ShmCollectives::fold(std::byte* output, const std::byte* own, std::int64_t elements, Reduction reduction,
                          const std::function<std::int64_t(int)>& offset) {
  contributions_.clear();
  for (int peer = 0; peer < size(); ++peer)
    contributions_.push_back(peer == rank() ? own : slot_of(peer) + offset(peer));
  if (elements > 0) reduce_in_rank_order(output, contributions_, elements, reduction);
}

void ShmCollectives::all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) {
  begin(Operation::AllGather, 0, part_bytes);
  for (std::int64_t at = 0; at < part_bytes; at += arena_.slot_bytes()) {
    const std::int64_t bytes = std::min(arena_.slot_bytes(), part_bytes - at);
    copy_bytes(free_slot(), input + at, bytes);
    copy_bytes(output + rank() * part_bytes + at, input + at, bytes);  // which the caches hold now
    publish();
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      copy_bytes(output + peer * part_bytes + at, slot_of(peer), bytes);
    }
    end_round();
  }
}

// A slot holds one chunk for every other rank: that of the rank `step` places on is the (step - 1)-th.
void ShmCollectives::all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) {
  begin(Operation::AllToAll, 0, part_bytes);
  const std::int64_t chunk = std::max<std::int64_t>(1, arena_.slot_bytes() / std::max(1, size() - 1));
  copy_bytes(output + rank() * part_bytes, input + rank() * part_bytes, part_bytes);
  for (std::int64_t at = 0; at < part_bytes; at += chunk) {
    const std::int64_t bytes = std::min(chunk, part_bytes - at);
    std::byte* slot = free_slot();
    for (int step = 1; step < size(); ++step)
      copy_bytes(slot + (step - 1) * chunk, input + (rank() + step) % size() * part_bytes + at, bytes);
    publish();
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + size() - step) % size();  // to which this rank is `step` places on
      copy_bytes(output + peer * part_bytes + at, slot_of(peer) + (step - 1) * chunk, bytes);
    }
    end_round();
  }
}

void ShmCollectives::reduce_scatter(std::byte* output, const std::byte* input, std::int64_t part_elements,
                                    Reduction reduction) {
  const std::int64_t part_bytes = part_elements * element_bytes(reduction);
  begin(Operation::ReduceScatter, 0, part_bytes);
  const std::int64_t chunk = arena_.slot_bytes() / std::max(1, size() - 1) / part_alignment * part_alignment;
  for (std::int64_t at = 0; at < part_bytes; at += chunk) {
    const std::int64_t bytes = std::min(chunk, part_bytes - at);
    std::byte* slot = free_slot();
    for (int step = 1; step < size(); ++step)
      copy_bytes(slot + (step - 1) * chunk, input + (rank() + step) % size() * part_bytes + at, bytes);
    publish();
    fold(output + at, input + rank() * part_bytes + at, bytes / element_bytes(reduction), reduction,
         [&](int peer) { return ((rank() - peer + size()) % size() - 1) * chunk; });
    end_round();
  }
}

// Everyone reads everyone's whole buffer: one round where a reduce-scatter and a gather take two.
void ShmCollectives::small_all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) {
  copy_bytes(free_slot(), data, elements * element_bytes(reduction));
  publish();
  fold(data, data, elements, reduction, [](int) { return 0; });
  end_round();
}

// A round that scatters chunk k of every part to the rank that sums it, then one that gathers the sums.
void ShmCollectives::all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) {
  constexpr std::int64_t direct_bytes = 16 << 10;
  const std::int64_t bytes = elements * element_bytes(reduction);
  if (bytes == 0) return;
  begin(Operation::AllReduce, 0, bytes);
  if (bytes <= std::min(direct_bytes, arena_.slot_bytes())) return small_all_reduce(data, elements, reduction);
  const std::int64_t chunk = arena_.slot_bytes() / std::max(1, size() - 1) / part_alignment * part_alignment;
  const std::int64_t share = divide_up(divide_up(bytes, size()), part_alignment) * part_alignment;
  const auto part = [&](int member) {
    return Range{std::min(member * share, bytes), std::min((member + 1) * share, bytes)};
  };
  for (std::int64_t index = 0; index < divide_up(share, chunk); ++index) {
    std::byte* slot = free_slot();
    for (int step = 1; step < size(); ++step) {
      const Range theirs = part((rank() + step) % size()).chunk(index, chunk);
      copy_bytes(slot + (step - 1) * chunk, data + theirs.begin, theirs.size());
    }
    publish();
    const Range mine = part(rank()).chunk(index, chunk);
    fold(data + mine.begin, data + mine.begin, mine.size() / element_bytes(reduction), reduction,
         [&](int peer) { return ((rank() - peer + size()) % size() - 1) * chunk; });
    end_round();
    copy_bytes(free_slot(), data + mine.begin, mine.size());
    publish();
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      const Range theirs = part(peer).chunk(index, chunk);
      copy_bytes(data + theirs.begin, slot_of(peer), theirs.size());
    }
    end_round();
  }
}

void ShmCollectives::reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) {
  const std::int64_t bytes = elements * element_bytes(reduction);
  begin(Operation::Reduce, root, bytes);
  const std::int64_t chunk = arena_.slot_bytes() / part_alignment * part_alignment;
  for (std::int64_t at = 0; at < bytes; at += chunk) {
    const std::int64_t length = std::min(chunk, bytes - at);
    std::byte* slot = free_slot();
    if (rank() != root) copy_bytes(slot, data + at, length);
    publish();
    if (rank() == root) fold(data + at, data + at, length / element_bytes(reduction), reduction, [](int) { return 0; });
    end_round();
  }
}

void ShmCollectives::broadcast(std::byte* data, std::int64_t bytes, int root) {
  begin(Operation::Broadcast, root, bytes);
  for (std::int64_t at = 0; at < bytes; at += arena_.slot_bytes()) {
    const std::int64_t length = std::min(arena_.slot_bytes(), bytes - at);
    std::byte* slot = free_slot();
    if (rank() == root) copy_bytes(slot, data + at, length);
    publish();
    if (rank() != root) copy_bytes(data + at, slot_of(root), length);
    end_round();
  }
}

void ShmCollectives::barrier() {
  begin(Operation::Barrier, 0, 0);
  free_slot();
  publish();
  end_round();
}

}  // namespace strata::shm_communicator
