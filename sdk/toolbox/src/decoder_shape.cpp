#include <strata/error.hpp>
#include <strata/toolbox/decoder.hpp>

#include <string>
#include <utility>

namespace strata {
namespace {

void check_rotation(const RotaryShape& rotary, std::int64_t head_size) {
  if (rotary.fraction < 0.0 || rotary.fraction > 1.0)
    throw UserError("model rotary_fraction is {}; it must be between 0 and 1", rotary.fraction);
  if (rotary.dimensions(head_size) % 2 != 0)
    throw UserError("model rotary_fraction {} of a head of {} dimensions rotates {} of them; the number must be even",
                    rotary.fraction, head_size, rotary.dimensions(head_size));
}

}  // namespace

std::int64_t RotaryShape::dimensions(std::int64_t head_size) const {
  return static_cast<std::int64_t>(static_cast<double>(head_size) * fraction);
}

void DecoderShape::check() const {
  const auto layers = static_cast<std::int64_t>(blocks.size());
  for (const auto& [name, value] :
       {std::pair("hidden_size", hidden), std::pair("layers", layers), std::pair("heads", heads),
        std::pair("intermediate_size", intermediate), std::pair("vocabulary", vocabulary)})
    if (value <= 0)
      throw UserError("model {} is not set: set it, choose a preset, or set model.init to a folder with a config.json",
                      name);
  // As a double, since a product of two sizes may not fit an integer.
  const double weights = 2.0 * static_cast<double>(vocabulary) * static_cast<double>(hidden) +
                         static_cast<double>(layers) * static_cast<double>(hidden) *
                             (static_cast<double>(hidden) + static_cast<double>(intermediate));
  constexpr double most_weights = 1e15;
  if (weights > most_weights)
    throw UserError(
        "model hidden_size {}, intermediate_size {}, layers {} and vocabulary {} give more than 1e15 weights; check "
        "these sizes and the config.json",
        hidden, intermediate, layers, vocabulary);
  if (head_size <= 0)
    throw UserError("model hidden_size {} is not divisible by heads {}; change one of the two", hidden, heads);
  if (key_value_heads <= 0 || heads % key_value_heads != 0)
    throw UserError("model heads {} is not divisible by key_value_heads {}; change one of the two", heads,
                    key_value_heads);
  for (const BlockShape& block : blocks) {
    check_rotation(block.rotary, head_size);
    strata_check(projections != Projections::ByKind || block.rotary.dimensions(head_size) == 0,
                 "heads whose projections are stored by kind are not rotated");
  }
}

}  // namespace strata
