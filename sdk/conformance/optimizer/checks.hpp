#pragma once
#include "conformance/runner/case.hpp"

namespace strata::conformance::optimizer_checks {

// drawn.cpp: results depend neither on how parameters are cut, nor on which instance has which piece, nor on formats.
void drawn_updates_are_right(Subject& subject);
// formats.cpp: properties that no drawn update shows.
void sixteen_bit_master(Subject& subject);
// tensor_parts.cpp: parts of a parameter on tensor-parallel ranks.
void tensor_parts(Subject& subject);
// descent.cpp, formula.cpp: the update itself.
void goes_down(Subject& subject);
void known_formula(Subject& subject);

}  // namespace strata::conformance::optimizer_checks
