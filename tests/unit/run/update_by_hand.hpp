// An optimizer's update, written without the plugins' code.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <string>
#include <vector>

// An update written by hand: SGD with momentum 0.9, or AdamW. `number` counts updates
// from 1.
inline void update_by_hand(const std::string& optimizer, at::Tensor& weight, const at::Tensor& gradient,
                           std::vector<at::Tensor>& state, double rate, int number) {
  if (state.empty()) state = {at::zeros_like(weight), at::zeros_like(weight)};
  if (optimizer == "sgd") {
    state[0] = state[0] * 0.9 + gradient;
    weight = weight - rate * state[0];
    return;
  }
  state[0] = state[0] * 0.9 + gradient * 0.1;
  state[1] = state[1] * 0.999 + gradient * gradient * 0.001;
  const at::Tensor first = state[0] / (1.0 - std::pow(0.9, number)),
                   second = state[1] / (1.0 - std::pow(0.999, number));
  weight = weight * (1.0 - rate * 0.1) - rate * first / (second.sqrt() + 1e-8);
}
