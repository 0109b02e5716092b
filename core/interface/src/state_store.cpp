#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <strata/error.hpp>
#include <strata/state_store.hpp>

#include <algorithm>

namespace strata {

const char* to_string(Category category) {
  static constexpr std::array<const char*, category_count> names{"parameter",  "gathered", "gradient", "optimizer",
                                                                 "activation", "bucket",   "staging"};
  return names.at(static_cast<std::size_t>(category));
}

const char* to_string(Tier tier) {
  static constexpr std::array<const char*, tier_count> names{"device", "host", "disk"};
  return names.at(static_cast<std::size_t>(tier));
}

std::int64_t Ledger::total(Tier tier) const {
  std::int64_t sum = 0;
  for (const auto& row : now) sum += row[static_cast<std::size_t>(tier)];
  return sum;
}

StateStore::StateStore(at::Device device) : device_(device) {}
StateStore::~StateStore() = default;

namespace {
std::string describe(const Ledger& ledger, Tier tier) {
  std::string text;
  for (int c = 0; c < category_count; ++c) {
    const std::int64_t bytes = ledger.now[static_cast<std::size_t>(c)][static_cast<std::size_t>(tier)];
    if (bytes == 0) continue;
    text += format("{}{} {}", text.empty() ? "" : ", ", to_string(static_cast<Category>(c)), bytes);
  }
  return text.empty() ? "nothing" : text;
}

// On a tier other than the device's. In a dry run a size without an allocation: who counts allocations counts the
// device's.
at::Tensor allocate_elsewhere(std::int64_t elements, at::ScalarType dtype, bool dry_run) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype);
  if (!dry_run) return at::zeros({elements}, options);
  return at::for_blob(nullptr, {elements}).options(options.device(at::kMeta)).target_device(at::kMeta).make_tensor();
}
}  // namespace

at::Tensor StateStore::allocate(Category category, Tier tier, const std::string& owner, std::int64_t elements,
                                at::ScalarType dtype) {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(c10::elementSize(dtype));
  at::Tensor buffer;
  try {
    buffer = tier == Tier::Device ? at::zeros({elements}, at::TensorOptions().dtype(dtype).device(device_))
                                  : allocate_elsewhere(elements, dtype, dry_run());
  } catch (const c10::Error& error) {
    std::string text = format(
        "out of memory on tier {}: {} needs {} bytes; held already (bytes): {}. A smaller micro_batch, activation "
        "checkpointing, more sharding or offload takes less.",
        to_string(tier), owner, bytes, describe(ledger_, tier));
    // For a GPU, libtorch's text adds the memory in use there; for host memory it adds nothing.
    if (tier == Tier::Device && !device_.is_cpu()) text += std::string(" (") + error.what_without_backtrace() + ")";
    throw EnvironmentError(text);
  }
  entries_.emplace(buffer.storage().unsafeGetStorageImpl(), Entry{category, tier, bytes, owner, buffer});
  count(category, tier, bytes);
  return buffer;
}

void StateStore::free(const at::Tensor& buffer) {
  const auto found = entries_.find(buffer.storage().unsafeGetStorageImpl());
  if (found == entries_.end()) throw Bug("freeing a buffer that the state store does not hold");
  count(found->second.category, found->second.tier, -found->second.bytes);
  entries_.erase(found);
}

void StateStore::count(Category category, Tier tier, std::int64_t bytes) {
  const auto c = static_cast<std::size_t>(category);
  const auto t = static_cast<std::size_t>(tier);
  std::int64_t& now = ledger_.now[c][t];
  now += bytes;
  if (now < 0) throw Bug("the ledger's {} on {} fell below zero", to_string(category), to_string(tier));
  ledger_.peak[c][t] = std::max(ledger_.peak[c][t], now);
  ledger_.total_peak[t] = std::max(ledger_.total_peak[t], ledger_.total(tier));
}

void StateStore::reset_peaks() {
  ledger_.peak = ledger_.now;
  for (int t = 0; t < tier_count; ++t)
    ledger_.total_peak[static_cast<std::size_t>(t)] = ledger_.total(static_cast<Tier>(t));
}

at::Tensor Slot::as(at::ScalarType dtype, std::int64_t elements) const {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(c10::elementSize(dtype));
  if (bytes > bytes_.numel()) throw Bug("a slot of {} bytes used for {}", bytes_.numel(), bytes);
  return bytes_.narrow(0, 0, bytes).view(dtype);
}

SlotPool::SlotPool(StateStore& store, Device& device) : store_(store), device_(device) {}
SlotPool::~SlotPool() = default;

Slot* SlotPool::acquire(Category category, std::int64_t bytes) {
  constexpr std::int64_t granule = 512;
  const std::int64_t size = (bytes + granule - 1) / granule * granule;
  std::deque<Slot>& same = slots_[{category, size}];
  auto found = std::find_if(same.begin(), same.end(), [](const Slot& slot) { return !slot.taken_; });
  if (found == same.end()) {
    Slot& slot = same.emplace_back();
    slot.bytes_ = store_.allocate(category, Tier::Device,
                                  "slot " + std::to_string(same.size()) + " of " + std::to_string(size) + " bytes",
                                  size, at::kByte);
    slot.ready_ = device_.make_event();
    slot.last_use_ = device_.make_event();
    slot.last_use_->record(StreamKind::Compute);  // its zero fill is its first use
    found = std::prev(same.end());
  }
  found->taken_ = true;
  ++taken_;
  return &*found;
}

void SlotPool::release(Slot* slot) {
  strata_check(slot != nullptr && slot->taken_, "releasing a slot that is not taken");
  slot->taken_ = false;
  --taken_;
}

}  // namespace strata
