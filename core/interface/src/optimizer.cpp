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
bool Optimizer::trains_elsewhere() const {
  return false;
}
void Optimizer::write_trained(const Piece& piece) const {
  throw Bug("an optimizer trains {} at other weights than the master weights and does not override write_trained()",
            piece.info.parameter);
}
int Optimizer::rounds() const {
  return 1;
}
std::int64_t Optimizer::sums(const PieceInfo& /*piece*/, int /*round*/) const {
  return 0;
}
void Optimizer::measure(const Piece& part, int round, const StepScalars& /*scalars*/) {
  throw Bug("an optimizer asks for sums over {} in round {} and does not override measure()", part.info.parameter,
            round);
}

}  // namespace strata
