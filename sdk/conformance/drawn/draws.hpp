// The random source of drawn worlds. A world is a function of the choices that it takes from here, so all kinds share
// the ways to shrink (shrink.hpp) and to repeat (replay.hpp) a world: both use only the choices.
#pragma once
#include <strata/fakes/plugin_library.hpp>

#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace strata::conformance {

// Choices as numbers, each the distance from the simplest result of its draw.
using Choices = std::vector<std::uint64_t>;

class Draws {
 public:
  // Draws at random, equally for equal seeds.
  explicit Draws(std::uint64_t seed) : random_(seed), is_random_(true) {}
  // Repeats earlier choices; the simplest ones after their end.
  explicit Draws(Choices given) : given_(std::move(given)) {}

  // Returns a number. Simplest: `least`.
  std::int64_t between(std::int64_t least, std::int64_t most);
  // Returns true in one of `in` cases. Simplest: false.
  bool chance(int in) { return between(0, in - 1) == in - 1; }
  // Returns one of the values. Simplest: the first.
  template <class Value>
  Value pick(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
  // Returns a number from 1 to `most`, mostly at, near or between powers of two. Simplest: 1.
  std::int64_t size(std::int64_t most);
  // Returns settings of these options, each at its default or not; whole numbers are 0 or at least `least`. A plugin
  // may refuse them.
  fakes::OptionTexts options(const std::vector<OptionSpec>& specs, std::int64_t least = 1);

  // Returns the choices so far.
  const Choices& chosen() const { return chosen_; }
  // Sets a function that gets every choice before it has an effect, for a world that may crash or hang.
  void tell(std::function<void(std::uint64_t choice)> listener) { listener_ = std::move(listener); }

 private:
  std::mt19937_64 random_;
  bool is_random_ = false;
  Choices given_;
  Choices chosen_;
  std::function<void(std::uint64_t)> listener_;
};

// Returns a well-mixed hash of these numbers, for values that reveal order and place.
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b = 0) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U + b;
  for (const std::uint64_t factor : {0xBF58476D1CE4E5B9U, 0x94D049BB133111EBU}) x = (x ^ (x >> 30)) * factor;
  return x ^ (x >> 31);
}

}  // namespace strata::conformance
