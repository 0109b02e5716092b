#include <strata/error.hpp>
#include <strata/toolbox/host_backend.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace strata {

namespace {

class HostBackend final : public c10d::Backend {
 public:
  HostBackend(const GroupSetup& setup, std::unique_ptr<HostTransport> transport);
  ~HostBackend() override;

  const std::string getBackendName() const override { return "strata-" + transport_->name(); }
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
  // Fails what is under way or queued; does not wait for peers.
  void abort() override;
  // The same, and ends the thread.
  void shutdown() override;

 private:
  class QueuedWork;
  class PostedWork;
  c10::intrusive_ptr<c10d::Work> queue(c10d::OpType type, std::vector<at::Tensor> tensors, std::function<void()> move);
  void serve_queue();

  std::byte* bytes_of(const at::Tensor& tensor) const;
  const at::Tensor& only(const std::vector<at::Tensor>& tensors) const;
  Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& operation) const;

  std::unique_ptr<HostTransport> transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<QueuedWork>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

// Its bytes, if it keeps this backend's rules for a tensor; the engine's group has checked the operation's own.
std::byte* HostBackend::bytes_of(const at::Tensor& tensor) const {
  if (!tensor.is_cpu())
    throw Bug("{} moves tensors in host memory; got one on {}", transport_->name(), tensor.device().str());
  if (!tensor.is_contiguous()) throw Bug("{} moves contiguous tensors", transport_->name());
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

const at::Tensor& HostBackend::only(const std::vector<at::Tensor>& tensors) const {
  if (tensors.size() != 1) throw Bug("{} moves one tensor per operation", transport_->name());
  return tensors.front();
}

Reduction HostBackend::reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& operation) const {
  if (!reducible(tensor.scalar_type()))
    throw Bug("{} cannot reduce dtype {}; it reduces float, double, bfloat16, half, int and long", transport_->name(),
              c10::toString(tensor.scalar_type()));
  const c10d::ReduceOp::RedOpType kind = operation;
  if (kind != c10d::ReduceOp::SUM && kind != c10d::ReduceOp::MAX)
    throw Bug("{} reduces by SUM or MAX", transport_->name());
  return {tensor.scalar_type(), kind == c10d::ReduceOp::SUM ? Fold::Sum : Fold::Max};
}

// A collective in the thread's queue; it keeps its tensors alive until it has ended.
class HostBackend::QueuedWork final : public c10d::Work {
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

// A send or receive; the transport moves it, and its end is noticed by waiting.
class HostBackend::PostedWork final : public c10d::Work {
 public:
  PostedWork(int rank, c10d::OpType type, at::Tensor tensor, std::unique_ptr<HostMessage> message)
      : Work(rank, type), tensor_(std::move(tensor)), message_(std::move(message)) {}
  void synchronize() override {}
  bool wait(std::chrono::milliseconds) override {
    if (message_ != nullptr) message_->wait();
    message_.reset();
    finish();
    return true;
  }

 private:
  at::Tensor tensor_;
  std::unique_ptr<HostMessage> message_;
};

HostBackend::HostBackend(const GroupSetup& setup, std::unique_ptr<HostTransport> transport)
    : Backend(setup.rank, setup.size), transport_(std::move(transport)), thread_([this] { serve_queue(); }) {}

HostBackend::~HostBackend() {
  shutdown();
}

void HostBackend::abort() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  transport_->abort();
}

void HostBackend::shutdown() {
  abort();
  if (thread_.joinable()) thread_.join();
}

void HostBackend::serve_queue() {
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

c10::intrusive_ptr<c10d::Work> HostBackend::queue(c10d::OpType type, std::vector<at::Tensor> tensors,
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

c10::intrusive_ptr<c10d::Work> HostBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions&) {
  std::byte* to = bytes_of(output);
  const std::byte* from = bytes_of(input);
  const auto bytes = static_cast<std::int64_t>(input.nbytes());
  return queue(c10d::OpType::_ALLGATHER_BASE, {output, input},
               [=, this] { transport_->collectives().all_gather(to, from, bytes); });
}

c10::intrusive_ptr<c10d::Work> HostBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::ReduceScatterOptions& options) {
  std::byte* to = bytes_of(output);
  const std::byte* from = bytes_of(input);
  const std::int64_t elements = output.numel();
  const Reduction reduction = reduction_of(output, options.reduceOp);
  return queue(c10d::OpType::_REDUCE_SCATTER_BASE, {output, input},
               [=, this] { transport_->collectives().reduce_scatter(to, from, elements, reduction); });
}

c10::intrusive_ptr<c10d::Work> HostBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                      const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  std::byte* data = bytes_of(tensor);
  const std::int64_t elements = tensor.numel();
  const Reduction reduction = reduction_of(tensor, options.reduceOp);
  return queue(c10d::OpType::ALLREDUCE, {tensor},
               [=, this] { transport_->collectives().all_reduce(data, elements, reduction); });
}

c10::intrusive_ptr<c10d::Work> HostBackend::reduce(std::vector<at::Tensor>& tensors,
                                                   const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  std::byte* data = bytes_of(tensor);
  const std::int64_t elements = tensor.numel();
  const auto root = static_cast<int>(options.rootRank);
  const Reduction reduction = reduction_of(tensor, options.reduceOp);
  return queue(c10d::OpType::REDUCE, {tensor},
               [=, this] { transport_->collectives().reduce(data, elements, root, reduction); });
}

c10::intrusive_ptr<c10d::Work> HostBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                      const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors);
  std::byte* data = bytes_of(tensor);
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  const auto root = static_cast<int>(options.rootRank);
  return queue(c10d::OpType::BROADCAST, {tensor},
               [=, this] { transport_->collectives().broadcast(data, bytes, root); });
}

c10::intrusive_ptr<c10d::Work> HostBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_splits,
                                                          std::vector<int64_t>& input_splits,
                                                          const c10d::AllToAllOptions&) {
  if (!output_splits.empty() || !input_splits.empty()) throw Bug("{} exchanges equal parts only", transport_->name());
  std::byte* to = bytes_of(output);
  const std::byte* from = bytes_of(input);
  const auto bytes = static_cast<std::int64_t>(input.nbytes()) / size_;
  return queue(c10d::OpType::ALLTOALL_BASE, {output, input},
               [=, this] { transport_->collectives().all_to_all(to, from, bytes); });
}

c10::intrusive_ptr<c10d::Work> HostBackend::send(std::vector<at::Tensor>& tensors, int peer, int) {
  const at::Tensor& tensor = only(tensors);
  return c10::make_intrusive<PostedWork>(
      rank_, c10d::OpType::SEND, tensor,
      transport_->send(peer, bytes_of(tensor), static_cast<std::int64_t>(tensor.nbytes())));
}

c10::intrusive_ptr<c10d::Work> HostBackend::recv(std::vector<at::Tensor>& tensors, int peer, int) {
  const at::Tensor& tensor = only(tensors);
  return c10::make_intrusive<PostedWork>(
      rank_, c10d::OpType::RECV, tensor,
      transport_->receive(peer, bytes_of(tensor), static_cast<std::int64_t>(tensor.nbytes())));
}

c10::intrusive_ptr<c10d::Work> HostBackend::barrier(const c10d::BarrierOptions&) {
  return queue(c10d::OpType::BARRIER, {}, [this] { transport_->collectives().barrier(); });
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_host_backend(const GroupSetup& setup, std::unique_ptr<HostTransport> transport) {
  return c10::make_intrusive<HostBackend>(setup, std::move(transport));
}

}  // namespace strata
