#pragma once
#include <strata/communicator.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "wire.hpp"

namespace strata::gloo_communicator {

// Messages over gloo's TCP connections. Collectives and point-to-point messages use two wires over the same
// connections. Several threads may post; gloo's counters are not thread-safe, so posting takes a lock.
//
// [Note: Matching messages] Gloo ends the process if a message is longer than the receive it matches. A message's tag
// therefore encodes its wire, its collective and its size: messages that do not belong together never match, both sides
// wait, and the engine reports which calls differ.
class GlooWire final : public Wire {
 public:
  struct Connections {
    c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
    std::mutex posting;
  };
  GlooWire(std::shared_ptr<Connections> connections, bool of_collectives)
      : connections_(std::move(connections)), of_collectives_(of_collectives) {}
  void begin(int collective) override { collective_ = collective; }
  std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) override;
  std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) override;
  // Ends the current wait and every later one with an error. Any thread may call it.
  void abort();

  // [collective] Connects to all peers; throws EnvironmentError after the setup's timeout.
  static std::shared_ptr<Connections> connect(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup);

 private:
  class Message;
  void set_waiting(c10::intrusive_ptr<c10d::Work> work);
  std::unique_ptr<HostMessage> post(int peer, std::byte* data, std::int64_t bytes, bool outgoing);

  std::shared_ptr<Connections> connections_;
  bool of_collectives_;
  int collective_ = 0;
  std::mutex waiting_mutex_;
  c10::intrusive_ptr<c10d::Work> waiting_;  // what a thread is waiting for
  bool aborted_ = false;
};

}  // namespace strata::gloo_communicator
