#pragma once
#include <strata/toolbox/host_backend.hpp>

#include "shm_collectives.hpp"
#include "shm_pairs.hpp"

namespace strata::shm_communicator {

class ShmTransport final : public HostTransport {
 public:
  // [collective] As Arena.
  ShmTransport(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup, std::int64_t slot_bytes,
               std::int64_t ring_bytes)
      : arena_(store, setup, slot_bytes, ring_bytes), pairs_(arena_), collectives_(arena_) {}

  std::string name() const override { return "shm"; }
  HostCollectives& collectives() override { return collectives_; }
  std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) override {
    return std::make_unique<Posted>(pairs_, pairs_.send(peer, data, bytes));
  }
  std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) override {
    return std::make_unique<Posted>(pairs_, pairs_.receive(peer, data, bytes));
  }
  void abort() override {
    arena_.abort();
    pairs_.stop();
  }

 private:
  class Posted final : public HostMessage {
   public:
    Posted(ShmPairs& pairs, std::shared_ptr<PairMessage> message) : pairs_(pairs), message_(std::move(message)) {}
    ~Posted() override { pairs_.drop(*message_); }
    void wait() override { pairs_.wait(*message_); }

   private:
    ShmPairs& pairs_;
    std::shared_ptr<PairMessage> message_;
  };

  Arena arena_;
  ShmPairs pairs_;
  ShmCollectives collectives_;
};

}  // namespace strata::shm_communicator
