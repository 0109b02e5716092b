// Collectives in rounds through shared memory.
//
// [Note: Rounds] In a round every rank writes a chunk into its slot, publishes it, and reads what it needs from the
// others' slots. Rounds are numbered over the group's lifetime. A rank may write round n once all have read its round n
// - depth, so no rank waits for a reader that is one round behind. Each chunk carries a description of the call: ranks
// that call different collectives or sizes get an error instead of each other's bytes.
//
// [Note: One order of summation] Sums run in rank order 0, 1, 2, ... per element, directly from the others' slots, so
// all_reduce, reduce_scatter + all_gather and reduce give the same bits on all ranks.
#pragma once
#include <strata/toolbox/host_backend.hpp>

#include "arena.hpp"

namespace strata::shm_communicator {

class ShmCollectives final : public HostCollectives {
 public:
  explicit ShmCollectives(Arena& arena) : arena_(arena) {}

  void all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) override;
  void all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) override;
  void reduce_scatter(std::byte* output, const std::byte* input, std::int64_t part_elements,
                      Reduction reduction) override;
  void all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) override;
  void reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) override;
  void broadcast(std::byte* data, std::int64_t bytes, int root) override;
  void barrier() override;

 private:
  enum class Operation : std::uint32_t { AllGather, AllToAll, ReduceScatter, AllReduce, Reduce, Broadcast, Barrier };
  static const char* name_of(Operation operation);
  void begin(Operation operation, int root, std::int64_t bytes);
  // Waits until this rank may write the current round's slot, and returns it.
  std::byte* free_slot();
  // Publishes the slot and waits until all ranks have published theirs.
  void publish();
  // Releases this round's slots.
  void end_round();
  const std::byte* slot_of(int rank) { return arena_.slot(rank, round_); }
  void check_same() const;
  void small_all_reduce(std::byte* data, std::int64_t elements, Reduction reduction);
  // Reduces `own` (this rank's part) and the chunk at `offset` of every other slot into output, in rank order.
  void fold(std::byte* output, const std::byte* own, std::int64_t elements, Reduction reduction,
            const std::function<std::int64_t(int)>& offset);
  int rank() const { return arena_.rank(); }
  int size() const { return arena_.size(); }

  Arena& arena_;
  Announcement announcement_;
  std::uint64_t round_ = 0;
  std::vector<const std::byte*> contributions_;
};

}  // namespace strata::shm_communicator
