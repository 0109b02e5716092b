#include "step/activations.hpp"

#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/state_store.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("held activations are counted for as long as they are held") {
  StateStore store(at::kCPU);
  const auto bytes_held = [&store] {
    return store.ledger().now[static_cast<std::size_t>(Category::Activation)][static_cast<std::size_t>(Tier::Device)];
  };
  step::ActivationStore activations;
  activations.forward[{1, 0}].tensors = step::Held(store, {at::zeros({4}), at::zeros({2}, at::kLong)});
  CHECK(bytes_held() == 32);
  CHECK_THROWS_AS(activations.check_empty(), Bug);
  {
    const step::Held held = step::ActivationStore::take(activations.forward, {1, 0}, "the input");
    CHECK(held.tensors().size() == 2);
    CHECK(bytes_held() == 32);
  }
  CHECK(bytes_held() == 0);
  activations.check_empty();
  CHECK_THROWS_AS(step::ActivationStore::take(activations.forward, {1, 0}, "the input"), Bug);
}
