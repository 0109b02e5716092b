// Messages between this rank and one peer, so that the collectives do not depend on gloo.
#pragma once
#include <strata/toolbox/host_backend.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace strata::gloo_communicator {

// Messages of one pair and direction arrive in the order in which they were posted, and match receives of the same
// size.
class Wire {
 public:
  virtual ~Wire() = default;
  // The following messages belong to this collective, a number below 8, and match only messages of the same collective.
  virtual void begin(int /*collective*/) {}
  virtual std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) = 0;
  virtual std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) = 0;
};

}  // namespace strata::gloo_communicator
