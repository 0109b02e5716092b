#pragma once
#include <strata/toolbox/host_backend.hpp>

#include "collectives.hpp"
#include "gloo_wire.hpp"

namespace strata::gloo_communicator {

// Collectives and point-to-point messages on two wires over the same connections.
class GlooTransport final : public HostTransport {
 public:
  // [collective] Blocks until all ranks are connected; throws EnvironmentError after the setup's timeout.
  GlooTransport(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup)
      : connections_(GlooWire::connect(store, setup)),
        collective_wire_(connections_, /*of_collectives=*/true),
        pair_wire_(connections_, /*of_collectives=*/false),
        collectives_(collective_wire_, setup.rank, setup.size) {}

  std::string name() const override { return "gloo"; }
  HostCollectives& collectives() override { return collectives_; }
  std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) override {
    return pair_wire_.send(peer, data, bytes);
  }
  std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) override {
    return pair_wire_.receive(peer, data, bytes);
  }
  void abort() override {
    collective_wire_.abort();
    pair_wire_.abort();
  }

 private:
  std::shared_ptr<GlooWire::Connections> connections_;
  GlooWire collective_wire_;
  GlooWire pair_wire_;
  Collectives collectives_;
};

}  // namespace strata::gloo_communicator
