// The orders of all schedulers for 4 stages and 8 micro-batches, as the papers have them, written down without the
// schedulers' code. Those of interleaved_1f1b, zero_bubble_v and dualpipe_v are also PyTorch 2.11's
// (torch.distributed.pipelining.schedules).
#include <strata/fakes/plugin_library.hpp>
#include <strata/scheduler.hpp>

#include <array>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

constexpr int stages = 4, micro_batches = 8;

struct Table {
  const char* scheduler;
  int chunks_per_stage;
  std::array<const char*, stages> orders;
  fakes::OptionTexts options = {};
};

const std::vector<Table> tables{
    // Huang et al. 2019, figure 2
    {"gpipe",
     1,
     {"F0.0 F0.1 F0.2 F0.3 F0.4 F0.5 F0.6 F0.7 B0.0 B0.1 B0.2 B0.3 B0.4 B0.5 B0.6 B0.7",
      "F1.0 F1.1 F1.2 F1.3 F1.4 F1.5 F1.6 F1.7 B1.0 B1.1 B1.2 B1.3 B1.4 B1.5 B1.6 B1.7",
      "F2.0 F2.1 F2.2 F2.3 F2.4 F2.5 F2.6 F2.7 B2.0 B2.1 B2.2 B2.3 B2.4 B2.5 B2.6 B2.7",
      "F3.0 F3.1 F3.2 F3.3 F3.4 F3.5 F3.6 F3.7 B3.0 B3.1 B3.2 B3.3 B3.4 B3.5 B3.6 B3.7"}},
    // Narayanan et al. 2021 (arXiv:2104.04473), figure 4 above
    {"1f1b",
     1,
     {"F0.0 F0.1 F0.2 F0.3 B0.0 F0.4 B0.1 F0.5 B0.2 F0.6 B0.3 F0.7 B0.4 B0.5 B0.6 B0.7",
      "F1.0 F1.1 F1.2 B1.0 F1.3 B1.1 F1.4 B1.2 F1.5 B1.3 F1.6 B1.4 F1.7 B1.5 B1.6 B1.7",
      "F2.0 F2.1 B2.0 F2.2 B2.1 F2.3 B2.2 F2.4 B2.3 F2.5 B2.4 F2.6 B2.5 F2.7 B2.6 B2.7",
      "F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 F3.3 B3.3 F3.4 B3.4 F3.5 B3.5 F3.6 B3.6 F3.7 B3.7"}},
    // the same, figure 4 below
    {"interleaved_1f1b",
     2,
     {"F0.0 F0.1 F0.2 F0.3 F4.0 F4.1 F4.2 F4.3 F0.4 F0.5 F0.6 B4.0 F0.7 B4.1 F4.4 B4.2 F4.5 B4.3 F4.6 B0.0 F4.7 "
      "B0.1 B0.2 B0.3 B4.4 B4.5 B4.6 B4.7 B0.4 B0.5 B0.6 B0.7",
      "F1.0 F1.1 F1.2 F1.3 F5.0 F5.1 F5.2 F5.3 F1.4 B5.0 F1.5 B5.1 F1.6 B5.2 F1.7 B5.3 F5.4 B1.0 F5.5 B1.1 F5.6 "
      "B1.2 F5.7 B1.3 B5.4 B5.5 B5.6 B5.7 B1.4 B1.5 B1.6 B1.7",
      "F2.0 F2.1 F2.2 F2.3 F6.0 F6.1 F6.2 B6.0 F6.3 B6.1 F2.4 B6.2 F2.5 B6.3 F2.6 B2.0 F2.7 B2.1 F6.4 B2.2 F6.5 "
      "B2.3 F6.6 B6.4 F6.7 B6.5 B6.6 B6.7 B2.4 B2.5 B2.6 B2.7",
      "F3.0 F3.1 F3.2 F3.3 F7.0 B7.0 F7.1 B7.1 F7.2 B7.2 F7.3 B7.3 F3.4 B3.0 F3.5 B3.1 F3.6 B3.2 F3.7 B3.3 F7.4 "
      "B7.4 F7.5 B7.5 F7.6 B7.6 F7.7 B7.7 B3.4 B3.5 B3.6 B3.7"}},
    // Qi et al. 2023 (arXiv:2401.10241), figure 3 above
    {"zero_bubble_h1",
     1,
     {"F0.0 F0.1 F0.2 F0.3 I0.0 W0.0 F0.4 I0.1 W0.1 F0.5 I0.2 W0.2 F0.6 I0.3 W0.3 F0.7 I0.4 W0.4 I0.5 W0.5 I0.6 "
      "W0.6 I0.7 W0.7",
      "F1.0 F1.1 F1.2 I1.0 F1.3 I1.1 W1.0 F1.4 I1.2 W1.1 F1.5 I1.3 W1.2 F1.6 I1.4 W1.3 F1.7 I1.5 W1.4 I1.6 W1.5 "
      "I1.7 W1.6 W1.7",
      "F2.0 F2.1 I2.0 F2.2 I2.1 F2.3 I2.2 W2.0 F2.4 I2.3 W2.1 F2.5 I2.4 W2.2 F2.6 I2.5 W2.3 F2.7 I2.6 W2.4 I2.7 "
      "W2.5 W2.6 W2.7",
      "F3.0 I3.0 F3.1 I3.1 F3.2 I3.2 F3.3 I3.3 W3.0 F3.4 I3.4 W3.1 F3.5 I3.5 W3.2 F3.6 I3.6 W3.3 F3.7 I3.7 W3.4 "
      "W3.5 W3.6 W3.7"}},
    // Qi et al. 2024 (arXiv:2405.15362)
    {"zero_bubble_v",
     2,
     {"F0.0 F0.1 F0.2 F0.3 F0.4 F0.5 F0.6 F7.0 I7.0 W7.0 F7.1 I7.1 W7.1 F7.2 I7.2 W7.2 F7.3 I7.3 W7.3 F0.7 I0.0 "
      "W0.0 F7.4 I7.4 W7.4 I0.1 W0.1 F7.5 I7.5 W7.5 I0.2 W0.2 F7.6 I7.6 W7.6 I0.3 W0.3 F7.7 I7.7 W7.7 I0.4 W0.4 "
      "I0.5 W0.5 I0.6 W0.6 I0.7 W0.7",
      "F1.0 F1.1 F1.2 F1.3 F1.4 F6.0 F1.5 F6.1 I6.0 W6.0 F6.2 I6.1 W6.1 F6.3 I6.2 W6.2 F1.6 I1.0 W1.0 F6.4 I6.3 "
      "W6.3 F1.7 I1.1 W1.1 F6.5 I6.4 W6.4 I1.2 W1.2 F6.6 I6.5 W6.5 I1.3 W1.3 F6.7 I6.6 W6.6 I1.4 I6.7 I1.5 W1.4 "
      "I1.6 W1.5 I1.7 W1.6 W6.7 W1.7",
      "F2.0 F2.1 F2.2 F5.0 F2.3 F5.1 F2.4 F5.2 I5.0 W5.0 F5.3 I5.1 W5.1 F2.5 I2.0 W2.0 F5.4 I5.2 W5.2 F2.6 I2.1 "
      "W2.1 F5.5 I5.3 W5.3 F2.7 I2.2 W2.2 F5.6 I5.4 W5.4 I2.3 W2.3 F5.7 I5.5 W5.5 I2.4 I5.6 I2.5 I5.7 I2.6 W2.4 "
      "I2.7 W2.5 W5.6 W5.7 W2.6 W2.7",
      "F3.0 F4.0 F3.1 F4.1 F3.2 F4.2 F3.3 F4.3 I4.0 W4.0 F3.4 I3.0 W3.0 F4.4 I4.1 W4.1 F3.5 I3.1 W3.1 F4.5 I4.2 "
      "W4.2 F3.6 I3.2 W3.2 F4.6 I4.3 W4.3 F3.7 I3.3 W3.3 F4.7 I4.4 W4.4 I3.4 I4.5 I3.5 I4.6 I3.6 I4.7 I3.7 W3.4 "
      "W4.5 W4.6 W4.7 W3.5 W3.6 W3.7"}},
    // DeepSeek-AI 2024 (arXiv:2412.19437), cut in half
    {"dualpipe_v",
     2,
     {"F0.0 F0.1 F0.2 F0.3 F0.4 F0.5 F0.6 F7.0 I7.0 W7.0 F7.1 I7.1 W7.1 F7.2 I7.2 W7.2 F7.3 F0.7 B7.3 F7.4 B0.0 "
      "B7.4 F7.5 B0.1 B7.5 F7.6 B0.2 B7.6 F7.7 B0.3 B7.7 I0.4 W0.4 I0.5 W0.5 I0.6 W0.6 I0.7 W0.7",
      "F1.0 F1.1 F1.2 F1.3 F1.4 F6.0 F1.5 F6.1 I6.0 W6.0 F6.2 I6.1 W6.1 F6.3 F1.6 B6.2 F6.4 B1.0 F1.7 B6.3 F6.5 "
      "B1.1 B6.4 F6.6 B1.2 B6.5 F6.7 B1.3 B6.6 B1.4 I6.7 I1.5 W6.7 I1.6 W1.5 I1.7 W1.6 W1.7",
      "F2.0 F2.1 F2.2 F5.0 F2.3 F5.1 F2.4 F5.2 I5.0 W5.0 F5.3 F2.5 B5.1 F5.4 B2.0 F2.6 B5.2 F5.5 B2.1 F2.7 B5.3 "
      "F5.6 B2.2 B5.4 F5.7 B2.3 B5.5 B2.4 B5.6 I2.5 I5.7 I2.6 W2.5 I2.7 W5.7 W2.6 W2.7",
      "F3.0 F4.0 F3.1 F4.1 F3.2 F4.2 F3.3 F4.3 F3.4 B4.0 F4.4 B3.0 F3.5 B4.1 F4.5 B3.1 F3.6 B4.2 F4.6 B3.2 F3.7 "
      "B4.3 F4.7 B3.3 B4.4 B3.4 B4.5 B3.5 I4.6 I3.6 I4.7 I3.7 W4.6 W3.6 W4.7 W3.7"}},
    // Narayanan et al. 2019 (arXiv:1806.03377), figure 4 and section 3.3
    {"pipedream",
     1,
     {"F0.0 F0.1 F0.2 F0.3 B0.0 U0.0 F0.4@1 B0.1 U0.1 F0.5@2 B0.2 U0.2 F0.6@3 B0.3 U0.3 F0.7@4 B0.4@1 U0.4 B0.5@2 "
      "U0.5 B0.6@3 U0.6 B0.7@4 U0.7",
      "F1.0 F1.1 F1.2 B1.0 U1.0 F1.3@1 B1.1 U1.1 F1.4@2 B1.2 U1.2 F1.5@3 B1.3@1 U1.3 F1.6@4 B1.4@2 U1.4 F1.7@5 B1.5@3 "
      "U1.5 B1.6@4 U1.6 B1.7@5 U1.7",
      "F2.0 F2.1 B2.0 U2.0 F2.2@1 B2.1 U2.1 F2.3@2 B2.2@1 U2.2 F2.4@3 B2.3@2 U2.3 F2.5@4 B2.4@3 U2.4 F2.6@5 B2.5@4 "
      "U2.5 F2.7@6 B2.6@5 U2.6 B2.7@6 U2.7",
      "F3.0 B3.0 U3.0 F3.1@1 B3.1@1 U3.1 F3.2@2 B3.2@2 U3.2 F3.3@3 B3.3@3 U3.3 F3.4@4 B3.4@4 U3.4 F3.5@5 B3.5@5 U3.5 "
      "F3.6@6 B3.6@6 U3.6 F3.7@7 B3.7@7 U3.7"}},
    {"pipedream",
     1,
     {"F0.0 F0.1 F0.2 F0.3 B0.0 U0.0 F0.4@1 B0.1 U0.1 F0.5@2 B0.2 U0.2 F0.6@3 B0.3 U0.3 F0.7@4 B0.4@1 U0.4 B0.5@2 "
      "U0.5 B0.6@3 U0.6 B0.7@4 U0.7",
      "F1.0 F1.1 F1.2 B1.0 U1.0 F1.3 B1.1 U1.1 F1.4@1 B1.2 U1.2 F1.5@2 B1.3 U1.3 F1.6@3 B1.4@1 U1.4 F1.7@4 B1.5@2 "
      "U1.5 B1.6@3 U1.6 B1.7@4 U1.7",
      "F2.0 F2.1 B2.0 U2.0 F2.2 B2.1 U2.1 F2.3 B2.2 U2.2 F2.4@1 B2.3 U2.3 F2.5@2 B2.4@1 U2.4 F2.6@3 B2.5@2 U2.5 "
      "F2.7@4 B2.6@3 U2.6 B2.7@4 U2.7",
      "F3.0 B3.0 U3.0 F3.1 B3.1 U3.1 F3.2 B3.2 U3.2 F3.3 B3.3 U3.3 F3.4@1 B3.4@1 U3.4 F3.5@2 B3.5@2 U3.5 F3.6@3 B3.6@3 "
      "U3.6 F3.7@4 B3.7@4 U3.7"},
     {{"version", "vertical"}}},
    // Narayanan et al. 2020 (arXiv:2006.09503), section 3.1: the second update's micro-batches still have the first
    // weights
    {"pipedream",
     1,
     {"F0.0 F0.1 F0.2 F0.3 B0.0 F0.4 B0.1 F0.5 B0.2 F0.6 B0.3 U0.3 F0.7 B0.4 B0.5 B0.6 B0.7 U0.7",
      "F1.0 F1.1 F1.2 B1.0 F1.3 B1.1 F1.4 B1.2 F1.5 B1.3 U1.3 F1.6 B1.4 F1.7 B1.5 B1.6 B1.7 U1.7",
      "F2.0 F2.1 B2.0 F2.2 B2.1 F2.3 B2.2 F2.4 B2.3 U2.3 F2.5 B2.4 F2.6 B2.5 F2.7 B2.6 B2.7 U2.7",
      "F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 F3.3 B3.3 U3.3 F3.4 B3.4 F3.5 B3.5 F3.6 B3.6 F3.7 B3.7 U3.7"},
     {{"version", "2bw"}}},
    // Pudipeddi et al. 2020
    {"l2l",
     2,
     {"F0.0 F0.1 F0.2 F0.3 F0.4 F0.5 F0.6 F0.7 F4.0 F4.1 F4.2 F4.3 F4.4 F4.5 F4.6 F4.7 B4.0 B4.1 B4.2 B4.3 B4.4 "
      "B4.5 B4.6 B4.7 B0.0 B0.1 B0.2 B0.3 B0.4 B0.5 B0.6 B0.7",
      "F1.0 F1.1 F1.2 F1.3 F1.4 F1.5 F1.6 F1.7 F5.0 F5.1 F5.2 F5.3 F5.4 F5.5 F5.6 F5.7 B5.0 B5.1 B5.2 B5.3 B5.4 "
      "B5.5 B5.6 B5.7 B1.0 B1.1 B1.2 B1.3 B1.4 B1.5 B1.6 B1.7",
      "F2.0 F2.1 F2.2 F2.3 F2.4 F2.5 F2.6 F2.7 F6.0 F6.1 F6.2 F6.3 F6.4 F6.5 F6.6 F6.7 B6.0 B6.1 B6.2 B6.3 B6.4 "
      "B6.5 B6.6 B6.7 B2.0 B2.1 B2.2 B2.3 B2.4 B2.5 B2.6 B2.7",
      "F3.0 F3.1 F3.2 F3.3 F3.4 F3.5 F3.6 F3.7 F7.0 F7.1 F7.2 F7.3 F7.4 F7.5 F7.6 F7.7 B7.0 B7.1 B7.2 B7.3 B7.4 "
      "B7.5 B7.6 B7.7 B3.0 B3.1 B3.2 B3.3 B3.4 B3.5 B3.6 B3.7"}},
};

}  // namespace

TEST_CASE("the orders are the papers'") {
  for (const Table& table : tables) {
    const fakes::LoadedPlugin<Scheduler> scheduler(
        fakes::PluginLibrary(std::string(PLUGIN_FOLDER) + "/libstrata_scheduler_" + table.scheduler + ".so"),
        table.options);
    for (int stage = 0; stage < stages; ++stage) {
      CAPTURE(table.scheduler, stage);
      CHECK(scheduler->order({stages, table.chunks_per_stage, micro_batches}, stage) ==
            parse_compute_order(table.orders[static_cast<std::size_t>(stage)]));
    }
  }
}
