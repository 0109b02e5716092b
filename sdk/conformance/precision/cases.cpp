#include "conformance/precision/checks.hpp"

namespace strata::conformance {

namespace {

void drawn(Subject& subject) {
  // The kit cannot run a policy whose results another plugin's must have.
  const bool has_products = subject.manifest().equivalence.kind != plugins::Equivalence::Kind::Simulated;
  search(subject, "precision.drawn", 500, [&](Subject& of, Draws& draws, const Tell& tell) {
    return draws.between(0, 3) == 3 || !has_products ? precision_checks::steps_are_right(of, draws, tell)
                                                     : precision_checks::products_are_right(of, draws, tell);
  });
}

}  // namespace

std::vector<Case> precision_cases() {
  return {{"precision.drawn",
           "Products match those in fp64 up to their formats' rounding, in any order of calls and again, and a policy "
           "judges any steps alike on all ranks and after a resume: finite gradients are applied, others never.",
           drawn, std::chrono::seconds(300), true}};
}

}  // namespace strata::conformance
