// A buffer that outlives an instruction of the step has a home: this rank's device, or another memory tier that the
// config chooses (`offload`). It has a tensor only while it is on the device: always if that is its home, otherwise
// only between the calls that its user's contract lists (<strata/partitioner.hpp>).
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

  // Returns the whole buffer. Throws Bug while it is away. Its address may change each time it comes back.
  const at::Tensor& tensor() const;
  bool here() const { return tensor_.defined(); }
  const std::string& name() const { return name_; }  // for messages

  // Attaches or detaches the memory. Only the engine, which owns the buffer, calls them.
  void bring(at::Tensor tensor) { tensor_ = std::move(tensor); }
  void take_away() { tensor_ = at::Tensor(); }

 private:
  std::string name_;
  at::Tensor tensor_;
};

// Elements [begin, begin + elements) of a buffer.
struct STRATA_EXPORT BufferRange {
  Buffer* buffer = nullptr;  // null: no buffer, e.g. the gradient of a frozen parameter
  std::int64_t begin = 0;
  std::int64_t elements = 0;
  at::Tensor tensor() const;  // elements of the range; needs a buffer; throws Bug while it is away
};

}  // namespace strata
