// Communication as plugins see it: a fixed, ordered set of ranks and the operations among them. The engine creates
// groups from the communicator plugin, counts their bytes, checks the order of calls, and aborts them when a peer will
// never make the matching call.
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

// Returns the bytes that one rank must send in the best algorithm for `collective`. `buffer` is the size of the whole
// (unsharded) buffer in bytes, `size` the number of ranks N. AllGather, ReduceScatter, AllToAll: (N-1)/N of the buffer;
// AllReduce: twice that; Send: the buffer; Broadcast and Reduce: (N-1)/N, the average over ranks; Receive, Barrier: 0.
STRATA_EXPORT std::int64_t logical_bytes(Collective collective, std::int64_t buffer, int size);

// One pending operation. Implementations keep its tensors alive until it has ended.
class STRATA_EXPORT PendingWork {
 public:
  virtual ~PendingWork();
  // See Pending::wait.
  virtual void wait() = 0;
};

// The handle of a pending operation. Move-only. The caller must wait() before it touches the operation's tensors. The
// destructor and an assignment wait too.
class STRATA_EXPORT [[nodiscard]] Pending {
 public:
  Pending() = default;
  explicit Pending(std::unique_ptr<PendingWork> work) : work_(std::move(work)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other);
  ~Pending();
  // Makes the current stream wait for the operation; on the CPU, blocks the host until it has ended. Throws
  // EnvironmentError, with what every rank was doing, when a peer died or will never make the matching call. Does
  // nothing the second time or on an empty handle.
  void wait();
  bool waiting() const { return work_ != nullptr; }

 private:
  std::unique_ptr<PendingWork> work_;
};

// All operations except send() and receive() are [collective] over the group: every member makes the same calls with
// the same sizes in the same order. `root` and `peer` are ranks within the group. Tensors are contiguous and on the
// run's device. Until wait(), do not write to them; inputs may be read. Shapes that break the operation's rule throw
// Bug. Starting an operation does not block the host.
class STRATA_EXPORT Group {
 public:
  virtual ~Group();
  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;  // this process within the group
  virtual int size() const = 0;
  // Returns the members' ranks in the run, indexed by rank in the group.
  virtual const std::vector<int>& members() const = 0;

  // Concatenates the inputs. output has size() * n elements, input n. Rank r's input goes to [r * n, (r + 1) * n) of
  // output; input may be that range of output.
  virtual Pending all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  // Sums (or takes the maximum) and scatters. input has size() * n elements, output n. output becomes the sum over
  // ranks of [rank * n, (rank + 1) * n) of input; output may be that range of input. A communicator that declares the
  // equivalence `bitwise` sums in rank order 0, 1, 2, ..., so all_reduce and reduce_scatter give bit-equal results;
  // others may sum in another order.
  virtual Pending reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOperation operation) = 0;
  // Sums (or takes the maximum) in place: every rank's tensor becomes the result.
  virtual Pending all_reduce(const at::Tensor& tensor, ReduceOperation operation) = 0;
  // Copies root's tensor into the tensors of the other ranks.
  virtual Pending broadcast(const at::Tensor& tensor, int root) = 0;
  // Sums (or takes the maximum) into root's tensor; the contents of the other ranks' tensors are unspecified
  // afterwards.
  virtual Pending reduce(const at::Tensor& tensor, int root, ReduceOperation operation) = 0;
  // Exchanges size() equal parts: part p of input goes to rank p, part p of output comes from rank p.
  virtual Pending all_to_all(const at::Tensor& output, const at::Tensor& input) = 0;
  // Sends or receives one tensor. The k-th send from rank a to rank b matches the k-th receive at b from a.
  virtual Pending send(const at::Tensor& tensor, int peer) = 0;
  virtual Pending receive(const at::Tensor& tensor, int peer) = 0;
  // Blocks the host until every member has called it.
  virtual void barrier() = 0;
};

}  // namespace strata
