#pragma once
#include <strata/export.hpp>
#include <strata/group.hpp>

namespace strata {

// An optimizer whose units tensor-parallel ranks update together: a class that is an Optimizer and this one. Where a
// unit of a parameter is made of equal parts, one of each rank, that part is a unit of the rank's part of the
// parameter: ranks at the same place of the data axis get pieces with parts of the same units. step() is then
// [collective] over the tensor-parallel ranks, in a dry run too. What lies in the parts of several ranks in another way
// is refused, as for any optimizer.
class STRATA_EXPORT TensorUnits {
 public:
  virtual ~TensorUnits();
  // Once, before the first step(), where there are tensor-parallel ranks. `group`: they, in the order of their parts.
  virtual void connect_tensor(Group& group) = 0;
};

}  // namespace strata
