// Searches for a world in which a plugin breaks its contract.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "conformance/drawn/draws.hpp"
#include "conformance/runner/case.hpp"

namespace strata::conformance {

// Draws a world, describes it, and carries it out with the plugin and with the reference. Throws Failure if they
// differ; returns false if the plugin refuses the world, as it may.
using Tell = std::function<void(const std::string& what)>;
using World = std::function<bool(Subject& subject, Draws& draws, const Tell& tell)>;

// Carries out `worlds` worlds, the same for the same seed, and more until the subject's seconds are over; with --seeds
// the first world of each seed. The first failing world is shrunk and thrown as a DrawnFailure. Worlds run in separate
// processes, many in each, so that a crash or a hang is found and shrunk too; with --in-process and --replay in this
// process.
void search(Subject& subject, std::string_view case_name, int worlds, const World& world);

}  // namespace strata::conformance
