#include <strata/error.hpp>
#include <strata/optimizer.hpp>

#include <string>

namespace strata {

Optimizer::~Optimizer() = default;
std::int64_t Optimizer::unit(const PieceInfo& /*piece*/) const {
  return 1;
}
bool Optimizer::takes_momentum() const {
  return false;
}
int Optimizer::rounds() const {
  return 1;
}
std::int64_t Optimizer::sums(const PieceInfo& /*piece*/, int /*round*/) const {
  return 0;
}
void Optimizer::measure(const Piece& part, int round, const StepScalars& /*scalars*/) {
  throw Bug("an optimizer asks for sums over " + part.info.parameter + " in round " + std::to_string(round) +
            " and does not override measure()");
}

}  // namespace strata
