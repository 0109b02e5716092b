#include "group/group_factory.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "plugins/machine_error.hpp"
#include "plugins/shutdown_watch.hpp"
#include "text/first_of.hpp"

namespace strata::group {

namespace {

bool has_root(const Operation& operation) {
  return operation.collective == Collective::Broadcast || operation.collective == Collective::Reduce;
}

bool is_message(const Operation& operation) {
  return operation.collective == Collective::Send || operation.collective == Collective::Receive;
}

bool receives_only(Collective collective) {
  return collective == Collective::AllGather || collective == Collective::ReduceScatter ||
         collective == Collective::AllToAll || collective == Collective::Receive;
}

// [Note: Through the host] For a communicator that only moves host memory, the operation runs on host copies. Inputs
// are copied at the start, which blocks the host until the current stream has reached that point; wait() copies outputs
// to the device on the stream that is current then.
Operation on_host(const Operation& operation) {
  const auto copy = [](const at::Tensor& tensor) {
    return tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  };
  Operation host = operation;
  if (operation.input.defined()) host.input = copy(operation.input);
  if (!operation.output.defined()) return host;
  host.output = receives_only(operation.collective)
                    ? at::empty(operation.output.sizes(), operation.output.options().device(at::kCPU))
                    : copy(operation.output);
  return host;
}

void close(c10d::Backend& backend) {
  try {
    backend.shutdown();
  } catch (const std::exception&) {  // it is closed either way
  }
}

class BackendGroup final : public CheckedGroup {
 public:
  BackendGroup(const GroupRequest& request, int rank, c10::intrusive_ptr<c10d::Backend> backend, Board& board,
               at::Device device, bool through_host)
      : CheckedGroup(request.name, rank, request.members),
        backend_(std::move(backend)),
        board_(board),
        watched_(board_.watch([backend = backend_] { backend->abort(); })),
        device_(device),
        through_host_(through_host) {}

  ~BackendGroup() override {
    board_.unwatch(watched_);
    close(*backend_);
  }

  // Waits for `work`: on the CPU the host waits, on other devices the current stream. There is no timeout; the board
  // ends the wait.
  void finish(const Operation& operation, c10d::Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    bool ended = false;
    std::string problem = "the operation was aborted";
    try {
      const plugins::WaitForRanks watched;
      const Board::Waiting waiting(board_, call_of(operation), needed_by(operation));
      ended = work.wait(kNoTimeout);
    } catch (const std::exception& error) {
      problem = plugins::first_line(error);
    }
    add_waited(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (!ended) fail(operation, problem);
  }

 private:
  [[noreturn]] void fail(const Operation& operation, const std::string& problem) const {
    board_.fail("rank " + std::to_string(members().at(static_cast<std::size_t>(rank()))) + ": " + describe(operation) +
                ": " + problem + "; the group consists of " + ranks_named(members()) +
                "; see the last output of the others");
  }

  Call call_of(const Operation& operation) const;
  std::vector<int> needed_by(const Operation& operation) const;
  Pending start(const Operation& operation) override;
  c10::intrusive_ptr<c10d::Work> issue(const Operation& operation);

  c10::intrusive_ptr<c10d::Backend> backend_;
  Board& board_;
  std::uint64_t watched_;
  at::Device device_;
  bool through_host_;
};

// The description of the operation, equal on all members.
Call BackendGroup::call_of(const Operation& operation) const {
  const at::Tensor& whole = operation.collective == Collective::ReduceScatter ? operation.input : operation.output;
  Call call{name(), to_string(operation.collective), operation.number,
            whole.defined() ? static_cast<std::int64_t>(whole.nbytes()) : 0};
  if (operation.collective == Collective::ReduceScatter || operation.collective == Collective::AllReduce)
    call.detail = operation.reduction == ReduceOperation::Sum ? "sum" : "max";
  if (has_root(operation)) call.detail = format("root {}", operation.peer);
  if (is_message(operation)) {
    const bool sends = operation.collective == Collective::Send;
    call.from = sends ? rank() : operation.peer;
    call.to = sends ? operation.peer : rank();
  }
  return call;
}

// The ranks without which the operation cannot end on this rank. A broadcast or reduce needs only the root, unless this
// rank is the root.
std::vector<int> BackendGroup::needed_by(const Operation& operation) const {
  if (is_message(operation) || (has_root(operation) && operation.peer != rank()))
    return {members().at(static_cast<std::size_t>(operation.peer))};
  return members();
}

class BackendWork final : public PendingWork {
 public:
  // `moved` is the operation for the backend: the original, or its copy on the host.
  BackendWork(BackendGroup& group, Operation operation, Operation moved, c10::intrusive_ptr<c10d::Work> work)
      : group_(group), operation_(std::move(operation)), moved_(std::move(moved)), work_(std::move(work)) {}
  void wait() override {
    group_.finish(operation_, *work_);
    if (moved_.output.is_same(operation_.output) || operation_.collective == Collective::Send) return;
    const c10::NoGradGuard no_grad;
    operation_.output.copy_(moved_.output);
  }

 private:
  BackendGroup& group_;
  Operation operation_;  // keeps the tensors alive
  Operation moved_;
  c10::intrusive_ptr<c10d::Work> work_;
};

c10d::ReduceOp reduce_op(const Operation& operation) {
  return operation.reduction == ReduceOperation::Sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
}

Pending BackendGroup::start(const Operation& operation) {
  if (operation.output.defined() && operation.output.device().type() != device_.type())
    throw Bug("{}: the tensor is on {}, the group moves tensors on {}", describe(operation),
              operation.output.device().str(), device_.str());
  const Operation moved = through_host_ ? on_host(operation) : operation;
  c10::intrusive_ptr<c10d::Work> work;
  board_.begins(call_of(operation));
  try {
    work = issue(moved);
  } catch (const Bug&) {
    throw;
  } catch (const std::exception& error) {
    fail(operation, plugins::first_line(error));
  }
  return Pending(std::make_unique<BackendWork>(*this, operation, moved, std::move(work)));
}

c10::intrusive_ptr<c10d::Work> BackendGroup::issue(const Operation& operation) {
  at::Tensor output = operation.output;
  at::Tensor input = operation.input;
  std::vector<at::Tensor> tensors{output};
  std::vector<int64_t> equal_parts;
  switch (operation.collective) {
    case Collective::AllGather:
      return backend_->_allgather_base(output, input);
    case Collective::ReduceScatter:
      return backend_->_reduce_scatter_base(output, input, {.reduceOp = reduce_op(operation)});
    case Collective::AllReduce: {
      c10d::AllreduceOptions options;
      options.reduceOp = reduce_op(operation);
      return backend_->allreduce(tensors, options);
    }
    case Collective::Broadcast:
      return backend_->broadcast(tensors, {.rootRank = operation.peer});
    case Collective::Reduce:
      return backend_->reduce(tensors, {.reduceOp = reduce_op(operation), .rootRank = operation.peer});
    case Collective::AllToAll:
      return backend_->alltoall_base(output, input, equal_parts, equal_parts);
    case Collective::Send:
      return backend_->send(tensors, operation.peer, 0);
    case Collective::Receive:
      return backend_->recv(tensors, operation.peer, 0);
    case Collective::Barrier:
      return backend_->barrier();
  }
  throw Bug("unknown collective");
}

class SingleGroup final : public CheckedGroup {
 public:
  using CheckedGroup::CheckedGroup;

 private:
  Pending start(const Operation& operation) override {
    if (operation.input.defined() && operation.input.const_data_ptr() != operation.output.const_data_ptr())
      operation.output.view(-1).copy_(operation.input.view(-1));
    return {};
  }
};

// True if tensors must be copied to the host for this communicator.
bool goes_through_host(const Communicator& communicator, at::Device device) {
  const std::vector<std::string> types = communicator.device_types();
  const auto moves = [&](c10::DeviceType type) {
    return std::ranges::any_of(types, [&](const std::string& name) { return at::Device(name).type() == type; });
  };
  if (moves(device.type())) return false;
  if (moves(at::kCPU)) return true;
  throw UserError(
      "the communicator moves tensors on {}, but the run's device is {}; choose another communicator or device",
      text::first_of(types, types.size()), device.str());
}

}  // namespace

std::unique_ptr<CheckedGroup> single_group(const std::string& name, int rank) {
  return std::make_unique<SingleGroup>(name, 0, std::vector<int>{rank});
}

void GroupFactory::wait_for_device(const std::function<void()>& block) {
  store_->board().wait_for_last("world", block);
}

void GroupFactory::agree(const std::string& what, const std::string& text, const std::string& remedy) {
  store_->agree(what, text, remedy);
}

std::unique_ptr<CheckedGroup> GroupFactory::make(const GroupRequest& request) {
  if (request.members.size() == 1) return single_group(request.name, settings_.rank);
  const auto place = std::find(request.members.begin(), request.members.end(), settings_.rank);
  strata_check(place != request.members.end(), "a rank asked for a group it is not a member of");
  strata_check(settings_.communicator != nullptr, "a group of several ranks needs a communicator");
  const bool through_host = goes_through_host(*settings_.communicator, settings_.device) || settings_.through_host;
  store_->meet("connecting group " + request.name, request.members);
  const GroupSetup setup{.name = request.name,
                         .rank = static_cast<int>(place - request.members.begin()),
                         .size = static_cast<int>(request.members.size()),
                         .timeout = settings_.timeout,
                         .interface_address = settings_.interface_address.empty() ? store_->interface_address()
                                                                                  : settings_.interface_address,
                         .local_rank = settings_.local_rank};
  const auto store = c10::make_intrusive<c10d::PrefixStore>("group/" + request.name, store_->store());
  const auto connected = [&] {
    try {
      return settings_.communicator->connect(store, setup);
    } catch (const EnvironmentError&) {
      store_->board().check();  // a verdict of the run names the cause
      throw;
    }
  };
  const c10::intrusive_ptr<c10d::Backend> backend = connected();
  closes_.push_back([weak = c10::weak_intrusive_ptr<c10d::Backend>(backend)] {
    if (const auto still = weak.lock()) close(*still);
  });
  return std::make_unique<BackendGroup>(request, setup.rank, backend, store_->board(), settings_.device, through_host);
}

void GroupFactory::stop() {
  store_->board().give_up();
  for (const std::function<void()>& close : closes_) close();
}

}  // namespace strata::group
