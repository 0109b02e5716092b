// Looks for a world in which a plugin breaks its contract.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "conformance/drawn/draws.hpp"
#include "conformance/runner/case.hpp"

namespace strata::conformance {

// Draws a world, tells what it is, and carries it out with the plugin and with what must come of it. Throws Failure
// where they differ; gives false where the plugin refuses the world, as it may.
using Tell = std::function<void(const std::string& what)>;
using World = std::function<bool(Subject& subject, Draws& draws, const Tell& tell)>;

// Carries `worlds` of them out, the same for the same seed, and more until the subject's seconds are over; with --seeds
// the first of each of these, which `worlds` of it are too. The first
// that fails is shrunk and thrown as a DrawnFailure. Worlds run in processes of their own, many in one, so that a crash
// or a hang is found and shrunk too; with --in-process and --replay in this one.
void search(Subject& subject, std::string_view case_name, int worlds, const World& world);

}  // namespace strata::conformance
