// An optimizer's update without an engine.
#pragma once
#include <strata/optimizer.hpp>

#include <span>
#include <vector>

namespace strata::fakes {

// Makes one update as the engine does for one process that owns everything: round by round, the sums over each
// parameter's pieces, then the step. Piece i goes to instance i modulo their number, as to one of several ranks; a rank
// gets its pieces in one call. Pieces of one parameter must not overlap.
void update(std::span<Optimizer* const> instances, std::span<Piece> pieces, const StepScalars& scalars);
void update(Optimizer& optimizer, Piece& piece, const StepScalars& scalars);

}  // namespace strata::fakes
