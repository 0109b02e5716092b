// Buffers of a partitioner in the hardest case: buffers that are not resident are away except in the calls
// that <strata/partitioner.hpp> lists, come back at another address each time, and leave NaN at the old
// one.
#pragma once
#include <strata/partitioner.hpp>

#include <deque>
#include <memory>

namespace strata::fakes {

class RestingBuffers {
 public:
  explicit RestingBuffers(StateStore& store) : store_(store) {}

  Buffer& make(const BufferRequest& request);
  // Brings all buffers of this category and flat parameter. Without its contents a buffer comes back full of NaN. Does
  // nothing for a buffer that is on the device.
  void bring(Category category, const FlatParameter& flat, bool contents = true);
  void take_away(Category category, const FlatParameter& flat);
  // Returns the range, in its buffer's home or on the device.
  at::Tensor at_rest(const BufferRange& range) const;

 private:
  struct Resting {
    BufferRequest request;
    at::Tensor memory;
    Buffer buffer;
    Resting(const BufferRequest& asked, at::Tensor at, std::string name)
        : request(asked), memory(std::move(at)), buffer(std::move(name)) {}
  };
  template <class Work>
  void each(Category category, const FlatParameter& flat, Work&& work);

  StateStore& store_;
  std::deque<Resting> buffers_;
};

// Returns `partitioner` with its buffers fetched and stored around its calls.
std::unique_ptr<Partitioner> with_buffers(Partitioner& partitioner, RestingBuffers& buffers);

}  // namespace strata::fakes
