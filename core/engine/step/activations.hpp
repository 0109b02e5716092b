#pragma once
#include <strata/group.hpp>
#include <strata/model.hpp>
#include <strata/state_store.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "stage/linear.hpp"

namespace strata::step {

// Tensors that the engine holds between two instructions, counted in the ledger as activations while they are
// held.
class Held {
 public:
  Held() = default;
  Held(StateStore& store, Tensors tensors);
  // Holds views of memory that is counted elsewhere.
  static Held views(Tensors tensors);
  const Tensors& tensors() const { return tensors_; }

 private:
  struct Count {
    ~Count() { store.count(Category::Activation, Tier::Device, -bytes); }
    StateStore& store;
    std::int64_t bytes;
  };
  Tensors tensors_;
  std::unique_ptr<Count> count_;
};

// Cuts the autograd graph: returns leaves for the next layer's input, which require gradients if `gradient` is true and
// their dtype is floating.
Tensors detached(const Tensors& tensors, bool gradient);

// Tensors that one layer saves of one micro-batch, from its forward to its backward.
struct Passage {
  Held inputs;         // detached inputs; floating ones require gradients; empty while they are away
  LayerOutput output;  // output with its graph; empty if the forward is recomputed
};

// Gradients of one layer and micro-batch that BackwardInput leaves for BackwardWeight.
struct LeftGradients {
  Held tensors;  // tensors that the products read, each once
  std::vector<stage::WeightGradient> products;
};

// Tensors that flow between layers, by layer and micro-batch. Taking a missing one throws Bug: the program is wrong.
class ActivationStore {
 public:
  using Key = std::pair<int, int>;  // layer, micro-batch
  // Input of a layer (forward), or gradient of its output (backward), in flight. `transfers` are the receives that fill
  // the tensors, or the sends that read them.
  struct Flow {
    Held tensors;
    std::vector<Pending> transfers;
  };
  std::map<Key, Flow> forward;
  std::map<Key, Flow> backward;
  std::map<Key, Passage> passages;
  std::map<Key, LeftGradients> left_gradients;
  // Sends in flight and the tensors they read; a key is the layer whose output (forward) or input (backward) is sent.
  std::map<Key, Flow> activation_sends;
  std::map<Key, Flow> gradient_sends;

  // Removes and returns a flow's tensors, after waiting for its transfers.
  static Held take(std::map<Key, Flow>& flows, Key key, const char* what);
  // Waits for the send with this key, if any, and releases its tensors.
  static void finish(std::map<Key, Flow>& sends, Key key);
  static void finish_all(std::map<Key, Flow>& sends);
  // Waits for all sends and receives.
  void finish_transfers();
  // Throws Bug if anything is left at the end of a step.
  void check_empty() const;
};

}  // namespace strata::step
