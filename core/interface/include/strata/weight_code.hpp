#pragma once
#include <ATen/core/Tensor.h>
#include <strata/export.hpp>
#include <strata/parameter.hpp>

namespace strata {

// Byte code for weights sent between ranks: each element is sent as the byte to which every product rounds it anyway.
// Implemented by a PrecisionPolicy, whose class derives from both. A partitioner that gathers parameters gets it by
// PluginContext::extension(WeightCode::id), in its constructor or later; null if the run's policy is not a WeightCode.
//
// `magnitude` is the largest absolute value in the whole weight, or in a tensor-parallel rank's part of it: fp32,
// 0-dimensional, equal on all ranks, and infinite if an element is not finite. Updates and checkpoints use the weights
// themselves.
class STRATA_EXPORT WeightCode {
 public:
  static constexpr const char* id = "strata.weight_code/1";
  virtual ~WeightCode();
  // True if any weight is to travel in the code. Depends only on the options. [any rank]
  virtual bool is_wanted() const = 0;
  // True if `weight` travels in the code, if any does. Pure once PrecisionPolicy::attach() has returned. [any rank]
  virtual bool travels(const ParameterInfo& weight) const = 0;
  // Announces, before the first step, that all products of this run get values of decode() for `weight`. [any rank]
  virtual void comes_decoded(const ParameterInfo& weight) = 0;
  // Converts consecutive elements of a weight, in its dtype, to one byte each, or back; both contiguous. Runs on the
  // current stream; does nothing on meta tensors. Products of decoded values equal, bit for bit, those of the weight
  // scaled by its magnitude. [any rank]
  virtual void encode(const at::Tensor& values, const at::Tensor& magnitude, const at::Tensor& bytes) const = 0;
  virtual void decode(const at::Tensor& bytes, const at::Tensor& magnitude, const at::Tensor& values) const = 0;
};

}  // namespace strata
