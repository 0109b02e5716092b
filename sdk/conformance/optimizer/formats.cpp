#include <strata/error.hpp>

#include <cmath>
#include <sstream>

#include "conformance/optimizer/checks.hpp"
#include "conformance/optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

void sixteen_bit_master(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.sixteen_bit_master");
  const auto plugin = subject.make<Optimizer>();
  const ParameterTensors narrow =
      make_parameter(*plugin, "layer.weight", {53, 41}, {at::kBFloat16, at::kBFloat16, {}}, random);
  ParameterTensors wide = narrow.clone();
  wide.master = narrow.master.to(at::kFloat);
  Piece from_narrow = narrow.whole(), from_wide = wide.whole();
  try {
    fakes::update(*plugin, from_narrow, scalars_of(0.1, 0));
  } catch (const UserError& error) {
    throw Skip(std::string("the optimizer refuses bf16 masters: ") + error.what());
  }
  fakes::update(*subject.make<Optimizer>(), from_wide, scalars_of(0.1, 0));
  for (std::int64_t i = 0; i < narrow.elements(); ++i) {
    const double found = narrow.master.select(0, i).item<double>(), wanted = wide.master.select(0, i).item<double>();
    // One unit of bf16: to nearest is half of it, an update that rounds at random needs the whole.
    if (std::abs(found - wanted) <= 0x1p-7 * std::abs(wanted) + 1e-30) continue;
    std::ostringstream text;
    text.precision(9);
    text << "element " << i << " of a bf16 master becomes " << found << ", in fp32 it becomes " << wanted
         << "; compute the update in fp32 and round once";
    throw Failure(text.str());
  }
}

}  // namespace strata::conformance::optimizer_checks
