// defines: ShmBackend
#pragma once
#include <strata/communicator.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "shm_collectives.hpp"
#include "shm_pairs.hpp"

namespace strata::shm_communicator {

// A c10d backend whose collectives run one after the other on a thread of its own. Sends and receives are posted at
// once by the caller, so that two ranks that both send first do not wait for each other. After the first error every
// operation fails with it.
class ShmBackend final : public c10d::Backend {
 public:
  // [collective] Blocks until all are connected.
  ShmBackend(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup, std::int64_t slot_bytes,
             std::int64_t ring_bytes);
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "strata-shm"; }
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

  Arena arena_;
  ShmPairs pairs_;
  ShmCollectives collectives_;  // the thread's own

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<QueuedWork>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace strata::shm_communicator
