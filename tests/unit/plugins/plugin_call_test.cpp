#include "plugins/plugin_call.hpp"

#include <strata/error.hpp>

#include <cfenv>
#include <stdexcept>
#include <thread>

#include "catch.hpp"
#include "error_of.hpp"

using namespace strata;
using namespace strata::plugins;

namespace {
std::string in_progress() {
  const CallInProgress* const call = CallInProgress::now();
  return call == nullptr ? "nothing" : call->plugin() + " " + call->function();
}
}  // namespace

TEST_CASE("the call in progress is the innermost of this thread, or the newest of another") {
  CHECK(in_progress() == "nothing");
  const std::string outer = "model/m", inner = "precision/p";
  const std::string seen = plugin_call(
      outer, [] { return std::string("forward"); },
      [&] {
        const std::string within = plugin_call(inner, "linear", [] { return in_progress(); });
        std::string elsewhere;
        std::thread([&] { elsewhere = in_progress(); }).join();
        return within + ", " + elsewhere + ", " + in_progress();
      });
  CHECK(seen == "precision/p linear, model/m forward, model/m forward");
  CHECK_THROWS(plugin_call(outer, "fails", [] { throw 1; }));
  CHECK(in_progress() == "nothing");
}

TEST_CASE("a call that changes the rounding mode is named, and the mode is put back") {
  const int before = std::fegetround();
  const auto call = [](int mode) { plugin_call("optimizer/o", "step", 3, [&] { std::fesetround(mode); }); };
  CHECK_NOTHROW(call(before));
  CHECK_THAT(error_of<Bug>([&] { call(FE_UPWARD); }),
             Contains("plugin optimizer/o: step on rank 3: ") && Contains("changed this thread's rounding mode"));
  CHECK(std::fegetround() == before);
}

TEST_CASE("libtorch's error about tensors without values becomes a remedy") {
  const auto told = [](const char* text) {
    return error_of<Bug>([&] { plugin_call("partitioner/p", "gather", [&] { throw std::runtime_error(text); }); });
  };
  for (const char* text :
       {"Cannot copy out of meta tensor; no data!",
        "aten::nonzero: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel "
        "registered for this operator",
        "Could not run 'aten::q' with arguments from the 'Meta' backend.",
        "Tensor.item() cannot be called on meta tensors"})
    CHECK_THAT(told(text), Contains(text) && Contains("which have shapes and no values"));
  CHECK_THAT(told("out of ideas"), !Contains("values"));
}
