#pragma once
#include <strata/export.hpp>
#include <strata/group.hpp>

namespace strata {

// An optimizer whose units tensor-parallel ranks update together: a class that is an Optimizer and this one. If a unit
// of a parameter consists of equal parts, one on each rank, such a part is a unit of the rank's part of the parameter:
// ranks at the same place of the data axis get pieces with parts of the same units. step() is then [collective] over
// the tensor-parallel ranks, in a dry run too. Units that ranks share in another way are refused, as for any
// optimizer.
class STRATA_EXPORT TensorUnits {
 public:
  virtual ~TensorUnits();
  // Passes the group of tensor-parallel ranks, in the order of their parts. Called once, before the first step().
  virtual void connect_tensor(Group& group) = 0;
};

}  // namespace strata
