#pragma once
#include <strata/own_exchange.hpp>

#include <cstdint>

namespace strata::stage {

// The engine's side of an optimizer's own exchange.
class OwnExchangeHost final : public OwnExchange {
 public:
  void optimizer_exchanges(std::int64_t updates, ExchangingOptimizer& optimizer) override {
    summed_updates_ = updates;
    optimizer_ = &optimizer;
  }
  void partitioner_can_leave_gradients(bool owns_all) override {
    can_leave_ = true;
    owns_all_ = owns_all;
  }
  bool leaves_gradients() const override { return leaves_; }

  ExchangingOptimizer* optimizer() const { return optimizer_; }  // null: no exchange
  bool partitioner_can() const { return can_leave_; }
  bool owns_all() const { return owns_all_; }  // true: every rank owns every element
  // Begins a step after `updates` updates. Returns leaves_gradients().
  bool begin(std::int64_t updates) { return leaves_ = optimizer_ != nullptr && updates >= summed_updates_; }

 private:
  std::int64_t summed_updates_ = 0;
  ExchangingOptimizer* optimizer_ = nullptr;
  bool can_leave_ = false;
  bool owns_all_ = false;
  bool leaves_ = false;
};

}  // namespace strata::stage
