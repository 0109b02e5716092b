#include <spdlog/spdlog.h>
#include <strata/auto_offload.hpp>

#include "auto_offload/choose_offload.hpp"
#include "run/settle_homes.hpp"

void strata::accept_automatic_offload() {
  runtime::settle_homes_by([](runtime::ResolvedRun& run, const runtime::RankNumbers& place, int local_ranks,
                              const runtime::MakeGroups& make_groups) {
    runtime::OffloadChoice choice = runtime::choose_offload(run, place, local_ranks, make_groups);
    if (place.rank == 0)
      for (const std::string& line : choice.report) spdlog::info("offload: auto: {}", line);
    run.config = std::move(choice.chosen.config);
  });
}
