// defines: GlooBackend
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "collectives.hpp"
#include "gloo_wire.hpp"

namespace strata::gloo_communicator {

// A c10d backend whose collectives run one after the other on a thread of its own. Sends and receives are posted at
// once by the caller, so that two ranks that both send first do not wait for each other. After the first error every
// operation fails with it.
class GlooBackend final : public c10d::Backend {
 public:
  // [collective] Blocks until all are connected.
  GlooBackend(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup);
  ~GlooBackend() override;

  const std::string getBackendName() const override { return "strata-gloo"; }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  // Equal parts only: the split sizes must be empty.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions&) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int peer, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int peer, int tag) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override;
  // Fails what is under way or queued and ends the thread; does not wait for peers.
  void abort() override { shutdown(); }
  void shutdown() override;

 private:
  class QueuedWork;
  class PostedWork;
  c10::intrusive_ptr<c10d::Work> queue(c10d::OpType type, std::vector<at::Tensor> tensors, std::function<void()> move);
  void serve_queue();

  std::shared_ptr<GlooWire::Connections> connections_;
  GlooWire collective_wire_;
  GlooWire pair_wire_;
  Collectives collectives_;  // the thread's own

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<QueuedWork>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace strata::gloo_communicator
