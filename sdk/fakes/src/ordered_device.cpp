#include <ATen/core/function_schema.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <strata/error.hpp>
#include <strata/fakes/ordered_device.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace strata::fakes {

// The known order of work on one device.
class StreamOrder {
 public:
  static constexpr const char* host = "the host";
  static std::string name_of(StreamKind stream) {
    return stream == StreamKind::Compute         ? "Compute"
           : stream == StreamKind::Communication ? "Communication"
                                                 : "Offload";
  }

  // By stream, how many of its accesses are known to be over. The host is one of the streams: all that it starts comes
  // after what it has waited for.
  using Clock = std::map<std::string, std::int64_t>;

  void begin_on(const std::string& stream) {
    const std::lock_guard lock(mutex_);
    current_.push_back(stream);
  }
  void end_on() {
    const std::lock_guard lock(mutex_);
    current_.pop_back();
  }
  std::string current() {
    const std::lock_guard lock(mutex_);
    return current_.back();
  }

  Clock at(const std::string& stream) {
    const std::lock_guard lock(mutex_);
    return clock(stream);
  }
  // `stream` continues after that.
  void wait(const std::string& stream, const Clock& until) {
    const std::lock_guard lock(mutex_);
    join(clock(stream), until);
  }
  void synchronize() {
    const std::lock_guard lock(mutex_);
    Clock& of_host = clocks_[host];
    for (const auto& [stream, clock] : clocks_) join(of_host, clock);
  }

  // Work named `what` on `stream`, or now on the host.
  void access(const std::string& stream, const at::Tensor& tensor, bool writes, const std::string& what) {
    if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu() || tensor.numel() == 0) return;
    access(stream, range_of(tensor), tensor.storage().getWeakStorageImpl(), writes, what);
  }
  void access(const std::string& stream, const Span& memory, bool writes, const std::string& what) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
    access(stream, {begin, begin + memory.bytes}, {}, writes, what);
  }

  std::vector<std::string> races() const {
    const std::lock_guard lock(mutex_);
    return races_;
  }
  std::int64_t accesses() const {
    const std::lock_guard lock(mutex_);
    return accesses_;
  }

 private:
  using Storage = std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>>;
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
  };
  struct Access {
    Range range;
    Storage storage;  // memory that was freed since is another's
    bool writes = false;
    std::string stream;
    std::int64_t count = 0;  // of its stream
    std::string what;

    bool gone() const { return storage && storage->expired(); }
  };

  static Range range_of(const at::Tensor& tensor) {
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    std::int64_t last = 0;  // element
    for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    return {begin, begin + (static_cast<std::uintptr_t>(last) + 1) * tensor.element_size()};
  }

  static void join(Clock& clock, const Clock& other) {
    for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
  }

  // A stream continues after all that the host had waited for when it started the work.
  Clock& clock(const std::string& stream) {
    Clock& of_stream = clocks_[stream];
    if (stream != host) join(of_stream, clocks_[host]);
    return of_stream;
  }

  void access(const std::string& stream, const Range& range, Storage storage, bool writes, const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++accesses_;
    Clock& now = clock(stream);
    const std::int64_t count = ++now[stream];
    std::erase_if(earlier_, [&](const Access& one) {
      if (one.gone()) return true;
      if (one.range.end <= range.begin || range.end <= one.range.begin) return false;
      const auto known = now.find(one.stream);
      const bool ordered = known != now.end() && known->second >= one.count;
      if (!ordered && (writes || one.writes)) {
        const std::string race = what + " on " + stream + (writes ? " writes" : " reads") + " what " + one.what +
                                 " on " + one.stream + (one.writes ? " writes" : " reads") + "; nothing orders them";
        if (seen_.insert(race).second) races_.push_back(race);
      }
      // Whoever is ordered behind this access is ordered behind that one.
      return ordered && (writes || !one.writes) && range.begin <= one.range.begin && one.range.end <= range.end;
    });
    earlier_.push_back({range, std::move(storage), writes, stream, count, what});
  }

  mutable std::mutex mutex_;
  std::vector<std::string> current_{name_of(StreamKind::Compute)};
  std::map<std::string, Clock> clocks_;
  std::deque<Access> earlier_;
  std::vector<std::string> races_;
  std::set<std::string> seen_;
  std::int64_t accesses_ = 0;
};

namespace {

using Clock = StreamOrder::Clock;
constexpr const char* host = StreamOrder::host;

std::string name_of(StreamKind stream) {
  return StreamOrder::name_of(stream);
}

// An operator that makes a tensor of another's shape, or reports about it, without reading its elements.
bool ignores_elements(const std::string& name) {
  static const std::set<std::string> names{
      "aten::empty",     "aten::empty_strided",     "aten::empty_like",   "aten::zeros_like", "aten::ones_like",
      "aten::full_like", "aten::rand_like",         "aten::new_empty",    "aten::new_zeros",  "aten::new_ones",
      "aten::new_full",  "aten::new_empty_strided", "aten::set_",         "aten::resize_",    "aten::set_data",
      "aten::_version",  "aten::requires_grad_",    "aten::is_same_size", "aten::output_nr",  "aten::retain_grad",
      "aten::is_leaf",   "aten::result_type"};
  return names.contains(name);
}

thread_local std::shared_ptr<StreamOrder> order_here;
thread_local int unobserved = 0;

// Data of a fake group are not moved by the device.
class Unobserved {
 public:
  Unobserved() { ++unobserved; }
  ~Unobserved() { --unobserved; }
};

template <class Call>
void each_tensor(const c10::IValue& value, const Call& call) {
  if (value.isTensor()) call(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) call(tensor);
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) call(*tensor);
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& function) {
  if (order_here == nullptr || unobserved > 0) return nullptr;
  const std::optional<c10::FunctionSchema> schema = function.operator_schema();
  if (!schema || ignores_elements(schema->name())) return nullptr;
  const auto written = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  };
  const bool writes = std::ranges::any_of(schema->arguments(), written);
  const bool views = std::ranges::any_of(schema->returns(),
                                         [](const c10::Argument& result) { return result.alias_info() != nullptr; });
  if (views && !writes) return nullptr;
  const std::string stream = order_here->current();
  const auto inputs = function.inputs();
  for (const bool write : {false, true})  // a tensor that is read and written is in both
    for (std::size_t i = 0; i < std::min(inputs.size(), schema->arguments().size()); ++i)
      if (written(schema->arguments()[i]) == write)
        each_tensor(inputs[i],
                    [&](const at::Tensor& tensor) { order_here->access(stream, tensor, write, schema->name()); });
  return nullptr;
}

void operator_ends(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
  if (order_here == nullptr || unobserved > 0) return;
  const std::optional<c10::FunctionSchema> schema = function.operator_schema();
  if (!schema || ignores_elements(schema->name())) return;
  for (std::size_t i = 0; i < std::min(function.outputs().size(), schema->returns().size()); ++i)
    if (schema->returns()[i].alias_info() == nullptr)
      each_tensor(function.outputs()[i], [&](const at::Tensor& tensor) {
        order_here->access(order_here->current(), tensor, true, schema->name());
      });
}

// Every thread's operators, for as long as the process runs: a thread without an order ignores them.
void observe() {
  static const at::CallbackHandle handle =
      at::addGlobalCallback(at::RecordFunctionCallback(operator_begins, operator_ends)
                                .needsInputs(true)
                                .needsOutputs(true)
                                .scopes({at::RecordScope::FUNCTION}));
  static_cast<void>(handle);
}

class OrderedEvent final : public Event {
 public:
  explicit OrderedEvent(std::shared_ptr<StreamOrder> order) : order_(std::move(order)) {}
  void record(StreamKind stream) override {
    const std::lock_guard lock(mutex_);
    marked_ = order_->at(name_of(stream));
  }
  void block(StreamKind stream) override { order_->wait(name_of(stream), marked()); }
  void synchronize() override { order_->wait(host, marked()); }

 private:
  Clock marked() {
    const std::lock_guard lock(mutex_);
    return marked_;
  }
  std::shared_ptr<StreamOrder> order_;
  std::mutex mutex_;
  Clock marked_;
};

class OrderedWork final : public PendingWork {
 public:
  OrderedWork(std::shared_ptr<StreamOrder> order, Clock ended, Pending moved)
      : order_(std::move(order)), ended_(std::move(ended)), moved_(std::move(moved)) {}
  void wait() override {
    {
      const Unobserved guard;
      moved_.wait();
    }
    order_->wait(order_->current(), ended_);
  }

 private:
  std::shared_ptr<StreamOrder> order_;
  Clock ended_;
  Pending moved_;
};

Pending started(CheckedGroup& group, const Operation& operation) {
  const at::Tensor &output = operation.output, &input = operation.input;
  switch (operation.collective) {
    case Collective::AllGather:
      return group.all_gather(output, input);
    case Collective::ReduceScatter:
      return group.reduce_scatter(output, input, operation.reduction);
    case Collective::AllReduce:
      return group.all_reduce(output, operation.reduction);
    case Collective::Broadcast:
      return group.broadcast(output, operation.peer);
    case Collective::Reduce:
      return group.reduce(output, operation.peer, operation.reduction);
    case Collective::AllToAll:
      return group.all_to_all(output, input);
    case Collective::Send:
      return group.send(output, operation.peer);
    case Collective::Receive:
      return group.receive(output, operation.peer);
    case Collective::Barrier:
      group.barrier();
  }
  return {};
}

}  // namespace

OrderedDevice::OrderedDevice(std::string type) : type_(std::move(type)), order_(std::make_shared<StreamOrder>()) {
  observe();
  order_here = order_;
}

OrderedDevice::~OrderedDevice() {
  if (order_here == order_) order_here = nullptr;
}

at::Device OrderedDevice::select(int) {
  order_here = order_;
  return at::kCPU;
}

void OrderedDevice::on(StreamKind stream, const std::function<void()>& work) {
  struct Stream {
    StreamOrder& order;
    ~Stream() { order.end_on(); }
  };
  order_->begin_on(name_of(stream));
  const Stream ends{*order_};
  work();
}

std::unique_ptr<Event> OrderedDevice::make_event() {
  return std::make_unique<OrderedEvent>(order_);
}

void OrderedDevice::synchronize() {
  order_->synchronize();
}

at::Tensor OrderedDevice::host_buffer(std::int64_t bytes) {
  return at::empty({bytes}, at::kByte);
}

std::vector<std::string> OrderedDevice::races() const {
  return order_->races();
}

std::int64_t OrderedDevice::accesses() const {
  return order_->accesses();
}

OrderedGroup::OrderedGroup(std::unique_ptr<CheckedGroup> inner)
    : CheckedGroup(inner->name(), inner->rank(), inner->members()),
      inner_(std::move(inner)),
      stream_("the stream of group " + inner_->name()) {}

Pending OrderedGroup::start(const Operation& operation) {
  const at::Tensor &output = operation.output, &input = operation.input.defined() ? operation.input : output;
  if (size() == 1 && operation.collective != Collective::Barrier) {
    if (output.const_data_ptr() != input.const_data_ptr()) output.view(-1).copy_(input.view(-1));
    return {};
  }
  const std::shared_ptr<StreamOrder> order = order_here;
  if (order != nullptr && operation.collective != Collective::Barrier) {
    const std::string name = to_string(operation.collective);
    order->wait(stream_, order->at(order->current()));
    order->access(stream_, input, false, name);
    if (operation.collective != Collective::Send) order->access(stream_, output, true, name);
  }
  const Unobserved guard;
  Pending moved = started(*inner_, operation);
  if (order == nullptr) return moved;
  return Pending(std::make_unique<OrderedWork>(order, order->at(stream_), std::move(moved)));
}

HostAccesses::HostAccesses() : order_(order_here) {}

void HostAccesses::reads(Span memory) const {
  if (order_ != nullptr) order_->access(host, memory, false, "a write of the offload device");
}

void HostAccesses::writes(Span memory) const {
  if (order_ != nullptr) order_->access(host, memory, true, "a read of the offload device");
}

}  // namespace strata::fakes
