// Parameters that share a key (dtypes, trainable, tie group) within a layer lie in one contiguous buffer, the flat
// parameter: the unit that is gathered, released and reduced. Its parameters are views into that buffer.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <strata/export.hpp>
#include <strata/parameter.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// Where the values are. Legal transitions; any other throws Bug naming the flat parameter:
//   Released -> Gathering   a gather has started (optional)
//   Released | Gathering -> Gathered   bind()
//   Gathered -> Gathered    bind() to other memory of equal contents
//   Gathered -> Released    unbind(); touching a parameter then throws instead of reading stale memory
enum class Residence { Released, Gathering, Gathered };

// Where this step's gradient is. The engine moves it; strategies only see the calls that cause it:
//   Empty -> Lent          Partitioner::gradient, first micro-batch
//   Partial -> Lent        Partitioner::gradient, later micro-batches
//   Lent -> Partial | Reducing   Partitioner::reduce, not last | last
//   Reducing -> Complete   Partitioner::finish_gradients
//   Complete -> Empty      the optimizer's step
enum class GradientState { Empty, Lent, Partial, Reducing, Complete };

// One parameter's range within its flat parameter.
struct ParameterSpan {
  ParameterInfo info;
  std::int64_t offset = 0;  // elements from the flat parameter's begin
};

struct FlatParameterInfo {
  int id = 0;                 // index in this rank's list
  std::string name;           // "layer 3", "layer 3 (frozen)", "tie embedding"
  std::vector<int> layers;    // the layers of this rank that use it, ascending, by number in the whole model
  std::int64_t elements = 0;  // sum over parameters, no padding
  bool trainable = true;
  DTypes dtypes;
  std::vector<ParameterSpan> parameters;  // ascending offsets, no holes
};

class STRATA_EXPORT FlatParameter {
 public:
  // Makes the parameters on `device` with no memory behind them (Released).
  FlatParameter(FlatParameterInfo info, at::Device device);
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  const FlatParameterInfo& info() const { return info_; }
  std::int64_t elements() const { return info_.elements; }
  std::int64_t bytes() const;  // elements x size of the parameter dtype
  Residence residence() const { return residence_; }
  // The parameters, in the order of info().parameters: leaf variables that require gradients when trainable.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // Notes that a gather is under way.
  void gathering();
  // Points every parameter at `memory`: contiguous, parameter dtype, this device, at least elements() long. The memory
  // must stay until unbind() or the next bind(). Costs no copy.
  void bind(const at::Tensor& memory);
  void unbind();

  GradientState gradient_state() const { return gradient_state_; }
  // Lets every parameter accumulate into its range of `buffer` (elements() long, any floating dtype), or into nothing
  // (undefined).
  void set_gradient_buffer(const at::Tensor& buffer);
  void move_gradient(GradientState to);

 private:
  FlatParameterInfo info_;
  Residence residence_ = Residence::Released;
  GradientState gradient_state_ = GradientState::Empty;
  c10::Storage storage_;     // shared by all parameters; repointed by bind
  at::Tensor bound_memory_;  // keeps what storage_ points at alive
  std::vector<at::Tensor> parameters_;
};

STRATA_EXPORT const char* to_string(Residence residence);
STRATA_EXPORT const char* to_string(GradientState state);

}  // namespace strata
