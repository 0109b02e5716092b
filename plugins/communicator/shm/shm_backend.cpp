#include "shm_backend.hpp"

#include <strata/error.hpp>

#include <utility>

namespace strata::shm_communicator {

namespace {

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

// This backend's rules for a tensor; the engine's group has checked the operation's own.
const at::Tensor& checked(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) throw Bug("shm moves tensors in host memory; got one on " + tensor.device().str());
  strata_check(tensor.is_contiguous(), "shm moves contiguous tensors");
  return tensor;
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
  strata_check(tensors.size() == 1, "shm moves one tensor per operation");
  return checked(tensors.front());
}

Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& operation) {
  if (!reducible(tensor.scalar_type()))
    throw Bug(std::string("shm cannot reduce dtype ") + c10::toString(tensor.scalar_type()) +
              "; it reduces float, double, bfloat16, half, int and long");
  const c10d::ReduceOp::RedOpType kind = operation;
  strata_check(kind == c10d::ReduceOp::SUM || kind == c10d::ReduceOp::MAX, "shm reduces by SUM or MAX");
  return {tensor.scalar_type(), kind == c10d::ReduceOp::SUM ? Fold::Sum : Fold::Max};
}

}  // namespace

// A collective in the thread's queue; it keeps its tensors alive until it has ended.
class ShmBackend::QueuedWork final : public c10d::Work {
 public:
  QueuedWork(int rank, c10d::OpType type, std::vector<at::Tensor> tensors, std::function<void()> move)
      : Work(rank, type), tensors_(std::move(tensors)), move_(std::move(move)) {}
  void synchronize() override {}
  std::vector<at::Tensor> result() override { return tensors_; }

  // Runs it, or fails it with an earlier error; returns the error that operations after it fail with.
  std::exception_ptr run(std::exception_ptr error) {
    try {
      if (error == nullptr) move_();
    } catch (...) {
      error = std::current_exception();
    }
    move_ = nullptr;
    finish(error);
    return error;
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::function<void()> move_;
};

class ShmBackend::PostedWork final : public c10d::Work {
 public:
  PostedWork(int rank, c10d::OpType type, at::Tensor tensor, ShmPairs& pairs, std::shared_ptr<PairMessage> message)
      : Work(rank, type), tensor_(std::move(tensor)), pairs_(pairs), message_(std::move(message)) {}
  void synchronize() override {}
  bool wait(std::chrono::milliseconds) override {
    if (message_ != nullptr) pairs_.wait(*message_);
    message_.reset();
    finish();
    return true;
  }

 private:
  at::Tensor tensor_;
  ShmPairs& pairs_;
  std::shared_ptr<PairMessage> message_;
};

ShmBackend::ShmBackend(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup, std::int64_t slot_bytes,
                       std::int64_t ring_bytes)
    : Backend(setup.rank, setup.size),
      arena_(store, setup, slot_bytes, ring_bytes),
      pairs_(arena_),
      collectives_(arena_),
      thread_([this] { serve_queue(); }) {}

ShmBackend::~ShmBackend() {
  shutdown();
}

void ShmBackend::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  arena_.abort();
  pairs_.stop();
  if (thread_.joinable()) thread_.join();
}

void ShmBackend::serve_queue() {
  std::exception_ptr error;
  while (true) {
    c10::intrusive_ptr<QueuedWork> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
      if (closing_ && error == nullptr) error = std::make_exception_ptr(EnvironmentError("the group is shut down"));
    }
    error = work->run(error);
  }
}

c10::intrusive_ptr<c10d::Work> ShmBackend::queue(c10d::OpType type, std::vector<at::Tensor> tensors,
                                                 std::function<void()> move) {
  auto work = c10::make_intrusive<QueuedWork>(rank_, type, std::move(tensors), std::move(move));
  {
    const std::lock_guard lock(mutex_);
    if (closing_) throw EnvironmentError("the group is shut down");
    queue_.push_back(work);
  }
  changed_.notify_all();
  return work;
}

c10::intrusive_ptr<c10d::Work> ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::AllgatherOptions&) {
  std::byte* to = bytes_of(checked(output));
  const std::byte* from = bytes_of(checked(input));
  const auto bytes = static_cast<std::int64_t>(input.nbytes());
  return queue(c10d::OpType::_ALLGATHER_BASE, {output, input}, [=, this] { collectives_.all_gather(to, from, bytes); });
}

c10::intrusive_ptr<c10d::Work> ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::ReduceScatterOptions& options) {
  std::byte* to = bytes_of(checked(output));
  const std::byte* from = bytes_of(checked(input));
  const std::int64_t elements = output.numel();
  const Reduction reduction = reduction_of(output, options.reduceOp);
  return queue(c10d::OpType::_REDUCE_SCATTER_BASE, {output, input},
               [=, this] { collectives_.reduce_scatter(to, from, elements, reduction); });
}

c10::intrusive_ptr<c10d::Work> ShmBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                     const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  std::byte* data = bytes_of(tensor);
  const std::int64_t elements = tensor.numel();
  const Reduction reduction = reduction_of(tensor, options.reduceOp);
  return queue(c10d::OpType::ALLREDUCE, {tensor}, [=, this] { collectives_.all_reduce(data, elements, reduction); });
}

c10::intrusive_ptr<c10d::Work> ShmBackend::reduce(std::vector<at::Tensor>& tensors,
                                                  const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  std::byte* data = bytes_of(tensor);
  const std::int64_t elements = tensor.numel();
  const auto root = static_cast<int>(options.rootRank);
  const Reduction reduction = reduction_of(tensor, options.reduceOp);
  return queue(c10d::OpType::REDUCE, {tensor}, [=, this] { collectives_.reduce(data, elements, root, reduction); });
}

c10::intrusive_ptr<c10d::Work> ShmBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                     const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors);
  std::byte* data = bytes_of(tensor);
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  const auto root = static_cast<int>(options.rootRank);
  return queue(c10d::OpType::BROADCAST, {tensor}, [=, this] { collectives_.broadcast(data, bytes, root); });
}

c10::intrusive_ptr<c10d::Work> ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                         std::vector<int64_t>& output_splits,
                                                         std::vector<int64_t>& input_splits,
                                                         const c10d::AllToAllOptions&) {
  strata_check(output_splits.empty() && input_splits.empty(), "shm exchanges equal parts only");
  std::byte* to = bytes_of(checked(output));
  const std::byte* from = bytes_of(checked(input));
  const auto bytes = static_cast<std::int64_t>(input.nbytes()) / size_;
  return queue(c10d::OpType::ALLTOALL_BASE, {output, input}, [=, this] { collectives_.all_to_all(to, from, bytes); });
}

c10::intrusive_ptr<c10d::Work> ShmBackend::send(std::vector<at::Tensor>& tensors, int peer, int) {
  const at::Tensor& tensor = only(tensors);
  return c10::make_intrusive<PostedWork>(
      rank_, c10d::OpType::SEND, tensor, pairs_,
      pairs_.send(peer, bytes_of(tensor), static_cast<std::int64_t>(tensor.nbytes())));
}

c10::intrusive_ptr<c10d::Work> ShmBackend::recv(std::vector<at::Tensor>& tensors, int peer, int) {
  const at::Tensor& tensor = only(tensors);
  return c10::make_intrusive<PostedWork>(
      rank_, c10d::OpType::RECV, tensor, pairs_,
      pairs_.receive(peer, bytes_of(tensor), static_cast<std::int64_t>(tensor.nbytes())));
}

c10::intrusive_ptr<c10d::Work> ShmBackend::barrier(const c10d::BarrierOptions&) {
  return queue(c10d::OpType::BARRIER, {}, [this] { collectives_.barrier(); });
}

}  // namespace strata::shm_communicator
