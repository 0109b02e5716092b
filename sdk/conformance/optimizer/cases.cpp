#include "optimizer/checks.hpp"

namespace strata::conformance {

using namespace optimizer_checks;

std::vector<Case> optimizer_cases() {
  return {
      {"optimizer.units_are_of_parameters", "unit() gives the same number, at least 1, for every piece of a parameter.",
       units_are_of_parameters},
      {"optimizer.state_is_per_element",
       "state() gives unique names, valid number formats and blocks that units hold whole, the same for every piece of "
       "a "
       "parameter.",
       state_is_per_element},
      {"optimizer.sums_are_of_parameters", "sums() gives the same number for every piece of a parameter.",
       sums_are_of_parameters},
      {"optimizer.measure_only_measures", "measure() adds to the sums and changes nothing else.",
       measure_only_measures},
      {"optimizer.whole_states_agree", "All pieces of a parameter end a step with equal copies of its whole states.",
       whole_states_agree},
      {"optimizer.writes_in_place", "step() writes into the given tensors instead of replacing them.", writes_in_place},
      {"optimizer.touches_only_its_piece",
       "step() changes no bytes outside the piece, nor its gradient or description, at any length and address.",
       touches_only_its_piece},
      {"optimizer.slices_equal_whole",
       "A parameter cut into pieces gets the same bits as a whole one, on one instance or several; with sums, 1e-6.",
       slices_equal_whole},
      {"optimizer.pieces_do_not_mix",
       "Parameters that alternate on one instance get the same bits as on instances of their own.", pieces_do_not_mix},
      {"optimizer.restarts_from_state",
       "A new instance continues with the same bits from the tensors, the saved state and the number of updates.",
       restarts_from_state},
      {"optimizer.gradient_factor", "Gradients are multiplied by gradient_factor exactly once.", gradient_factor},
      {"optimizer.apply_zero", "A step with apply 0 changes nothing, whatever the gradient holds, and is not counted.",
       apply_zero},
      {"optimizer.learning_rate_zero", "A learning rate of 0 leaves parameters unchanged.", learning_rate_zero},
      {"optimizer.learning_rate_factor", "A piece's learning_rate_factor multiplies the learning rate.",
       learning_rate_factor},
      {"optimizer.scheduled_momentum", "A scheduled momentum replaces the option's.", scheduled_momentum},
      {"optimizer.weight_decay_of_a_piece", "A piece's own weight_decay replaces the option's, also if it is 0.",
       weight_decay_of_a_piece},
      {"optimizer.rounded_copy", "The parameter is the master rounded to nearest, ties to even.", rounded_copy},
      {"optimizer.tensor_parts", "The parts that tensor-parallel ranks have get the update of the whole parameter.",
       tensor_parts},
      {"optimizer.trained_weights",
       "write_trained() writes the parameter that step() wrote, bit for bit, and nothing else.", trained_weights},
      {"optimizer.sixteen_bit_gradients", "16-bit gradients give the same result as the same values in fp32.",
       sixteen_bit_gradients},
      {"optimizer.sixteen_bit_master", "A bf16 master is updated in fp32 and rounded once.", sixteen_bit_master},
      {"optimizer.goes_down", "Steps along the gradient of a quadratic function decrease it.", goes_down},
      {"optimizer.known_formula", "AdamW and SGD steps match the published formulas in fp64 up to fp32 rounding.",
       known_formula},
  };
}

}  // namespace strata::conformance
