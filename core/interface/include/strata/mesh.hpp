// The ranks of a run form a grid of pipeline x data x tensor. The tensor index varies fastest, then data, then
// pipeline: rank = (pipeline * shape.data + data) * shape.tensor + tensor, as in Megatron, so that the axis with the
// most traffic stays within a node.
#pragma once
#include <strata/export.hpp>

namespace strata {

struct MeshShape {
  int pipeline = 1;
  int data = 1;
  int tensor = 1;
  int size() const { return pipeline * data * tensor; }
};

struct MeshPlace {
  int pipeline = 0;
  int data = 0;
  int tensor = 0;
};

// Returns the coordinates of `rank`; throws Bug if it is outside the mesh.
STRATA_EXPORT MeshPlace place_of(const MeshShape& shape, int rank);
STRATA_EXPORT int rank_of(const MeshShape& shape, const MeshPlace& place);

}  // namespace strata
