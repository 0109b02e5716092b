#include <strata/checked_group.hpp>
#include <strata/communicator.hpp>
#include <strata/error.hpp>

#include <exception>
#include <numeric>
#include <utility>

namespace strata {

const char* to_string(Collective collective) {
  static constexpr std::array<const char*, collective_count> names{
      "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all", "send", "receive", "barrier"};
  return names.at(static_cast<std::size_t>(collective));
}

std::int64_t logical_bytes(Collective collective, std::int64_t buffer, int size) {
  strata_check(size >= 1 && buffer >= 0, "logical_bytes needs at least one rank and a buffer that is not negative");
  const std::int64_t others = buffer * (size - 1) / size;
  switch (collective) {
    case Collective::AllGather:
    case Collective::ReduceScatter:
    case Collective::AllToAll:
    case Collective::Broadcast:
    case Collective::Reduce:
      return others;
    case Collective::AllReduce:
      return 2 * buffer * (size - 1) / size;
    case Collective::Send:
      return buffer;
    case Collective::Receive:
    case Collective::Barrier:
      return 0;
  }
  throw Bug("unknown collective");
}

PendingWork::~PendingWork() = default;
Group::~Group() = default;
Communicator::~Communicator() = default;
CheckedGroup::~CheckedGroup() = default;
CountingGroup::~CountingGroup() = default;

void Pending::wait() {
  if (const std::unique_ptr<PendingWork> work = std::exchange(work_, nullptr)) work->wait();
}

Pending& Pending::operator=(Pending&& other) {
  if (this == &other) return *this;
  wait();
  work_ = std::move(other.work_);
  return *this;
}

// Waits so that no operation outlives the use of its tensors. An error is not lost by being swallowed here: after one,
// every later operation of the group fails too. While another exception passes it does not wait: the run is ending.
Pending::~Pending() {
  if (work_ == nullptr || std::uncaught_exceptions() > 0) return;
  try {
    wait();
  } catch (const std::exception&) {
  }
}

std::int64_t Traffic::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i] += other.calls[i];
    bytes[i] += other.bytes[i];
  }
  waited_s += other.waited_s;
  return *this;
}

CheckedGroup::CheckedGroup(std::string name, int rank, std::vector<int> members)
    : name_(std::move(name)),
      rank_(rank),
      members_(std::move(members)),
      sends_(members_.size()),
      receives_(members_.size()) {
  if (rank_ < 0 || rank_ >= size()) throw Bug("group {} has {} members, so it has no rank {}", name_, size(), rank_);
}

std::string CheckedGroup::describe(const Operation& operation) const {
  std::string text = to_string(operation.collective);
  if (operation.number > 0) text += format(" #{}", operation.number);  // 0: refused before it was numbered
  if (operation.collective == Collective::Send) text += format(" to rank {}", operation.peer);
  if (operation.collective == Collective::Receive) text += format(" from rank {}", operation.peer);
  return format("{} on group {} (rank {} of {})", text, name_, rank_, size());
}

void CheckedGroup::refuse(const Operation& operation, const std::string& rule) const {
  throw Bug("{}: {}", describe(operation), rule);
}

void CheckedGroup::check_tensor(const Operation& operation, const at::Tensor& tensor, const char* role) const {
  if (!tensor.defined()) refuse(operation, std::string(role) + " is an undefined tensor");
  if (!tensor.is_contiguous()) refuse(operation, std::string(role) + " is not contiguous");
}

namespace {
const std::byte* address(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}
}  // namespace

// `whole` is size() times `part`; where their memory overlaps, `part` must be this rank's range of `whole`.
void CheckedGroup::check_parts(const Operation& operation, const at::Tensor& whole, const at::Tensor& part) const {
  check_tensor(operation, whole, "the whole tensor");
  check_tensor(operation, part, "the part");
  if (whole.scalar_type() != part.scalar_type() || whole.device() != part.device())
    refuse(operation, "both tensors must have one dtype and device");
  if (whole.numel() != size() * part.numel())
    refuse(operation, "the whole has " + std::to_string(whole.numel()) + " elements; the rule is group size x part = " +
                          std::to_string(size()) + " x " + std::to_string(part.numel()));
  if (whole.is_meta() || whole.numel() == 0) return;
  const std::byte* begin = address(whole);
  const auto bytes = static_cast<std::ptrdiff_t>(part.nbytes());
  const bool apart = address(part) + bytes <= begin || address(part) >= begin + size() * bytes;
  if (!apart && address(part) != begin + rank_ * bytes)
    refuse(operation, "the part overlaps the whole, but is not this rank's range of it");
}

void CheckedGroup::check_peer(const Operation& operation) const {
  const bool pair = operation.collective == Collective::Send || operation.collective == Collective::Receive;
  if (operation.peer < 0 || operation.peer >= size())
    refuse(operation, "there is no rank " + std::to_string(operation.peer) + " in the group");
  if (pair && operation.peer == rank_) refuse(operation, "a rank cannot send to itself");
}

std::int64_t& CheckedGroup::counter(const Operation& operation) {
  const auto peer = static_cast<std::size_t>(operation.peer);
  if (operation.collective == Collective::Send) return sends_.at(peer);
  if (operation.collective == Collective::Receive) return receives_.at(peer);
  return collectives_;
}

// Counts and starts a checked operation. One without elements is counted, numbered and done.
Pending CheckedGroup::run(Operation operation) {
  const auto index = static_cast<std::size_t>(operation.collective);
  const bool whole_is_input = operation.collective == Collective::ReduceScatter;
  const at::Tensor& whole = whole_is_input ? operation.input : operation.output;
  const std::int64_t bytes = whole.defined() ? static_cast<std::int64_t>(whole.nbytes()) : 0;
  operation.number = ++counter(operation);
  traffic_.calls[index] += 1;
  traffic_.bytes[index] += logical_bytes(operation.collective, bytes, size());
  if (bytes == 0 && operation.collective != Collective::Barrier) return {};
  return start(operation);
}

Pending CheckedGroup::all_gather(const at::Tensor& output, const at::Tensor& input) {
  const Operation operation{Collective::AllGather, 0, output, input};
  check_parts(operation, output, input);
  return run(operation);
}

Pending CheckedGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOperation reduction) {
  const Operation operation{Collective::ReduceScatter, 0, output, input, -1, reduction};
  check_parts(operation, input, output);
  return run(operation);
}

Pending CheckedGroup::all_reduce(const at::Tensor& tensor, ReduceOperation reduction) {
  const Operation operation{Collective::AllReduce, 0, tensor, {}, -1, reduction};
  check_tensor(operation, tensor, "the tensor");
  return run(operation);
}

Pending CheckedGroup::broadcast(const at::Tensor& tensor, int root) {
  const Operation operation{Collective::Broadcast, 0, tensor, {}, root};
  check_tensor(operation, tensor, "the tensor");
  check_peer(operation);
  return run(operation);
}

Pending CheckedGroup::reduce(const at::Tensor& tensor, int root, ReduceOperation reduction) {
  const Operation operation{Collective::Reduce, 0, tensor, {}, root, reduction};
  check_tensor(operation, tensor, "the tensor");
  check_peer(operation);
  return run(operation);
}

Pending CheckedGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  const Operation operation{Collective::AllToAll, 0, output, input};
  check_tensor(operation, output, "output");
  check_tensor(operation, input, "input");
  if (output.scalar_type() != input.scalar_type() || output.device() != input.device() ||
      output.numel() != input.numel())
    refuse(operation, "input and output must have one dtype, device and number of elements");
  if (output.numel() % size() != 0)
    refuse(operation,
           std::to_string(output.numel()) + " elements do not divide into " + std::to_string(size()) + " parts");
  if (!output.is_meta() && output.numel() > 0 && address(output) < address(input) + input.nbytes() &&
      address(input) < address(output) + output.nbytes())
    refuse(operation, "input and output overlap");
  return run(operation);
}

Pending CheckedGroup::send(const at::Tensor& tensor, int peer) {
  const Operation operation{Collective::Send, 0, tensor, {}, peer};
  check_tensor(operation, tensor, "the tensor");
  check_peer(operation);
  return run(operation);
}

Pending CheckedGroup::receive(const at::Tensor& tensor, int peer) {
  const Operation operation{Collective::Receive, 0, tensor, {}, peer};
  check_tensor(operation, tensor, "the tensor");
  check_peer(operation);
  return run(operation);
}

void CheckedGroup::barrier() {
  run({Collective::Barrier, 0}).wait();
}

Pending CountingGroup::start(const Operation&) {
  return {};
}

}  // namespace strata
