#include "optimizer/checks.hpp"

namespace strata::conformance {

using namespace optimizer_checks;

std::vector<Case> optimizer_cases() {
  return {
      {"optimizer.drawn",
       "In all drawn updates parameters of any format and setting, in pieces on any instance, get what each gets "
       "whole, "
       "alone and in fp32: the same bits, with sums 1e-6.",
       drawn_updates_are_right, std::chrono::seconds(300), true},
      {"optimizer.measure_only_measures", "measure() adds to the sums and changes nothing else.",
       measure_only_measures},
      {"optimizer.scheduled_momentum", "A scheduled momentum replaces the option's.", scheduled_momentum},
      {"optimizer.tensor_parts", "The parts that tensor-parallel ranks have get the update of the whole parameter.",
       tensor_parts},
      {"optimizer.trained_weights",
       "write_trained() writes the parameter that step() wrote, bit for bit, and nothing else.", trained_weights},
      {"optimizer.changes_parameters", "Steps change the given master and parameter, by the option weight_decay too.",
       changes_parameters},
      {"optimizer.sixteen_bit_master", "A bf16 master is updated in fp32 and rounded once.", sixteen_bit_master},
      {"optimizer.goes_down", "Steps along the gradient of a quadratic function decrease it.", goes_down},
      {"optimizer.known_formula", "AdamW and SGD steps match the published formulas in fp64 up to fp32 rounding.",
       known_formula},
  };
}

}  // namespace strata::conformance
