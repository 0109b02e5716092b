#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// A copy of a tensor in memory with marked bytes on both sides.
class Guarded {
 public:
  // Begins `shift` elements after a boundary of 64 bytes.
  Guarded(std::string name, const at::Tensor& values, std::size_t shift)
      : name_(std::move(name)), bytes_(values.nbytes()) {
    memory_ = std::make_shared<std::vector<std::byte>>(bytes_ + 2 * margin, mark);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_->data());
    begin_ = 64 - address % 64 + shift * values.element_size();
    if (bytes_ > 0) std::memcpy(memory_->data() + begin_, values.const_data_ptr(), bytes_);
    tensor_ = at::from_blob(memory_->data() + begin_, values.sizes(), values.options());
  }
  const at::Tensor& tensor() const { return tensor_; }
  const std::string& name() const { return name_; }
  // Throws Failure if a byte outside was written.
  void check() const {
    for (std::size_t i = 0; i < memory_->size(); ++i) {
      if ((i >= begin_ && i < begin_ + bytes_) || (*memory_)[i] == mark) continue;
      const std::size_t distance = i < begin_ ? begin_ - i : i - begin_ - bytes_ + 1;
      throw Failure("byte " + std::to_string(distance) + (i < begin_ ? " before the " : " behind the ") + name_ +
                    " was written; that memory belongs to other pieces");
    }
  }

 private:
  static constexpr std::byte mark{0xA5};
  static constexpr std::size_t margin = 256;  // bytes on each side

  std::string name_;
  std::size_t bytes_;
  std::size_t begin_ = 0;
  std::shared_ptr<std::vector<std::byte>> memory_;
  at::Tensor tensor_;
};

}  // namespace strata::conformance
