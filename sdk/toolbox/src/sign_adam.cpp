#include <strata/toolbox/sign_adam.hpp>

namespace strata::toolbox {

STRATA_UPDATE_CLONES [[gnu::flatten]] void sign_adam_warm_up_elements(const ElementTile& tile, float gradient_factor,
                                                                      const SignAdamWarmUp& formula) {
  update_elements(tile, gradient_factor, formula);
}

}  // namespace strata::toolbox
