#pragma once
#include <strata/offload_device.hpp>
#include <strata/optimizer.hpp>
#include <strata/partitioner.hpp>

#include <string>
#include <vector>

namespace strata::state {

// The master weights and the optimizer's state of the slices that this rank owns, cut at parameter borders into pieces:
// what the optimizer updates, what is filled at the start, what exports and checkpoints read. They lie in the state
// store or, with an offload device, in a region of it.
class OptimizerState {
 public:
  // `offload` may be null. Frozen slices get pieces without state. Throws UserError when the optimizer needs more than
  // single elements whole and a slice cuts a parameter.
  OptimizerState(const std::vector<Slice>& slices, const Optimizer& optimizer, StateStore& store,
                 OffloadDevice* offload);
  ~OptimizerState();
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;

  // One parameter's part of one slice.
  struct Entry {
    Piece piece;
    FlatParameter* flat = nullptr;
    bool trainable = true;
    bool writes_copy = false;  // master and parameter are different memory
    std::int64_t counted_begin =
        0;                         // the part of the piece that this rank counts in norms and writes to files: over the
    std::int64_t counted_end = 0;  // data-parallel ranks every element once; possibly empty
  };
  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }

  // Rounds an entry's master into the parameter's memory, after the master was filled or loaded.
  static void write_parameter(Entry& entry);

 private:
  at::Tensor allocate(const std::string& owner, std::int64_t elements, at::ScalarType dtype);
  void add_slice(const Slice& slice, const Optimizer& optimizer);

  StateStore& store_;
  OffloadDevice* offload_;
  std::vector<Region> regions_;
  std::vector<Entry> entries_;
};

}  // namespace strata::state
