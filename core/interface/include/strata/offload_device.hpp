// An offload device holds bytes on another memory tier. It does not know what the bytes mean.
#pragma once
#include <strata/plugin.hpp>
#include <strata/state_store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace strata {

// Host memory: `data` is aligned to limits().alignment.
struct Span {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// A reserved range of the device; value 0 is none.
struct Region {
  std::uint64_t id = 0;
  std::size_t bytes = 0;
};

// One read or write under way.
class STRATA_EXPORT Transfer {
 public:
  virtual ~Transfer();
  // Blocks the host until the transfer has ended; throws EnvironmentError with path, offset and cause when it failed or
  // passed its deadline. The span stays alive until then.
  virtual void wait() = 0;
};

struct OffloadLimits {
  std::size_t alignment = 1;    // of span addresses, offsets and sizes, in bytes
  int transfers_in_flight = 1;  // more than this many block the host in read() or write()
};

class STRATA_EXPORT OffloadDevice : public Plugin {
 public:
  ~OffloadDevice() override;
  virtual Tier tier() const = 0;  // Host or Disk: where the ledger counts it
  virtual OffloadLimits limits() const = 0;
  // Takes the whole capacity up front, filled with zeros; throws EnvironmentError with both figures when it is not
  // there.
  virtual Region reserve(std::size_t bytes) = 0;
  virtual void free(Region region) = 0;
  virtual std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) = 0;
  virtual std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) = 0;
  // The region's memory when the host can address it: compute in place, no transfers. Stays valid until free().
  virtual std::optional<Span> map(Region region);
};

}  // namespace strata
