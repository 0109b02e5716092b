#pragma once
#include <strata/group.hpp>
#include <strata/model.hpp>
#include <strata/state_store.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "step/linear.hpp"

namespace strata::runtime {

// Tensors that the engine keeps between two instructions, counted in the ledger as activations for as long as they are
// held.
class Held {
 public:
  Held() = default;
  Held(StateStore& store, Tensors tensors);
  // Of memory that is counted elsewhere.
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

// Cuts the graph: the next layer's input is a leaf of its own, which gets a gradient where `gradient` says so and its
// numbers are floating ones.
Tensors detached(const Tensors& tensors, bool gradient);

// What one layer keeps of one micro-batch, from its forward to its backward.
struct Passage {
  Held inputs;         // detached; floating ones require gradients; empty while they are away
  LayerOutput output;  // with its graph; empty when the forward is to be recomputed
};

// What BackwardInput left of a layer and a micro-batch for BackwardWeight.
struct LeftGradients {
  Held tensors;  // what the products read, each once
  std::vector<WeightGradient> products;
};

// What flows between layers, by layer and micro-batch. Taking what is not there throws Bug: the program was wrong.
class ActivationStore {
 public:
  using Key = std::pair<int, int>;  // layer, micro-batch
  // Tensors on their way into `layer` (forward), or the gradient of its output (backward). `transfers` are the receives
  // that fill them, or the sends that read them.
  struct Flow {
    Held tensors;
    std::vector<Pending> transfers;
  };
  std::map<Key, Flow> forward;
  std::map<Key, Flow> backward;
  std::map<Key, Passage> passages;
  std::map<Key, LeftGradients> left_gradients;
  // Sends under way and what they read; a key is the layer whose output (forward) or input (backward) is sent.
  std::map<Key, Flow> activation_sends;
  std::map<Key, Flow> gradient_sends;

  // Removes and returns, after waiting for its transfers.
  static Held take(std::map<Key, Flow>& flows, Key key, const char* what);
  // Waits for the send with this key, if there is one, and lets go of its tensors.
  static void finish(std::map<Key, Flow>& sends, Key key);
  static void finish_all(std::map<Key, Flow>& sends);
  // Waits for all that is sent or received.
  void finish_transfers();
  // Nothing may be left when a step has ended; throws Bug.
  void check_empty() const;
};

}  // namespace strata::runtime
