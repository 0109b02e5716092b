#pragma once
#include <ATen/core/Tensor.h>
#include <strata/export.hpp>
#include <strata/parameter.hpp>

namespace strata {

// How weights travel between ranks in the byte to which every product rounds them anyway: a class that is a
// PrecisionPolicy and this one. A partitioner that gathers parameters asks for that of its run by
// PluginContext::extension(WeightCode::id), in its constructor or later; null if the policy is none.
//
// `magnitude` is the largest of the whole weight, or of a tensor-parallel rank's part of it: fp32, 0-dimensional, equal
// on all ranks, and infinite where a number is not finite. What is updated and saved are the weights themselves.
class STRATA_EXPORT WeightCode {
 public:
  static constexpr const char* id = "strata.weight_code/1";
  virtual ~WeightCode();
  // Whether any weight is to travel so. Depends on the options alone. [any rank]
  virtual bool is_wanted() const = 0;
  // Whether this one is, if any. Pure once PrecisionPolicy::attach() has returned. [any rank]
  virtual bool travels(const ParameterInfo& weight) const = 0;
  // Before the first step: in this run all products get what decode() made of this weight. [any rank]
  virtual void comes_decoded(const ParameterInfo& weight) = 0;
  // Neighbours of a weight, in its dtype, and a byte for each; both contiguous. They run on the current stream and do
  // nothing on meta tensors. A product of decoded values is, bit for bit, that of the weight scaled by its magnitude.
  // [any rank]
  virtual void encode(const at::Tensor& values, const at::Tensor& magnitude, const at::Tensor& bytes) const = 0;
  virtual void decode(const at::Tensor& bytes, const at::Tensor& magnitude, const at::Tensor& values) const = 0;
};

}  // namespace strata
