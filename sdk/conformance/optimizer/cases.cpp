#include "conformance/optimizer/checks.hpp"

namespace strata::conformance {

using namespace optimizer_checks;

std::vector<Case> optimizer_cases() {
  return {
      {"optimizer.drawn",
       "In all drawn updates parameters of any format and setting, in pieces on any instance, get what each gets "
       "whole, alone and in fp32: the same bits, with sums 1e-6; measure() and write_trained() do only what they say.",
       drawn_updates_are_right, std::chrono::seconds(300), true},
      {"optimizer.tensor_parts", "The parts that tensor-parallel ranks have get the update of the whole parameter.",
       tensor_parts},
      {"optimizer.sixteen_bit_master", "A bf16 master is updated in fp32 and rounded once.", sixteen_bit_master},
      {"optimizer.goes_down",
       "Steps along the gradient of a quadratic function decrease it; weight_decay changes them.", goes_down},
      {"optimizer.known_formula", "AdamW and SGD steps match the published formulas in fp64 up to fp32 rounding.",
       known_formula},
  };
}

}  // namespace strata::conformance
