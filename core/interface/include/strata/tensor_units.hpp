#pragma once
#include <strata/export.hpp>
#include <strata/group.hpp>

namespace strata {

// Interface of an optimizer whose units tensor-parallel ranks update together; its class derives from Optimizer and
// from this class. If a unit of a parameter consists of equal parts, one on each rank, each part counts as a unit of
// that rank's part of the parameter, and ranks with the same index on the data axis get pieces with parts of the same
// units. step() is then [collective] over the tensor-parallel ranks, in a dry run too. The engine refuses units that
// are divided among ranks in another way, as it does for any optimizer.
class STRATA_EXPORT TensorUnits {
 public:
  virtual ~TensorUnits();
  // Passes the group of tensor-parallel ranks, in the order of their parts. Called once, before the first step().
  virtual void connect_tensor(Group& group) = 0;
};

}  // namespace strata
