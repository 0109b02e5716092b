#include "step/activations.hpp"

#include <strata/error.hpp>

#include <string>

namespace strata::step {

Held::Held(StateStore& store, Tensors tensors) : tensors_(std::move(tensors)) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors_) bytes += static_cast<std::int64_t>(tensor.nbytes());
  store.count(Category::Activation, Tier::Device, bytes);
  count_.reset(new Count{store, bytes});
}

Held Held::views(Tensors tensors) {
  Held held;
  held.tensors_ = std::move(tensors);
  return held;
}

Tensors detached(const Tensors& tensors, bool gradient) {
  Tensors leaves;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor leaf = tensor.detach();
    if (gradient && at::isFloatingType(leaf.scalar_type())) leaf.set_requires_grad(true);
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

Held ActivationStore::take(std::map<Key, Flow>& flows, Key key, const char* what) {
  const auto found = flows.find(key);
  if (found == flows.end())
    throw Bug("{} of layer {}, micro-batch {} was not computed or received before its use", what, key.first,
              key.second);
  for (Pending& receive : found->second.transfers) receive.wait();
  Held held = std::move(found->second.tensors);
  flows.erase(found);
  return held;
}

void ActivationStore::finish(std::map<Key, Flow>& sends, Key key) {
  const auto found = sends.find(key);
  if (found == sends.end()) return;
  for (Pending& send : found->second.transfers) send.wait();
  sends.erase(found);
}

void ActivationStore::finish_all(std::map<Key, Flow>& sends) {
  while (!sends.empty()) finish(sends, sends.begin()->first);
}

void ActivationStore::finish_transfers() {
  finish_all(activation_sends);
  finish_all(gradient_sends);
  for (std::map<Key, Flow>* const flows : {&forward, &backward})
    for (auto& [key, flow] : *flows)
      for (Pending& receive : flow.transfers) receive.wait();
}

void ActivationStore::check_empty() const {
  if (!forward.empty() || !backward.empty() || !passages.empty() || !left_gradients.empty() ||
      !activation_sends.empty() || !gradient_sends.empty())
    throw Bug(
        "a step ended with activations left over: {} on their way forward, {} backward, {} waiting for their backward, "
        "{} for that of their weights",
        forward.size(), backward.size(), passages.size(), left_gradients.size());
}

}  // namespace strata::step
