#include "tools/version/version.hpp"

#include <torch/headeronly/version.h>
#include <strata/fingerprint.hpp>

#include "commit.hpp"

namespace strata::version {

std::string text() {
  const std::string commit = STRATA_COMMIT;
  return std::string(STRATA_VERSION) + (commit.empty() ? "" : ", commit " + commit) + ", " + STRATA_BUILD_TYPE +
         ", libtorch " + TORCH_VERSION + ", plugin ABI " + STRATA_ABI_TEXT;
}

}  // namespace strata::version
