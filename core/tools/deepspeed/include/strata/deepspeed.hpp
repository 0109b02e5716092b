// For programs that read DeepSpeed's ds_config.json: link strata::deepspeed and call this first.
#pragma once
#include <strata/export.hpp>

namespace strata {

// From now on strata::initialize takes a ds_config.json too.
STRATA_EXPORT void accept_deepspeed_configs();

}  // namespace strata
