// The random source of drawn worlds. A world is a function of the choices that it takes from here, so that all kinds
// share one way to shrink a world (shrink.hpp) and to carry it out again (replay.hpp): both work on the choices alone.
#pragma once
#include <strata/fakes/plugin_library.hpp>

#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace strata::conformance {

// Numbers, each of which is a distance from what a draw calls simplest.
using Choices = std::vector<std::uint64_t>;

class Draws {
 public:
  // At random, the same for the same seed.
  explicit Draws(std::uint64_t seed) : random_(seed), is_random_(true) {}
  // What was chosen before; the simplest where nothing is left.
  explicit Draws(Choices given) : given_(std::move(given)) {}

  // Simplest: `least`.
  std::int64_t between(std::int64_t least, std::int64_t most);
  // True in one of `in` cases. Simplest: false.
  bool chance(int in) { return between(0, in - 1) == in - 1; }
  // Simplest: the first.
  template <class Value>
  Value pick(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
  // From 1 to `most`, mostly at, near or between powers of two. Simplest: 1.
  std::int64_t size(std::int64_t most);
  // Settings of these options, each at its default or not; whole numbers are 0 or at least `least`. A plugin may refuse
  // them.
  fakes::OptionTexts options(const std::vector<OptionSpec>& specs, std::int64_t least = 1);

  // What was chosen so far.
  const Choices& chosen() const { return chosen_; }
  // Calls it with every choice before anything comes of it: for a world that may not come back.
  void tell(std::function<void(std::uint64_t choice)> listener) { listener_ = std::move(listener); }

 private:
  std::mt19937_64 random_;
  bool is_random_ = false;
  Choices given_;
  Choices chosen_;
  std::function<void(std::uint64_t)> listener_;
};

// A well-mixed number of these: for values whose order and place must show.
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b = 0) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U + b;
  for (const std::uint64_t factor : {0xBF58476D1CE4E5B9U, 0x94D049BB133111EBU}) x = (x ^ (x >> 30)) * factor;
  return x ^ (x >> 31);
}

}  // namespace strata::conformance
