// Buffers as the engine gives them to a partitioner, at their hardest: those that are not resident are away outside the
// calls that <strata/partitioner.hpp> names, come back at another address each time, and what is left behind there is
// not a number.
#pragma once
#include <strata/partitioner.hpp>

#include <deque>
#include <memory>

namespace strata::fakes {

class RestingBuffers {
 public:
  explicit RestingBuffers(StateStore& store) : store_(store) {}

  Buffer& make(const BufferRequest& request);
  // All buffers of this category and flat parameter. Without its contents a buffer comes back full of what is not a
  // number. Bringing one that is here does nothing.
  void bring(Category category, const FlatParameter& flat, bool contents = true);
  void take_away(Category category, const FlatParameter& flat);
  // The range where its buffer rests, or where it is here.
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

// `partitioner` with the buffers brought and taken away around its calls.
std::unique_ptr<Partitioner> with_buffers(Partitioner& partitioner, RestingBuffers& buffers);

}  // namespace strata::fakes
