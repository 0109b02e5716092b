// @name@: updates against numbers computed by hand.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/optimizer.hpp>

#include <cmath>

#include "catch.hpp"

using namespace strata;

namespace {

// Four elements of value 1, whose gradient is 4.
Piece piece_of_four() {
  Piece piece;
  piece.info = {"weight", {4}, 0, 4};
  piece.master = at::full({4}, 1.0);
  piece.gradient = at::full({4}, 4.0);
  piece.parameter = at::zeros({4}, at::kBFloat16);
  piece.state = {at::zeros({4})};
  return piece;
}

// Gradients are still multiplied by the loss scale, 2.
StepScalars scalars(double apply) {
  return {0.25, 0, at::full({}, 0.5), at::full({}, apply)};
}

}  // namespace

TEST_CASE("two updates") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Optimizer> optimizer(library, {{"momentum", "0.5"}});
  Piece piece = piece_of_four();
  fakes::update(*optimizer, piece, scalars(1));  // direction 2
  CHECK(at::equal(piece.master, at::full({4}, 0.5)));
  fakes::update(*optimizer, piece, scalars(1));  // direction 3
  CHECK(at::equal(piece.master, at::full({4}, -0.25)));
  CHECK(at::equal(piece.state[0], at::full({4}, 3.0)));
  CHECK(at::equal(piece.parameter, piece.master.to(at::kBFloat16)));
}

TEST_CASE("a step that is not applied changes nothing, whatever the gradient holds") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Optimizer> optimizer(library);
  Piece piece = piece_of_four();
  piece.gradient.fill_(NAN);
  fakes::update(*optimizer, piece, scalars(0));
  CHECK(at::equal(piece.master, at::full({4}, 1.0)));
  CHECK(at::equal(piece.state[0], at::zeros({4})));
}
