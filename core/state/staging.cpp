#include "state/staging.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <string>

namespace strata::state {

std::int64_t Places::take(std::int64_t bytes) {
  const std::int64_t length = (bytes + alignment - 1) / alignment * alignment;
  std::int64_t begin = 0;
  for (const auto& [other, end] : taken_) {
    if (begin + length <= other) break;
    begin = end;
  }
  taken_.emplace(begin, begin + length);
  extent_ = std::max(extent_, begin + length);
  return begin;
}

void Places::give_back(std::int64_t begin) {
  if (taken_.erase(begin) == 0) throw Bug("a place that nobody has taken is given back");
}

std::int64_t Places::taken() const {
  std::int64_t bytes = 0;
  for (const auto& [begin, end] : taken_) bytes += end - begin;
  return bytes;
}

void Staging::reserve(std::int64_t bytes) {
  strata_check(places_.taken() == 0, "the staging memory changes while buffers lie in it");
  if (bytes <= length_) return;
  if (memory_.defined()) store_.free(std::exchange(memory_, at::Tensor()));
  memory_ = store_.allocate(Category::Staging, Tier::Device, "staging", bytes + Places::alignment, at::kByte);
  length_ = bytes;
  if (memory_.is_meta()) return;
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.const_data_ptr()) % Places::alignment;
  begin_ = address == 0 ? 0 : Places::alignment - static_cast<std::int64_t>(address);
}

std::int64_t Staging::take(std::int64_t bytes) {
  const std::int64_t begin = places_.take(bytes);
  if (places_.extent() > length_)
    throw Bug("the staging memory of " + std::to_string(length_) +
              " bytes is too short: " + std::to_string(places_.extent()) + " are needed");
  return begin;
}

at::Tensor Staging::bytes(std::int64_t begin, std::int64_t count) const {
  // Not a view to autograd, which would take a write to one place for a change of what it saved at another.
  return memory_.narrow(0, begin_ + begin, count).variable_data();
}

}  // namespace strata::state
