#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include <string>

namespace strata {

namespace {
std::string text(const MeshShape& shape) {
  return "a mesh of " + std::to_string(shape.pipeline) + " pipeline x " + std::to_string(shape.data) + " data x " +
         std::to_string(shape.tensor) + " tensor ranks";
}

bool inside(int index, int extent) {
  return index >= 0 && index < extent;
}
}  // namespace

MeshPlace place_of(const MeshShape& shape, int rank) {
  if (!inside(rank, shape.size())) throw Bug("there is no rank " + std::to_string(rank) + " in " + text(shape));
  return {rank / (shape.tensor * shape.data), rank / shape.tensor % shape.data, rank % shape.tensor};
}

int rank_of(const MeshShape& shape, const MeshPlace& place) {
  if (!inside(place.pipeline, shape.pipeline) || !inside(place.data, shape.data) || !inside(place.tensor, shape.tensor))
    throw Bug("there is no place " + std::to_string(place.pipeline) + ", " + std::to_string(place.data) + ", " +
              std::to_string(place.tensor) + " in " + text(shape));
  return (place.pipeline * shape.data + place.data) * shape.tensor + place.tensor;
}

}  // namespace strata
