// The parameters of a layer that have the same key (dtypes, trainable, tie group) share one contiguous buffer, the flat
// parameter: the unit of gathering, releasing and reducing. Each parameter is a view into that buffer.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <strata/export.hpp>
#include <strata/parameter_cut.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// State of the full values in memory. Legal transitions; any other throws Bug naming the flat parameter:
//   Released -> Gathering   a gather has started (optional)
//   Released | Gathering -> Gathered   bind()
//   Gathered -> Gathered    bind() to other memory with equal contents (the engine also binds copies of older values)
//   Gathered -> Released    unbind(); touching a parameter then throws instead of reading stale memory
enum class Residence { Released, Gathering, Gathered };

// State of the gradient of the next update. The engine changes it at these calls; partitioners never do:
//   Empty -> Lent          Partitioner::gradient, first micro-batch of an update
//   Partial -> Lent        Partitioner::gradient, later micro-batches
//   Lent -> Partial | Reducing   Partitioner::reduce, not last | last
//   Reducing -> Complete   Partitioner::finish_gradient
//   Complete -> Empty      the optimizer's step, or the engine copies it for the update of the next step
enum class GradientState { Empty, Lent, Partial, Reducing, Complete };

// One parameter's range within its flat parameter: the part that this tensor-parallel rank keeps.
struct ParameterSpan {
  ParameterInfo info;       // the whole parameter
  std::int64_t offset = 0;  // elements from the start of the flat parameter
  int tensor_rank = 0;
  int tensor_ranks = 1;
  // Number of neighbouring elements that the optimizer updates together (Optimizer::unit). Slices begin and end at
  // multiples of it from the parameter's start, or at the parameter's end.
  std::int64_t unit = 1;

  ParameterCut cut() const { return {info, tensor_ranks}; }
  std::int64_t elements() const { return cut().elements(); }
};

struct FlatParameterInfo {
  int id = 0;                 // index in this rank's list
  std::string name;           // "layer 3", "layer 3 (frozen)", "tie embedding"
  std::vector<int> layers;    // layers of this rank that use it, ascending, numbered in the whole model
  std::int64_t elements = 0;  // sum over parameters, no padding
  bool trainable = true;
  bool deferred = false;  // gradient is computed in BackwardWeight if the schedule splits the backward
  DTypes dtypes;
  std::vector<ParameterSpan> parameters;  // ascending offsets, no holes

  // Returns a place where a slice may begin or end: cut_up_to() the last such place at or before `at`, cut_behind() the
  // first one after it, at most `elements`.
  STRATA_EXPORT std::int64_t cut_up_to(std::int64_t at) const;
  STRATA_EXPORT std::int64_t cut_behind(std::int64_t at) const;
};

class STRATA_EXPORT FlatParameter {
 public:
  // Creates the parameters on `device` without memory (Released).
  FlatParameter(FlatParameterInfo info, at::Device device);
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  const FlatParameterInfo& info() const { return info_; }
  std::int64_t elements() const { return info_.elements; }
  std::int64_t bytes() const;  // elements x size of the parameter dtype
  Residence residence() const { return residence_; }
  // Returns the parameters in the order of info().parameters: leaf variables that require gradients if trainable.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // Records that a gather has started.
  void gathering();
  // Points every parameter at `memory`: contiguous, parameter dtype, this device, at least elements() long. The memory
  // must stay alive until unbind() or the next bind(). Copies nothing. Throws Bug for other memory.
  void bind(const at::Tensor& memory);
  // Returns the memory given to bind(); undefined while unbound.
  const at::Tensor& memory() const { return bound_memory_; }
  void unbind();

  GradientState gradient_state() const { return gradient_state_; }
  // Makes every parameter accumulate its gradient into its range of `buffer` (elements() long, any floating dtype); an
  // undefined tensor removes the buffer.
  void set_gradient_buffer(const at::Tensor& buffer);
  void move_gradient(GradientState to);

 private:
  FlatParameterInfo info_;
  Residence residence_ = Residence::Released;
  GradientState gradient_state_ = GradientState::Empty;
  c10::Storage storage_;     // shared by all parameters; repointed by bind
  at::Tensor bound_memory_;  // keeps alive the memory that storage_ points at
  std::vector<at::Tensor> parameters_;
};

STRATA_EXPORT const char* to_string(Residence residence);
STRATA_EXPORT const char* to_string(GradientState state);

}  // namespace strata
