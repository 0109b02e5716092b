// The ranks of a run form a grid with one axis for each kind of parallelism. The ranks are numbered with the last axis
// varying fastest, as in Megatron, so that the axis with the most traffic stays within a node.
#pragma once
#include <strata/export.hpp>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Shared by ranks that differ only in their index along this axis:
//   pipeline   nothing: each has other layers (a stage)
//   data       the parameters of their layers; each trains on other samples, so gradients are summed over them
//   tensor     the samples; each has a part of the same parameters, or the same whole ones
enum class Axis { Pipeline, Data, Tensor };

struct AxisInfo {
  Axis axis;
  std::string_view name;   // in the key parallel.NAME, in checkpoints, in names of groups and in messages
  std::string_view ranks;  // what its ranks are called
  std::string_view share;  // what each of them does, for the key's documentation
};

// All axes, indexed by enumerator, the slowest first.
inline constexpr std::array<AxisInfo, 3> axis_table{{
    {Axis::Pipeline, "pipeline", "pipeline stages", "each with its own layers"},
    {Axis::Data, "data", "data-parallel ranks", "each with its own samples"},
    {Axis::Tensor, "tensor", "tensor-parallel ranks",
     "which split the heads, the MLP channels and the vocabulary of each layer"},
}};
inline constexpr std::array<Axis, axis_table.size()> axes = [] {
  std::array<Axis, axis_table.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = axis_table[i].axis;
  return all;
}();
constexpr const AxisInfo& info_of(Axis axis) {
  return axis_table[static_cast<std::size_t>(axis)];
}
constexpr std::string_view name_of(Axis axis) {
  return info_of(axis).name;
}
STRATA_EXPORT std::vector<Axis> axes_without(std::initializer_list<Axis> left_out);

// One number for each axis; `Default` for axes that are not given.
template <int Default>
class AxisNumbers {
 public:
  struct Number {
    Axis axis;
    int value;
  };
  constexpr AxisNumbers() { numbers_.fill(Default); }
  constexpr AxisNumbers(std::initializer_list<Number> numbers) : AxisNumbers() {
    for (const Number& number : numbers) set(number.axis, number.value);
  }
  constexpr void set(Axis axis, int value) { numbers_[static_cast<std::size_t>(axis)] = value; }
  constexpr bool operator==(const AxisNumbers&) const = default;

 protected:
  constexpr int number(Axis axis) const { return numbers_[static_cast<std::size_t>(axis)]; }

 private:
  std::array<int, axes.size()> numbers_{};
};

// Number of ranks along each axis: MeshShape{{Axis::Data, 4}, {Axis::Tensor, 2}}.
class MeshShape : public AxisNumbers<1> {
 public:
  using AxisNumbers::AxisNumbers;
  constexpr int size(Axis axis) const { return number(axis); }
  constexpr int size() const {
    int ranks = 1;
    for (const Axis axis : axes) ranks *= size(axis);
    return ranks;
  }
};

// Index of a rank along each axis, from 0.
class MeshPlace : public AxisNumbers<0> {
 public:
  using AxisNumbers::AxisNumbers;
  constexpr int at(Axis axis) const { return number(axis); }
  // Returns this place with another index along one axis.
  constexpr MeshPlace with(Axis axis, int index) const {
    MeshPlace moved = *this;
    moved.set(axis, index);
    return moved;
  }
};

// Returns the place of `rank`; throws Bug if it is outside the mesh.
STRATA_EXPORT MeshPlace place_of(const MeshShape& shape, int rank);
STRATA_EXPORT int rank_of(const MeshShape& shape, const MeshPlace& place);
// Returns the ranks whose places differ from `place` at most along the axes `along`, in ascending order.
STRATA_EXPORT std::vector<int> ranks_along(const MeshShape& shape, const MeshPlace& place,
                                           const std::vector<Axis>& along);
// Returns "pipeline 2 x data 4 x tensor 1".
STRATA_EXPORT std::string text_of(const MeshShape& shape);

}  // namespace strata
