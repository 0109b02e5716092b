#include "optimizer/checks.hpp"

namespace strata::conformance {

using namespace optimizer_checks;

std::vector<Case> optimizer_cases() {
  return {
      {"optimizer.granularity_is_declared", "granularity() is what the manifest's capability says.",
       granularity_is_declared},
      {"optimizer.state_is_per_element",
       "state() gives names of its own and number formats, the same for every piece of a parameter.",
       state_is_per_element},
      {"optimizer.writes_in_place", "A step writes into the tensors it is given instead of replacing them.",
       writes_in_place},
      {"optimizer.touches_only_its_piece",
       "A step leaves the bytes beside a piece, its gradient and its description as they are, at any length and "
       "address.",
       touches_only_its_piece},
      {"optimizer.slices_equal_whole", "Any cut of a parameter gives the bits of the whole, on whichever instances.",
       slices_equal_whole},
      {"optimizer.pieces_do_not_mix", "Pieces stepped in turns get the bits they get alone, each by its own factors.",
       pieces_do_not_mix},
      {"optimizer.restarts_from_state",
       "A fresh instance goes on bit by bit from the tensors, save() and the number of updates.", restarts_from_state},
      {"optimizer.gradient_factor", "Gradients are multiplied by gradient_factor, once.", gradient_factor},
      {"optimizer.apply_zero", "With apply 0 nothing changes, whatever the gradient holds, and nothing is remembered.",
       apply_zero},
      {"optimizer.learning_rate_zero", "A learning rate of 0 leaves the parameters.", learning_rate_zero},
      {"optimizer.learning_rate_factor", "A piece's learning_rate_factor multiplies the learning rate.",
       learning_rate_factor},
      {"optimizer.scheduled_momentum", "A momentum that the schedule gives stands instead of the option's.",
       scheduled_momentum},
      {"optimizer.weight_decay_of_a_piece", "A piece's own weight_decay, 0 too, stands instead of the option's.",
       weight_decay_of_a_piece},
      {"optimizer.rounded_copy", "The parameter becomes the master rounded to nearest, ties to even.", rounded_copy},
      {"optimizer.sixteen_bit_gradients", "Gradients of 16 bits count as their fp32 values.", sixteen_bit_gradients},
      {"optimizer.sixteen_bit_master", "A bf16 master without a copy is updated as fp32 and rounded.",
       sixteen_bit_master},
      {"optimizer.goes_down", "Steps along the gradient of a quadratic make it smaller.", goes_down},
      {"optimizer.known_formula",
       "AdamW's and SGD's steps equal the published formulas in fp64 to a few units of fp32.", known_formula},
  };
}

}  // namespace strata::conformance
