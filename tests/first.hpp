// The first of many numbers that is not what it should be, for a test that compares them on several ranks and steps:
//   First first;
//   first.expect(found, wanted, rank, step, "gradient of layer 3");
//   CHECK(first.text() == "");   // "rank 1, step 2, gradient of layer 3: element 12 is 3.5, 4 is wanted; 7 more
//   differ"
#pragma once
#include <ATen/ops/nonzero.h>

#include <cstdint>
#include <mutex>
#include <sstream>
#include <string>

// From any thread: the first is the one that is noticed first.
class First {
 public:
  // Compares values, in fp64; NaN equals nothing. `begin`: the number of the first element.
  void expect(const at::Tensor& found, const at::Tensor& wanted, int rank, std::int64_t step, const std::string& name,
              std::int64_t begin = 0) {
    const at::Tensor is = found.reshape({-1}).to(at::kDouble), should = wanted.reshape({-1}).to(at::kDouble);
    std::ostringstream text;
    text.precision(9);
    text << "rank " << rank << ", step " << step << ", " << name << ": ";
    if (is.numel() != should.numel()) {
      text << is.numel() << " elements, " << should.numel() << " are wanted";
      return add(text.str());
    }
    const at::Tensor wrong = at::nonzero(is.ne(should)).reshape({-1});
    if (wrong.numel() == 0) return;
    const auto at = wrong[0].item<std::int64_t>();
    text << "element " << begin + at << " is " << is[at].item<double>() << ", " << should[at].item<double>()
         << " is wanted; " << wrong.numel() - 1 << " more differ";
    add(text.str());
  }

  // Empty where all was as expected.
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = text;
  }
  mutable std::mutex mutex_;
  std::string text_;
};
