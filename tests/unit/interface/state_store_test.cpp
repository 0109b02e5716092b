#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/plain_device.hpp>
#include <strata/state_store.hpp>

#include "catch.hpp"

using namespace strata;

namespace {
std::int64_t now(const StateStore& store, Category category, Tier tier = Tier::Device) {
  return store.ledger().now[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
}
std::int64_t peak(const StateStore& store, Category category, Tier tier = Tier::Device) {
  return store.ledger().peak[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
}
}  // namespace

TEST_CASE("the ledger is the sum of the store's buffers") {
  StateStore store(at::kCPU);
  const at::Tensor a = store.allocate(Category::Parameter, Tier::Device, "a", 10, at::kFloat);
  const at::Tensor b = store.allocate(Category::Gradient, Tier::Host, "b", 3, at::kBFloat16);
  CHECK(now(store, Category::Parameter) == 40);
  CHECK(now(store, Category::Gradient, Tier::Host) == 6);
  CHECK(a.eq(0).all().item<bool>());
  store.free(a);
  CHECK(now(store, Category::Parameter) == 0);
  CHECK(peak(store, Category::Parameter) == 40);
  CHECK(store.ledger().total_peak[0] == 40);
  store.reset_peaks();
  CHECK(peak(store, Category::Parameter) == 0);
  CHECK_THROWS_AS(store.free(a), Bug);
  CHECK_THROWS_AS(store.free(at::zeros({2})), Bug);
  CHECK_THROWS_AS(store.count(Category::Staging, Tier::Disk, -1), Bug);
}

TEST_CASE("the total peak is of one moment, not the sum of each category's own peak") {
  StateStore store(at::kCPU);
  store.count(Category::Gathered, Tier::Device, 100);
  store.count(Category::Gathered, Tier::Device, -100);
  store.count(Category::Gradient, Tier::Device, 60);
  CHECK(store.ledger().total_peak[0] == 100);
}

TEST_CASE("a dry run counts the same and takes nothing") {
  StateStore store(at::kMeta);
  const at::Tensor huge =
      store.allocate(Category::Optimizer, Tier::Host, "more than there is", std::int64_t{1} << 50, at::kDouble);
  CHECK(huge.is_meta());
  CHECK(now(store, Category::Optimizer, Tier::Host) == std::int64_t{1} << 53);
}

TEST_CASE("a failed allocation is an environment error with the memory held") {
  StateStore store(at::kCPU);
  store.count(Category::Parameter, Tier::Device, 123);
  try {
    store.allocate(Category::Optimizer, Tier::Device, "master weights of layer 7", std::int64_t{1} << 55, at::kFloat);
    FAIL("allocated");
  } catch (const EnvironmentError& error) {
    const std::string text = error.what();
    CHECK(text.find("master weights of layer 7") != std::string::npos);
    CHECK(text.find("parameter 123") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.find("enforce fail") == std::string::npos);
  }
}

TEST_CASE("slots are made once, and the same program gets the same addresses") {
  StateStore store(at::kCPU);
  PlainDevice device(at::kCPU);
  SlotPool pool(store, device);
  std::vector<void*> first;
  for (int step = 0; step < 3; ++step) {
    Slot* a = pool.acquire(Category::Gathered, 1000);
    Slot* b = pool.acquire(Category::Gathered, 1010);  // the same size class
    Slot* c = pool.acquire(Category::Gradient, 1000);
    CHECK(pool.taken() == 3);
    const std::vector<void*> addresses{a->as(at::kFloat, 250).data_ptr(), b->as(at::kFloat, 250).data_ptr(),
                                       c->as(at::kFloat, 250).data_ptr()};
    if (step == 0) first = addresses;
    CHECK(addresses == first);
    pool.release(a);
    pool.release(c);
    pool.release(b);
  }
  CHECK(now(store, Category::Gathered) == 2 * 1024);
  CHECK(now(store, Category::Gradient) == 1024);
  Slot* slot = pool.acquire(Category::Gathered, 1000);
  CHECK_THROWS_AS(slot->as(at::kFloat, 257), Bug);
  pool.release(slot);
  CHECK_THROWS_AS(pool.release(slot), Bug);
}
