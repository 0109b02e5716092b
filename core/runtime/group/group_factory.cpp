// [Note: The one file with c10d] What knows c10d outside of communicator plugins: the store and the wrapper of a
// backend.
#include "runtime/group/group_factory.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <exception>
#include <iterator>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/launch/address.hpp"

namespace strata::runtime {

namespace {

using Clock = std::chrono::steady_clock;

// How long a group waits after its own deadline, so that a backend that keeps the deadline itself names the rank that
// is missing.
constexpr std::chrono::milliseconds backend_first{2000};

std::string seconds(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

// The first line of what happened, without libtorch's stack trace.
std::string reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

// ---- the store

struct StoreServer::Server {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

namespace {

c10d::TCPStoreOptions store_options(std::uint16_t port, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

// Listens on `address` only: a store on all interfaces would let anyone on the network write into it.
c10::intrusive_ptr<c10d::TCPStore> serve(const std::string& address, int port, std::chrono::milliseconds timeout) {
  launch::ListeningSocket socket(address, port);
  c10d::TCPStoreOptions options = store_options(static_cast<std::uint16_t>(socket.port()), timeout);
  options.isServer = true;
  options.masterListenFd = socket.release();
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

}  // namespace

StoreServer::StoreServer() : server_(std::make_unique<Server>()) {
  server_->store = serve("127.0.0.1", 0, std::chrono::seconds(30));
  port_ = server_->store->getPort();
}
StoreServer::~StoreServer() = default;

struct RunStore::Connection {
  c10::intrusive_ptr<c10d::Store> store;
};

RunStore::RunStore(const launch::LaunchPlace& place, std::chrono::milliseconds timeout)
    : connection_(std::make_unique<Connection>()), rank_(place.rank), size_(place.size), timeout_(timeout) {
  const std::string where = place.store_address + ":" + std::to_string(place.store_port);
  try {
    c10::intrusive_ptr<c10d::Store> store;
    if (size_ == 1)
      store = c10::make_intrusive<c10d::HashStore>();
    else if (rank_ == 0 && !place.store_served)
      store = serve(place.store_address, place.store_port, timeout);
    else if (launch::answers_within(place.store_address, place.store_port, timeout))
      store = c10::make_intrusive<c10d::TCPStore>(place.store_address,
                                                  store_options(static_cast<std::uint16_t>(place.store_port), timeout));
    else
      throw EnvironmentError("rank " + std::to_string(rank_) + " found nobody serving the run's store at " + where +
                             " within " + seconds(timeout) + "; " + (place.store_served ? "the launcher" : "rank 0") +
                             " serves it");
    connection_->store = c10::make_intrusive<c10d::PrefixStore>("strata/" + place.run_name, std::move(store));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw EnvironmentError("rank " + std::to_string(rank_) + " could not reach the run's store at " + where +
                           " within " + seconds(timeout) + ": " + reason(error));
  }
}

RunStore::~RunStore() = default;

void RunStore::set(const std::string& key, const std::string& value) {
  try {
    connection_->store->set(key, value);
  } catch (const std::exception& error) {
    throw EnvironmentError("the run's store is lost (setting '" + key + "'): " + reason(error));
  }
}

// Asks again and again instead of c10d's blocking wait, which writes warnings to standard error when it ends without an
// answer.
bool RunStore::wait_for(const std::vector<std::string>& keys) {
  const Clock::time_point end = Clock::now() + timeout_;
  std::chrono::milliseconds pause{1};
  try {
    while (!connection_->store->check(keys)) {
      if (Clock::now() >= end) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds{64});
    }
  } catch (const std::exception& error) {
    throw EnvironmentError("the run's store is lost (waiting for '" + keys.front() + "'): " + reason(error));
  }
  return true;
}

std::string RunStore::get(const std::string& key) {
  if (!wait_for({key}))
    throw EnvironmentError("no rank set '" + key + "' in the run's store within " + seconds(timeout_));
  return connection_->store->get_to_str(key);
}

void RunStore::meet(const std::string& place, const std::vector<int>& members) {
  const auto key = [&](int rank) { return "meet/" + place + "/" + std::to_string(rank); };
  set(key(rank_), "here");
  std::vector<std::string> keys;
  for (const int member : members) keys.push_back(key(member));
  if (wait_for(keys)) return;
  std::vector<int> missing;
  std::copy_if(members.begin(), members.end(), std::back_inserter(missing),
               [&](int member) { return !connection_->store->check({key(member)}); });
  throw EnvironmentError(place + ": rank " + list(missing) + " of " + std::to_string(size_) + " did not come within " +
                         seconds(timeout_) + "; look at what it printed last, or raise the timeout");
}

void RunStore::agree(const std::string& what, const std::string& text) {
  const auto key = [&](int rank) { return "agree/" + what + "/" + std::to_string(rank); };
  set(key(rank_), text);
  const auto compare = [&](int rank, const std::string& other) {
    if (other != text)
      throw EnvironmentError(what + " differ between ranks: rank " + std::to_string(rank_) + " has " + text +
                             ", rank " + std::to_string(rank) + " has " + other +
                             "; start all ranks from the same files");
  };
  if (rank_ != 0) return compare(0, get(key(0)));
  for (int rank = 1; rank < size_; ++rank) compare(rank, get(key(rank)));
}

// ---- groups

namespace {

bool receives_only(Collective collective) {
  return collective == Collective::AllGather || collective == Collective::ReduceScatter || collective == Collective::AllToAll ||
         collective == Collective::Receive;
}

bool receives(Collective collective) {
  return collective != Collective::Send && collective != Collective::Barrier;
}

// [Note: Through the host] The operation on host copies, for a communicator that moves host memory only. What is sent is copied when
// the operation starts, which blocks the host until the current stream has come so far; what arrives is copied to the device by
// wait(), on the stream that is current then.
Operation on_host(const Operation& operation) {
  const auto copy = [](const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true); };
  Operation host = operation;
  if (operation.input.defined()) host.input = copy(operation.input);
  if (!operation.output.defined()) return host;
  host.output = receives_only(operation.collective) ? at::empty(operation.output.sizes(), operation.output.options().device(at::kCPU))
                                                    : copy(operation.output);
  return host;
}

class BackendGroup final : public CheckedGroup {
 public:
  BackendGroup(const GroupRequest& request, int rank, c10::intrusive_ptr<c10d::Backend> backend,
               const GroupSettings& settings, bool through_host)
      : CheckedGroup(request.name, rank, request.members),
        backend_(std::move(backend)),
        device_(settings.device),
        through_host_(through_host),
        timeout_(settings.timeout) {}

  ~BackendGroup() override {
    try {
      backend_->shutdown();
    } catch (const std::exception&) {  // the run is over for this group either way
    }
  }

  // Waits for `work`, the host until its end on the CPU, the current stream elsewhere.
  void finish(const Operation& operation, c10d::Work& work) {
    const Clock::time_point begin = Clock::now();
    const std::chrono::milliseconds limit = timeout_ + backend_first;
    bool ended = false;
    std::string problem;
    try {
      ended = work.wait(device_.is_cpu() || through_host_ ? limit : kNoTimeout);
    } catch (const std::exception& error) {
      const bool late = Clock::now() - begin >= limit;
      problem = late ? "no answer from the others for " + seconds(timeout_) : reason(error);
    }
    add_waited(std::chrono::duration<double>(Clock::now() - begin).count());
    if (!ended) fail(operation, problem.empty() ? "the operation was given up" : problem);
  }

 private:
  [[noreturn]] void fail(const Operation& operation, const std::string& problem) const {
    throw EnvironmentError(describe(operation) + ": " + problem + "; the group's members are ranks " + list(members()) +
                           " of the run: look at what the others printed last");
  }

  Pending start(const Operation& operation) override;
  c10::intrusive_ptr<c10d::Work> issue(const Operation& operation);

  c10::intrusive_ptr<c10d::Backend> backend_;
  at::Device device_;
  bool through_host_;
  std::chrono::milliseconds timeout_;
};

class BackendWork final : public PendingWork {
 public:
  // `moved` is what the backend moves: the operation itself, or its copy on the host.
  BackendWork(BackendGroup& group, Operation operation, Operation moved, c10::intrusive_ptr<c10d::Work> work)
      : group_(group), operation_(std::move(operation)), moved_(std::move(moved)), work_(std::move(work)) {}
  void wait() override {
    group_.finish(operation_, *work_);
    if (moved_.output.is_same(operation_.output) || !receives(operation_.collective)) return;
    const c10::NoGradGuard no_grad;
    operation_.output.copy_(moved_.output);
  }

 private:
  BackendGroup& group_;
  Operation operation_;  // holds the tensors
  Operation moved_;
  c10::intrusive_ptr<c10d::Work> work_;
};

c10d::ReduceOp reduce_op(const Operation& operation) {
  return operation.reduction == ReduceOperation::Sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
}

Pending BackendGroup::start(const Operation& operation) {
  if (operation.output.defined() && operation.output.device().type() != device_.type())
    throw Bug(describe(operation) + ": the tensor is on " + operation.output.device().str() +
              ", the group moves tensors on " + device_.str());
  const Operation moved = through_host_ ? on_host(operation) : operation;
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = issue(moved);
  } catch (const Bug&) {
    throw;
  } catch (const std::exception& error) {
    fail(operation, reason(error));
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

}  // namespace

std::unique_ptr<CheckedGroup> single_group(const std::string& name, int rank) {
  return std::make_unique<SingleGroup>(name, 0, std::vector<int>{rank});
}

namespace {
// Whether the communicator's tensors are host copies of the run's.
bool goes_through_host(const Communicator& communicator, at::Device device) {
  const std::vector<std::string> types = communicator.device_types();
  const auto moves = [&](c10::DeviceType type) {
    return std::any_of(types.begin(), types.end(), [&](const std::string& name) { return at::Device(name).type() == type; });
  };
  if (moves(device.type())) return false;
  if (moves(at::kCPU)) return true;
  std::string known;
  for (const std::string& type : types) known += (known.empty() ? "" : ", ") + type;
  throw UserError("the communicator moves tensors on " + known + ", and the run's device is " + device.str() +
                  ": choose another communicator, or the device it is for");
}
}  // namespace

std::unique_ptr<CheckedGroup> GroupFactory::make(const GroupRequest& request) {
  if (request.members.size() == 1) return single_group(request.name, settings_.rank);
  const auto place = std::find(request.members.begin(), request.members.end(), settings_.rank);
  strata_check(place != request.members.end(), "a rank asked for a group it is not a member of");
  strata_check(settings_.communicator != nullptr, "a group of several ranks needs a communicator");
  const bool through_host = goes_through_host(*settings_.communicator, settings_.device) || settings_.through_host;
  store_->meet("connecting group " + request.name, request.members);
  GroupSetup setup;
  setup.name = request.name;
  setup.rank = static_cast<int>(place - request.members.begin());
  setup.size = static_cast<int>(request.members.size());
  setup.timeout = settings_.timeout;
  setup.interface_address = settings_.interface_address;
  setup.local_rank = settings_.local_rank;
  const auto store = c10::make_intrusive<c10d::PrefixStore>("group/" + request.name, store_->connection().store);
  return std::make_unique<BackendGroup>(request, setup.rank, settings_.communicator->connect(store, setup), settings_, through_host);
}

}  // namespace strata::runtime
