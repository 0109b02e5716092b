#pragma once
#include "runner/case.hpp"

namespace strata::conformance::optimizer_checks {

// cuts.cpp: results do not depend on how parameters are cut, or which instance has which piece.
void units_are_of_parameters(Subject& subject);
void slices_equal_whole(Subject& subject);
void pieces_do_not_mix(Subject& subject);
void restarts_from_state(Subject& subject);
// sums.cpp: sums and states of whole parameters.
void sums_are_of_parameters(Subject& subject);
void measure_only_measures(Subject& subject);
void whole_states_agree(Subject& subject);
// memory.cpp: which bytes are written.
void state_is_per_element(Subject& subject);
void writes_in_place(Subject& subject);
void touches_only_its_piece(Subject& subject);
// scalars.cpp: the step's scalars.
void gradient_factor(Subject& subject);
void apply_zero(Subject& subject);
void learning_rate_zero(Subject& subject);
void learning_rate_factor(Subject& subject);
void scheduled_momentum(Subject& subject);
void weight_decay_of_a_piece(Subject& subject);
// formats.cpp: numbers of 16 bits.
void rounded_copy(Subject& subject);
void sixteen_bit_gradients(Subject& subject);
void sixteen_bit_master(Subject& subject);
// tensor_parts.cpp: parts of a parameter, which tensor-parallel ranks have.
void tensor_parts(Subject& subject);
// trained_weights.cpp: weights to train at that are not the master weights.
void trained_weights(Subject& subject);
// descent.cpp, formula.cpp: the update itself.
void goes_down(Subject& subject);
void known_formula(Subject& subject);

}  // namespace strata::conformance::optimizer_checks
