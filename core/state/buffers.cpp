#include "state/buffers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <strata/error.hpp>

#include <algorithm>

namespace strata::state {

namespace {

std::size_t bytes_of(std::int64_t elements, at::ScalarType dtype) {
  return static_cast<std::size_t>(elements) * c10::elementSize(dtype);
}

std::size_t rounded_up(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

OffloadDevice* MemoryPlan::home_of(Category category) const {
  if (category == Category::Parameter) return parameters;
  return category == Category::Gradient || category == Category::Optimizer ? optimizer : nullptr;
}

Buffers::Buffers(StateStore& store, Device& device, const MemoryPlan& plan, bool on_host)
    : store_(store), device_(device), staging_(store), plan_(plan), on_host_(on_host) {
  for (const auto& [key, home] : {std::pair("parameters", plan.parameters), std::pair("optimizer", plan.optimizer)}) {
    if (home == nullptr) continue;
    const OffloadLimits limits = home->limits();
    if (!limits.mapped && !on_host)
      throw UserError("offload." + std::string(key) +
                      ": this plugin holds bytes that the host cannot address, which the engine brings to host memory "
                      "only; train on `device: cpu`, or choose a plugin whose regions are mapped");
    if (static_cast<std::int64_t>(limits.alignment) > Places::alignment)
      throw UserError("offload." + std::string(key) + ": this plugin moves only memory that is aligned to " +
                      std::to_string(limits.alignment) + " bytes, and the engine's is aligned to " +
                      std::to_string(Places::alignment));
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

Buffer& Buffers::make(Category category, int flat, const std::string& name, std::int64_t elements, at::ScalarType dtype,
                      bool resident, bool kept, int part) {
  Resting& resting =
      buffers_.emplace_back("the " + std::string(to_string(category)) + " buffer of " + name, category, flat);
  by_buffer_.emplace(&resting.buffer, &resting);
  resting.kept = kept;
  resting.part = part;
  resting.elements = elements;
  resting.dtype = dtype;
  resting.home = resident || elements == 0 ? nullptr : plan_.home_of(category);
  if (resting.home == nullptr) {
    resting.memory = store_.allocate(category, Tier::Device, name, elements, dtype);
  } else {
    reserve(resting, name);
    // What only the update uses is used at home where that is on the host.
    resting.stays = !moves(category) || (kept && resting.home->limits().mapped);
  }
  if (resting.stays)
    resting.buffer.bring(resting.memory);
  else
    resting.ready = device_.make_event();
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

bool Buffers::moves(Category category) const {
  const OffloadDevice* const home = plan_.home_of(category);
  return home != nullptr && !(home->limits().mapped && (on_host_ || category == Category::Optimizer));
}

bool Buffers::moves_in_background() const {
  const auto in_background = [](const OffloadDevice* home) { return home != nullptr && !home->limits().mapped; };
  return in_background(plan_.parameters) || in_background(plan_.optimizer);
}

std::int64_t Buffers::moving_bytes(const Moved& moved) const {
  std::int64_t bytes = 0;
  for (const Resting& resting : buffers_)
    if (is_of(resting, moved)) bytes += static_cast<std::int64_t>(bytes_at_home(resting));
  return bytes;
}

bool Buffers::is_of(const Resting& resting, const Moved& moved) {
  return resting.category == moved.category && resting.flat == moved.flat && resting.kept == moved.kept &&
         resting.part == moved.part && !resting.stays;
}

template <class Work>
void Buffers::each_that_moves(const Moved& moved, Work&& work) {
  for (Resting& resting : buffers_)
    if (is_of(resting, moved)) work(resting);
}

std::size_t Buffers::bytes_at_home(const Resting& resting) const {
  return rounded_up(bytes_of(resting.elements, resting.dtype), resting.home->limits().alignment);
}

void Buffers::make_room(const std::vector<Movement>& movements) {
  Places places;
  std::map<const Resting*, std::int64_t> taken;
  for (const auto& [moved, comes] : movements)
    each_that_moves(moved, [&, comes = comes](const Resting& resting) {
      if (comes)
        taken[&resting] = places.take(static_cast<std::int64_t>(bytes_at_home(resting)));
      else
        places.give_back(taken.at(&resting));
    });
  if (places.extent() > 0) staging_.reserve(places.extent());
}

// [Note: staging memory] Copies into it and out of it, and the work that uses it, are ordered on the compute stream, so
// that what leaves it gives its place to the next at once. Another stream that reads it is waited for before it leaves.
void Buffers::fetch(const Moved& moved, bool contents) {
  each_that_moves(moved, [&](Resting& resting) {
    const std::size_t bytes = bytes_at_home(resting);
    resting.place = staging_.take(static_cast<std::int64_t>(bytes));
    resting.staged = staging_.bytes(resting.place, static_cast<std::int64_t>(bytes));
    const at::Tensor tensor = here(resting);
    if (contents) traffic_.read += static_cast<std::int64_t>(bytes);
    if (contents && resting.memory.defined())
      tensor.copy_(resting.memory);
    else if (contents)
      resting.transfer = resting.home->read(resting.region, 0, {resting.staged.mutable_data_ptr(), bytes});
  });
}

void Buffers::await(const Moved& moved) {
  each_that_moves(moved, [&](Resting& resting) {
    if (resting.transfer != nullptr) std::exchange(resting.transfer, nullptr)->wait();
    resting.ready->record(StreamKind::Compute);
    resting.ready->block(StreamKind::Communication);  // a gather there may read it at once
    resting.buffer.bring(here(resting));
  });
}

void Buffers::store(const Moved& moved, bool changed) {
  each_that_moves(moved, [&](Resting& resting) {
    if (changed && resting.memory.defined())
      resting.memory.copy_(resting.buffer.tensor());
    else if (changed)
      resting.transfer =
          resting.home->write(resting.region, 0, {resting.staged.mutable_data_ptr(), bytes_at_home(resting)});
    if (changed) traffic_.written += static_cast<std::int64_t>(bytes_at_home(resting));
    resting.buffer.take_away();
    if (!changed) leave(resting);
  });
}

void Buffers::settle(const Moved& moved) {
  each_that_moves(moved, [&](Resting& resting) {
    if (resting.transfer != nullptr) std::exchange(resting.transfer, nullptr)->wait();
    leave(resting);
  });
}

at::Tensor Buffers::here(const Resting& resting) {
  return resting.staged.narrow(0, 0, static_cast<std::int64_t>(bytes_of(resting.elements, resting.dtype)))
      .view(resting.dtype);
}

void Buffers::leave(Resting& resting) {
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

}  // namespace strata::state
