// A buffer that outlives an instruction of the step rests at its home: this rank's device, or another memory tier if
// the config says so (`offload`). It has a tensor only while it is here: always if its home is the device, else between
// the calls that its user's contract names (<strata/partitioner.hpp>).
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/export.hpp>

#include <cstdint>
#include <string>

namespace strata {

class STRATA_EXPORT Buffer {
 public:
  explicit Buffer(std::string name) : name_(std::move(name)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // The whole buffer. Throws Bug while it is away. Its address may change each time that it comes back.
  const at::Tensor& tensor() const;
  bool here() const { return tensor_.defined(); }
  const std::string& name() const { return name_; }  // in messages

  // For its owner, the engine.
  void bring(at::Tensor tensor) { tensor_ = std::move(tensor); }
  void take_away() { tensor_ = at::Tensor(); }

 private:
  std::string name_;
  at::Tensor tensor_;
};

// Elements [begin, begin + elements) of a buffer.
struct STRATA_EXPORT BufferRange {
  Buffer* buffer = nullptr;  // null: there is none, as a frozen parameter has no gradient
  std::int64_t begin = 0;
  std::int64_t elements = 0;
  at::Tensor tensor() const;  // throws Bug while the buffer is away
};

}  // namespace strata
