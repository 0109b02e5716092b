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

enum class Axis { Pipeline, Data, Tensor };

struct AxisInfo {
  Axis axis;
  std::string_view name;   // in the key parallel.NAME, in checkpoints, in names of groups and in messages
  std::string_view ranks;  // what its ranks are called
  std::string_view share;  // what each of them does, for the key's documentation
  // Properties of ranks that differ only in their index along this axis:
  bool same_parameters;  // they hold the same parameters, which a partitioner may shard, and gradients are summed
  bool same_tokens;      // they read the same samples, so only one of them counts the tokens
  bool shares_layers;    // they compute each layer together; see ModelContext::group
};

// All axes, indexed by enumerator, the slowest first.
inline constexpr std::array<AxisInfo, 3> axis_table{{
    {.axis = Axis::Pipeline,
     .name = "pipeline",
     .ranks = "pipeline stages",
     .share = "each with its own layers",
     .same_parameters = false,
     .same_tokens = true,
     .shares_layers = false},
    {.axis = Axis::Data,
     .name = "data",
     .ranks = "data-parallel ranks",
     .share = "each with its own samples",
     .same_parameters = true,
     .same_tokens = false,
     .shares_layers = false},
    {.axis = Axis::Tensor,
     .name = "tensor",
     .ranks = "tensor-parallel ranks",
     .share = "which split the heads, the MLP channels and the vocabulary of each layer",
     .same_parameters = false,
     .same_tokens = true,
     .shares_layers = true},
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
// Returns all other axes.
STRATA_EXPORT std::vector<Axis> axes_without(std::initializer_list<Axis> left_out);
// Returns the axes with a property: axes_where(&AxisInfo::same_tokens).
STRATA_EXPORT std::vector<Axis> axes_where(bool AxisInfo::*fact);

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
  // Returns the number of ranks that hold the same parameters.
  constexpr int data_parallel() const {
    int ranks = 1;
    for (const AxisInfo& info : axis_table)
      if (info.same_parameters) ranks *= size(info.axis);
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

// Converts a rank to its place, or a place to its rank; throws Bug if it is outside the mesh.
STRATA_EXPORT MeshPlace place_of(const MeshShape& shape, int rank);
STRATA_EXPORT int rank_of(const MeshShape& shape, const MeshPlace& place);
// Returns the ranks whose places differ from `place` at most along the axes `along`, in ascending order.
STRATA_EXPORT std::vector<int> ranks_along(const MeshShape& shape, const MeshPlace& place,
                                           const std::vector<Axis>& along);
// Returns the ranks that hold the same parameters as the rank at `place`, in ascending order. A data-parallel rank is
// an index in this list.
STRATA_EXPORT std::vector<int> data_parallel_ranks(const MeshShape& shape, const MeshPlace& place);
// Returns the index of the rank at `place` in data_parallel_ranks().
STRATA_EXPORT int data_parallel_rank(const MeshShape& shape, const MeshPlace& place);
// Returns "pipeline 2 x data 4 x tensor 1".
STRATA_EXPORT std::string text_of(const MeshShape& shape);

}  // namespace strata
