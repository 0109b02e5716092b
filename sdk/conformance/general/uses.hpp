// What a run asks of a plugin over and over.
#pragma once
#include <functional>

#include "runner/case.hpp"

namespace strata::conformance {

// Each function is called on the thread of its rank: begin() once, which makes the instance, step() many times, end()
// once, which shuts it down.
struct Use {
  int ranks = 1;
  std::function<void(int rank)> begin, step, end;
};

// Of the plugin's kind. Throws Skip where the plugin cannot be used here.
Use use_of(Subject& subject);

}  // namespace strata::conformance
