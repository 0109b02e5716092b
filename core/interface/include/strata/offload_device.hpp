// An offload device stores bytes on another memory tier, without regard to their meaning.
#pragma once
#include <strata/plugin.hpp>
#include <strata/state_store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace strata {

// A reserved range of the offload device; id 0 means none.
struct Region {
  std::uint64_t id = 0;
  std::size_t bytes = 0;
};

// One pending read or write.
class STRATA_EXPORT Transfer {
 public:
  virtual ~Transfer();
  // Blocks the host until the transfer has ended; throws EnvironmentError with path, offset and cause if it failed or
  // timed out. The transfer's span must stay alive until wait() returns.
  virtual void wait() = 0;
};

struct OffloadLimits {
  std::size_t alignment = 1;    // required alignment of span addresses, offsets and sizes, in bytes
  int transfers_in_flight = 1;  // beyond this many, read() and write() may block the host
  bool mapped = false;          // map() returns the memory of every region
};

// Calls come from one thread at a time, but not always from the same one: the thread that waited for a copy from a GPU
// may start the write. One thread may wait for a transfer while another starts one. Ranges of transfers in flight
// overlap only if all are reads. The engine frees a region, and writes to its mapped memory, only while none of its
// transfers are in flight.
class STRATA_EXPORT OffloadDevice : public Plugin {
 public:
  ~OffloadDevice() override;
  virtual Tier tier() const = 0;  // Host or Disk: where the ledger counts its bytes
  virtual OffloadLimits limits() const = 0;
  // Allocates the whole region at once, filled with zeros; throws EnvironmentError with the bytes needed and available
  // if there is not enough.
  virtual Region reserve(std::size_t bytes) = 0;
  virtual void free(Region region) = 0;
  // Starts a write from `source` into the region, or a read from it into `target`, at byte `at` of the region. Does not
  // block while at most limits().transfers_in_flight are pending.
  virtual std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) = 0;
  virtual std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) = 0;
  // Returns the region's memory if limits().mapped, so that the host computes in place, without transfers; otherwise
  // nothing. Valid until free().
  virtual std::optional<Span> map(Region region);
};

}  // namespace strata
