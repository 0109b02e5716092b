// Buffers that rest on an offload device.
#include <ATen/ATen.h>
#include <strata/error.hpp>
#include <strata/fakes/memory_offload_device.hpp>

#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "catch.hpp"
#include "unit/state/host_buffers.hpp"

using namespace strata;

namespace {

std::int64_t held(const StateStore& store, Category category, Tier tier) {
  return store.ledger().now[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
}

// A device whose events are not reached while it is held.
class HeldDevice final : public PlainDevice {
 public:
  HeldDevice() : PlainDevice(at::kCPU) {}
  void hold() { held_->lock(); }
  void release() { held_->unlock(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<Held>(held_); }

 private:
  struct Held final : Event {
    explicit Held(std::shared_ptr<std::mutex> held) : held_(std::move(held)) {}
    void record(StreamKind) override {}
    void block(StreamKind) override {}
    void synchronize() override { const std::lock_guard lock(*held_); }
    std::shared_ptr<std::mutex> held_;
  };
  std::shared_ptr<std::mutex> held_ = std::make_shared<std::mutex>();
};

}  // namespace

TEST_CASE("a buffer with another home is here from await to store, and keeps changes") {
  const std::size_t alignment = GENERATE(std::size_t{64}, std::size_t{4096});
  const bool on_host = GENERATE(true, false);
  fakes::MemoryOffloadDevice offload({.alignment = alignment});
  HostBuffers memory({.optimizer = {&offload, {}}}, on_host);
  CHECK_FALSE(memory.buffers.updates_on_host());  // the host reaches nothing of it
  const memory::Moved m{Category::Optimizer, 3};
  Buffer& buffer = memory.buffers.make({Category::Optimizer, 3}, "m", 7, at::kFloat);
  const auto bytes = static_cast<std::int64_t>(alignment);
  CHECK(memory.buffers.moving_bytes(m) == bytes);
  CHECK(memory.buffers.moving_bytes({Category::Optimizer, 4}) == 0);
  CHECK(offload.reserved() == alignment);
  CHECK(held(memory.store, Category::Optimizer, Tier::Host) == bytes);
  CHECK_THROWS_WITH(buffer.tensor(), Catch::Contains("the optimizer buffer of m"));

  memory.buffers.make_room({{m, true}, {m, false}});
  CHECK(held(memory.store, Category::Staging, Tier::Device) == 8192);  // and what it takes to begin at a page
  CHECK(held(memory.store, Category::Staging, Tier::Host) == (on_host ? 0 : 4096));
  memory.buffers.fetch(m, true);
  CHECK_FALSE(buffer.here());
  memory.buffers.await(m);
  CHECK(buffer.tensor().eq(0.0).all().item<bool>());
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.tensor().const_data_ptr()) % alignment == 0);
  buffer.tensor().copy_(at::arange(7));
  memory.buffers.store(m, true);
  CHECK_FALSE(buffer.here());
  CHECK(memory.buffers.staged_bytes() == 4096);  // while it is on its way home
  memory.buffers.settle(m);
  CHECK(memory.buffers.staged_bytes() == 0);

  memory.buffers.fetch(m, true);
  memory.buffers.await(m);
  CHECK(at::equal(buffer.tensor(), at::arange(7).to(at::kFloat)));
  buffer.tensor().fill_(9.0);
  memory.buffers.store(m, false);  // what did not change is not written
  CHECK(memory.buffers.staged_bytes() == 0);
  memory.buffers.with({&buffer, 0, 7}, memory::Access::Read,
                      [](const at::Tensor& values) { CHECK(at::equal(values, at::arange(7).to(at::kFloat))); });
}

TEST_CASE("unfinished transfers end before regions are released after an error") {
  fakes::MemoryOffloadDevice offload({.alignment = 64});
  {
    HostBuffers memory({.optimizer = {&offload, {}}});
    memory.buffers.make({Category::Optimizer, 0}, "m", 7, at::kFloat);
    memory.buffers.make_room({{{Category::Optimizer, 0}, true}});
    memory.buffers.fetch({Category::Optimizer, 0}, true);
    CHECK(offload.under_way() == 1);
  }
  CHECK(offload.under_way() == 0);
  CHECK(offload.reserved() == 0);
}

TEST_CASE("a write through the host starts after the device's copy without a wait") {
  fakes::MemoryOffloadDevice offload({.alignment = 64});
  HeldDevice device;
  StateStore store(at::kCPU);
  memory::Buffers buffers(store, device, {.optimizer = {&offload, {}}}, false);
  const memory::Moved m{Category::Optimizer, 0};
  Buffer& buffer = buffers.make(m, "m", 7, at::kFloat);
  buffers.make_room({{m, true}, {m, false}});
  buffers.fetch(m, false);
  buffers.await(m);
  buffer.tensor().fill_(3.0);
  device.hold();
  buffers.store(m, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(offload.under_way() == 0);
  device.release();
  buffers.settle(m);
  CHECK(offload.under_way() == 0);
  buffers.with({&buffer, 0, 7}, memory::Access::Read,
               [](const at::Tensor& values) { CHECK(values.eq(3.0).all().item<bool>()); });
}

TEST_CASE("a failed transfer through the host is reported by its wait") {
  const bool writes = GENERATE(false, true);
  fakes::MemoryOffloadDevice offload({.alignment = 64});
  HostBuffers memory({.optimizer = {&offload, {}}}, false);
  const memory::Moved m{Category::Optimizer, 0};
  memory.buffers.make(m, "m", 7, at::kFloat);
  memory.buffers.make_room({{m, true}, {m, false}});
  if (!writes) offload.fail_after(0, "the disk is gone");
  memory.buffers.fetch(m, !writes);
  if (!writes) {
    CHECK_THROWS_WITH(memory.buffers.await(m), Catch::Contains("the disk is gone"));
    return;
  }
  memory.buffers.await(m);
  offload.fail_after(0, "the disk is gone");
  memory.buffers.store(m, true);
  CHECK_THROWS_WITH(memory.buffers.settle(m), Catch::Contains("the disk is gone"));
}

TEST_CASE("a buffer without elements moves nowhere") {
  fakes::MemoryOffloadDevice offload({.alignment = 64});
  HostBuffers memory({.optimizer = {&offload, {}}});
  CHECK(memory.buffers.make({Category::Optimizer, 0}, "m", 0, at::kFloat).here());
  CHECK(memory.buffers.moving_bytes({Category::Optimizer, 0}) == 0);
}

TEST_CASE("between steps any range is read and written where it rests") {
  fakes::MemoryOffloadDevice offload({.alignment = GENERATE(std::size_t{64}, std::size_t{4096})});
  HostBuffers memory({.optimizer = {&offload, {}}});
  Buffer& buffer = memory.buffers.make({Category::Gradient, 0}, "g", 101, at::kBFloat16);
  for (std::int64_t begin = 0; begin < 101; begin += 13)
    memory.buffers.with({&buffer, begin, std::min<std::int64_t>(13, 101 - begin)}, memory::Access::Write,
                        [&](const at::Tensor& values) { values.copy_(at::arange(begin, begin + values.numel())); });
  for (const auto& [begin, length] : {std::pair(0, 101), {31, 2}, {32, 33}, {100, 1}})
    memory.buffers.with({&buffer, begin, length}, memory::Access::Read, [&, first = begin](const at::Tensor& values) {
      CHECK(at::equal(values, at::arange(first, first + values.numel()).to(at::kBFloat16)));
    });
  CHECK(offload.under_way() == 0);
}

TEST_CASE("a resident buffer and one of another category stay on the device") {
  fakes::MemoryOffloadDevice offload;
  HostBuffers memory({.parameters = {&offload, {}}});
  CHECK(memory.buffers.make({Category::Parameter, 0}, "p", 4, at::kFloat, true).here());
  CHECK(memory.buffers.make({Category::Gradient, 0}, "g", 4, at::kFloat).here());
  CHECK_FALSE(memory.buffers.make({Category::Parameter, 1}, "q", 4, at::kFloat).here());
}

TEST_CASE("a ratio takes whole things, spread over the rest, to within half of one") {
  CHECK(memory::part_of({4, 4, 4, 4}, 0.0) == std::vector<bool>{false, false, false, false});
  CHECK(memory::part_of({4, 4, 4, 4}, 1.0) == std::vector<bool>{true, true, true, true});
  CHECK(memory::part_of({4, 4, 4, 4}, 0.5) == std::vector<bool>{false, true, false, true});
  std::mt19937 random(3);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<std::int64_t> sizes(1 + random() % 40);
    for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(random() % 1000);
    const double ratio = static_cast<double>(random() % 101) / 100;
    const std::vector<bool> leaves = memory::part_of(sizes, ratio);
    std::int64_t all = 0, gone = 0, largest = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      all += sizes[i];
      if (leaves[i]) gone += sizes[i];
      largest = std::max(largest, sizes[i]);
      CAPTURE(trial, ratio, i);
      CHECK(std::abs(static_cast<double>(gone) - ratio * static_cast<double>(all)) <= 0.5 * largest + 1e-6);
    }
  }
}

TEST_CASE("of a category a part rests elsewhere") {
  fakes::MemoryOffloadDevice offload({.alignment = 64});
  HostBuffers memory({.parameters = {&offload, {true, false}}});
  CHECK_FALSE(memory.buffers.make({Category::Parameter, 0}, "p", 4, at::kFloat).here());
  CHECK(memory.buffers.make({Category::Parameter, 1}, "q", 4, at::kFloat).here());
  CHECK(memory.buffers.moves(Category::Parameter, 0));
  CHECK_FALSE(memory.buffers.moves(Category::Parameter, 1));
}

TEST_CASE("regions are given back") {
  fakes::MemoryOffloadDevice offload;
  StateStore store(at::kCPU);
  PlainDevice device(at::kCPU);
  {
    memory::Buffers buffers(store, device, {.parameters = {&offload, {}}}, true);
    buffers.make({Category::Parameter, 0}, "p", 4, at::kFloat);
    CHECK(held(store, Category::Parameter, Tier::Host) == 16);
  }
  CHECK(offload.reserved() == 0);
  CHECK(held(store, Category::Parameter, Tier::Host) == 0);
}

TEST_CASE("an unusable offload device is refused with the key and the rule") {
  fakes::MemoryOffloadDevice aligned({.alignment = 8192});
  StateStore store(at::kCPU);
  PlainDevice device(at::kCPU);
  CHECK_THROWS_WITH(memory::Buffers(store, device, {.optimizer = {&aligned, {}}}, true),
                    Catch::Contains("offload.optimizer") && Catch::Contains("8192"));
}
