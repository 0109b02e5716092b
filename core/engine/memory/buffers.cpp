#include "memory/buffers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <strata/error.hpp>

#include <algorithm>

namespace strata::memory {

namespace {

std::size_t bytes_of(std::int64_t elements, at::ScalarType dtype) {
  return static_cast<std::size_t>(elements) * c10::elementSize(dtype);
}

std::size_t rounded_up(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

const MemoryPlan::Home* MemoryPlan::of(Category category) const {
  const Home* const home = category == Category::Parameter                                     ? &parameters
                           : category == Category::Activation                                  ? &activations
                           : category == Category::Gradient || category == Category::Optimizer ? &optimizer
                                                                                               : nullptr;
  return home != nullptr && home->device != nullptr ? home : nullptr;
}

OffloadDevice* MemoryPlan::home_of(Category category, int owner) const {
  const Home* const home = of(category);
  if (home == nullptr) return nullptr;
  const auto says = [&](const std::vector<bool>& by_owner) {
    return by_owner.empty() || by_owner.at(static_cast<std::size_t>(owner));
  };
  return says(home->rests_there) && (category != Category::Gradient || says(gradients_too)) ? home->device : nullptr;
}

std::vector<bool> part_of(const std::vector<std::int64_t>& sizes, double ratio) {
  std::vector<bool> leaves;
  double all = 0.0, gone = 0.0;
  for (const std::int64_t size : sizes) {
    all += static_cast<double>(size);
    leaves.push_back(gone + static_cast<double>(size) / 2 < ratio * all);
    if (leaves.back()) gone += static_cast<double>(size);
  }
  return leaves;
}

Buffers::Buffers(StateStore& store, Device& device, const MemoryPlan& plan, bool on_host)
    : store_(store), device_(device), staging_(store), plan_(plan), on_host_(on_host) {
  for (const auto& [key, home] :
       {std::pair("parameters", plan.parameters.device), std::pair("optimizer", plan.optimizer.device),
        std::pair("activations", plan.activations.device)}) {
    if (home == nullptr) continue;
    const OffloadLimits limits = home->limits();
    if (!limits.mapped && !on_host && through_host_ == nullptr)
      through_host_ = std::make_unique<ThroughHost>(store, device);
    if (static_cast<std::int64_t>(limits.alignment) > Places::alignment)
      throw UserError(
          "offload.{}: this plugin moves only memory that is aligned to {} bytes, and the engine's is aligned to {}",
          key, limits.alignment, Places::alignment);
  }
}

Buffers::~Buffers() {
  for (Resting& resting : buffers_) {
    resting.transfer.reset();  // ends first what an error has left under way
    if (resting.region.id == 0) continue;
    store_.count(resting.category, resting.home->tier(), -static_cast<std::int64_t>(resting.region.bytes));
    resting.home->free(resting.region);
  }
}

Buffer& Buffers::make(const Moved& moved, const std::string& name, std::int64_t elements, at::ScalarType dtype,
                      bool resident) {
  const Category category = moved.category;
  Resting& resting = buffers_.emplace_back("the " + std::string(to_string(category)) + " buffer of " + name, category);
  by_buffer_.emplace(&resting.buffer, &resting);
  resting.elements = elements;
  resting.dtype = dtype;
  resting.home = resident || elements == 0 ? nullptr : plan_.home_of(category, moved.owner);
  if (resting.home == nullptr) {
    resting.memory = store_.allocate(category, Tier::Device, name, elements, dtype);
  } else {
    reserve(resting, name);
    // Buffers of the update alone are used at home if that is on the host.
    resting.stays = !moves(category, moved.owner) || (moved.kept && resting.home->limits().mapped);
  }
  if (resting.stays) {
    resting.buffer.bring(resting.memory);
  } else {
    resting.ready = device_.make_event();
    moving_[moved].push_back(&resting);
  }
  return resting.buffer;
}

void Buffers::reserve(Resting& resting, const std::string& name) {
  OffloadDevice& home = *resting.home;
  const std::size_t needed = bytes_of(resting.elements, resting.dtype);
  const std::size_t bytes = rounded_up(needed, home.limits().alignment);
  if (store_.dry_run()) {
    const at::Tensor counted =
        store_.allocate(resting.category, home.tier(), name, static_cast<std::int64_t>(bytes), at::kByte);
    resting.memory = counted.narrow(0, 0, static_cast<std::int64_t>(needed)).view(resting.dtype);
    return;
  }
  resting.region = home.reserve(bytes);
  store_.count(resting.category, home.tier(), static_cast<std::int64_t>(resting.region.bytes));
  if (!home.limits().mapped) return;
  const std::optional<Span> memory = home.map(resting.region);
  strata_check(memory.has_value(), "an offload device whose limits say that it maps its regions does not map one");
  resting.memory = at::from_blob(memory->data, {resting.elements}, at::TensorOptions().dtype(resting.dtype));
}

bool Buffers::moves(Category category, int owner) const {
  const OffloadDevice* const home = plan_.home_of(category, owner);
  return home != nullptr && !(home->limits().mapped && (on_host_ || category == Category::Optimizer));
}

bool Buffers::moves_in_background() const {
  const auto in_background = [](const MemoryPlan::Home& home) {
    return home.device != nullptr && !home.device->limits().mapped;
  };
  return in_background(plan_.parameters) || in_background(plan_.optimizer) || in_background(plan_.activations);
}

std::int64_t Buffers::moving_bytes(const Moved& moved) const {
  std::int64_t bytes = 0;
  for (const Resting* const resting : that_move(moved)) bytes += static_cast<std::int64_t>(bytes_at_home(*resting));
  return bytes;
}

const std::vector<Buffers::Resting*>& Buffers::that_move(const Moved& moved) const {
  static const std::vector<Resting*> none;
  const auto found = moving_.find(moved);
  return found == moving_.end() ? none : found->second;
}

std::int64_t Buffers::bytes_at_home(Category category, int owner, std::int64_t bytes) const {
  const OffloadDevice* const home = plan_.home_of(category, owner);
  if (home == nullptr) return bytes;
  return static_cast<std::int64_t>(rounded_up(static_cast<std::size_t>(bytes), home->limits().alignment));
}

std::size_t Buffers::bytes_at_home(const Resting& resting) {
  return rounded_up(bytes_of(resting.elements, resting.dtype), resting.home->limits().alignment);
}

void Buffers::make_room(const std::vector<Movement>& movements) {
  Places places;
  std::map<const Resting*, std::int64_t> taken;
  for (const auto& [moved, comes] : movements)
    for (const Resting* const resting : that_move(moved)) {
      if (comes)
        taken[resting] = places.take(static_cast<std::int64_t>(bytes_at_home(*resting)));
      else
        places.give_back(taken.at(resting));
    }
  if (places.extent() > 0) staging_.reserve(places.extent());
  if (through_host_ != nullptr) through_host_->reserve(places.extent());
}

// [Note: staging memory] Copies into it and out of it, and the work that uses it, are ordered on the compute stream, so
// that what leaves it gives its place to the next at once. Another stream that reads it is waited for before it leaves.
void Buffers::fetch(const Moved& moved, bool contents) {
  for (Resting* const one : that_move(moved)) {
    const std::size_t bytes = bytes_at_home(*one);
    one->place = staging_.take(static_cast<std::int64_t>(bytes));
    one->staged = staging_.bytes(one->place, static_cast<std::int64_t>(bytes));
    const at::Tensor tensor = here(*one);
    if (contents) traffic_.read += static_cast<std::int64_t>(bytes);
    if (contents && one->memory.defined())
      tensor.copy_(one->memory);
    else if (contents)
      one->transfer = read(*one);
  }
}

void Buffers::await(const Moved& moved) {
  for (Resting* const one : that_move(moved)) {
    if (one->transfer != nullptr) std::exchange(one->transfer, nullptr)->wait();
    one->ready->record(StreamKind::Compute);
    one->ready->block(StreamKind::Communication);  // a gather there may read it at once
    one->buffer.bring(here(*one));
  }
}

void Buffers::store(const Moved& moved, bool changed) {
  for (Resting* const one : that_move(moved)) {
    if (changed && one->memory.defined())
      one->memory.copy_(one->buffer.tensor());
    else if (changed)
      one->transfer = write(*one);
    if (changed) traffic_.written += static_cast<std::int64_t>(bytes_at_home(*one));
    one->buffer.take_away();
    if (!changed) leave(*one);
  }
}

void Buffers::settle(const Moved& moved) {
  for (Resting* const one : that_move(moved)) {
    if (one->transfer != nullptr) std::exchange(one->transfer, nullptr)->wait();
    leave(*one);
  }
}

at::Tensor Buffers::here(const Resting& resting) {
  return resting.staged.narrow(0, 0, static_cast<std::int64_t>(bytes_of(resting.elements, resting.dtype)))
      .view(resting.dtype);
}

std::unique_ptr<Transfer> Buffers::read(const Resting& resting) {
  if (through_host_ != nullptr)
    return through_host_->read(*resting.home, resting.region, resting.place, resting.staged);
  return resting.home->read(resting.region, 0, {resting.staged.mutable_data_ptr(), resting.staged.nbytes()});
}

std::unique_ptr<Transfer> Buffers::write(const Resting& resting) {
  if (through_host_ != nullptr)
    return through_host_->write(*resting.home, resting.region, resting.place, resting.staged);
  return resting.home->write(resting.region, 0, {resting.staged.mutable_data_ptr(), resting.staged.nbytes()});
}

void Buffers::leave(Resting& resting) {
  if (through_host_ != nullptr) resting.ready->synchronize();  // the host's like of its place is free, too
  resting.staged = at::Tensor();
  staging_.give_back(resting.place);
}

const Buffers::Resting& Buffers::of(const BufferRange& range) const {
  const auto found = by_buffer_.find(range.buffer);
  if (found == by_buffer_.end()) throw Bug("a slice lies in no buffer that PartitionContext::buffer() gave");
  return *found->second;
}

at::ScalarType Buffers::dtype(const BufferRange& range) const {
  return of(range).dtype;
}

at::Tensor Buffers::for_update(const BufferRange& range) const {
  if (!updates_on_host()) return range.tensor();
  return of(range).memory.narrow(0, range.begin, range.elements);
}

void Buffers::with(const BufferRange& range, Access access, const std::function<void(const at::Tensor&)>& work) const {
  const Resting& resting = of(range);
  if (resting.memory.defined()) return work(resting.memory.narrow(0, range.begin, range.elements));
  const std::size_t alignment = resting.home->limits().alignment, width = c10::elementSize(resting.dtype);
  const std::size_t first = static_cast<std::size_t>(range.begin) * width, begin = first / alignment * alignment;
  const std::size_t end = rounded_up(first + bytes_of(range.elements, resting.dtype), alignment);
  const at::Tensor memory = at::empty({static_cast<std::int64_t>(end - begin + alignment)}, at::kByte);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.const_data_ptr());
  const at::Tensor bytes = memory.narrow(0, static_cast<std::int64_t>(rounded_up(address, alignment) - address),
                                         static_cast<std::int64_t>(end - begin));
  const Span span{bytes.mutable_data_ptr(), end - begin};
  resting.home->read(resting.region, begin, span)->wait();
  work(at::from_blob(static_cast<std::byte*>(span.data) + (first - begin), {range.elements}, resting.dtype));
  if (access == Access::Write) resting.home->write(resting.region, begin, span)->wait();
}

}  // namespace strata::memory
