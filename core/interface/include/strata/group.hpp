// What plugins see of communication: a fixed, ordered set of ranks and the operations among them. The engine makes
// groups from what the communicator plugin offers, counts their bytes, keeps their order and ends them when a peer can
// never come.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/export.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata {

enum class Collective { AllGather, ReduceScatter, AllReduce, Broadcast, Reduce, AllToAll, Send, Receive, Barrier };
STRATA_EXPORT const char* to_string(Collective collective);

enum class ReduceOperation { Sum, Max };

// Bytes one rank must send in the best algorithm for `collective`, where `buffer` is the byte size of the whole
// (unsharded) buffer and `size` the number of ranks: (N-1)/N of the buffer for AllGather, ReduceScatter and AllToAll,
// twice that for AllReduce, the buffer for Send; Broadcast and Reduce count the buffer for the ranks that must send it
// (averaged: (N-1)/N).
STRATA_EXPORT std::int64_t logical_bytes(Collective collective, std::int64_t buffer, int size);

// One operation under way. Implementations keep the operation's tensors alive until it has ended.
class STRATA_EXPORT PendingWork {
 public:
  virtual ~PendingWork();
  // See Pending::wait.
  virtual void wait() = 0;
};

// The handle of an operation under way. Move-only; whoever starts an operation waits for it before touching its
// tensors.
class STRATA_EXPORT [[nodiscard]] Pending {
 public:
  Pending() = default;
  explicit Pending(std::unique_ptr<PendingWork> work) : work_(std::move(work)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other);
  ~Pending();
  // Orders what follows on the current stream after the operation; on the CPU blocks the host until it has ended.
  // Throws EnvironmentError when a peer is lost or can never come, saying what every rank of the run was doing. Does
  // nothing the second time, or on an empty handle.
  void wait();
  bool waiting() const { return work_ != nullptr; }

 private:
  std::unique_ptr<PendingWork> work_;
};

// All operations are [collective] over the group: every member calls the same ones with the same sizes in the same
// order. Tensors are contiguous, on the run's device, and must stay untouched until wait() (inputs unread is not
// required). Throws Bug on shapes that break the rule of the operation. Starting one does not block the host.
class STRATA_EXPORT Group {
 public:
  virtual ~Group();
  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;  // of this process within the group
  virtual int size() const = 0;
  // The members' ranks in the run, by their rank in the group.
  virtual const std::vector<int>& members() const = 0;

  // output: size() * input elements; rank r's input lands at [r * n, (r + 1) * n). input may be that range of output.
  virtual Pending all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  // input: size() * output elements; output becomes the sum over ranks of range [rank * n, (rank + 1) * n) of input.
  // Sums run in rank order 0, 1, 2, ..., so that all_reduce and reduce_scatter give equal bits. output may be that
  // range of input.
  virtual Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOperation operation) = 0;
  virtual Pending all_reduce(const at::Tensor& tensor, ReduceOperation operation) = 0;
  virtual Pending broadcast(const at::Tensor& tensor, int root) = 0;
  // The sum (or maximum) lands in root's tensor; the others' tensors are left undefined.
  virtual Pending reduce(const at::Tensor& tensor, int root, ReduceOperation operation) = 0;
  // input and output: size() equal parts; part p of input goes to rank p, output part p comes from rank p.
  virtual Pending all_to_all(const at::Tensor& output, const at::Tensor& input) = 0;
  // Matched in order for each ordered pair of ranks: the k-th send from a to b meets the k-th receive at b from a.
  virtual Pending send(const at::Tensor& tensor, int peer) = 0;
  virtual Pending receive(const at::Tensor& tensor, int peer) = 0;
  // Blocks the host until every member has called it.
  virtual void barrier() = 0;
};

}  // namespace strata
