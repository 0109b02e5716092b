#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include <algorithm>

namespace strata {

std::vector<Axis> axes_without(std::initializer_list<Axis> left_out) {
  std::vector<Axis> others;
  for (const Axis axis : axes)
    if (std::ranges::find(left_out, axis) == left_out.end()) others.push_back(axis);
  return others;
}

std::vector<Axis> axes_where(bool AxisInfo::*fact) {
  std::vector<Axis> found;
  for (const AxisInfo& info : axis_table)
    if (info.*fact) found.push_back(info.axis);
  return found;
}

std::string text_of(const MeshShape& shape) {
  std::string text;
  for (const Axis axis : axes) text += format("{}{} {}", text.empty() ? "" : " x ", name_of(axis), shape.size(axis));
  return text;
}

MeshPlace place_of(const MeshShape& shape, int rank) {
  if (rank < 0 || rank >= shape.size()) throw Bug("there is no rank {} in a mesh of {}", rank, text_of(shape));
  MeshPlace place;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    place.set(*axis, rank % shape.size(*axis));
    rank /= shape.size(*axis);
  }
  return place;
}

int rank_of(const MeshShape& shape, const MeshPlace& place) {
  int rank = 0;
  for (const Axis axis : axes) {
    if (place.at(axis) < 0 || place.at(axis) >= shape.size(axis))
      throw Bug("there is no {} index {} in a mesh of {}", name_of(axis), place.at(axis), text_of(shape));
    rank = rank * shape.size(axis) + place.at(axis);
  }
  return rank;
}

std::vector<int> ranks_along(const MeshShape& shape, const MeshPlace& place, const std::vector<Axis>& along) {
  std::vector<int> ranks;
  for (int rank = 0; rank < shape.size(); ++rank) {
    const MeshPlace other = place_of(shape, rank);
    const bool same = std::ranges::all_of(axes, [&](Axis axis) {
      return other.at(axis) == place.at(axis) || std::ranges::find(along, axis) != along.end();
    });
    if (same) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> data_parallel_ranks(const MeshShape& shape, const MeshPlace& place) {
  return ranks_along(shape, place, axes_where(&AxisInfo::same_parameters));
}

int data_parallel_rank(const MeshShape& shape, const MeshPlace& place) {
  int index = 0;
  for (const Axis axis : axes_where(&AxisInfo::same_parameters)) index = index * shape.size(axis) + place.at(axis);
  return index;
}

}  // namespace strata
