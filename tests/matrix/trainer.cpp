// Trains one run after the other, with ranks that are threads. For the matrix and other tests of many runs: to start a
// process takes longer than to train in it.
//
// Reads one JSON object a line: {"config": PATH, "ranks": 2, "settings": ["train.accumulation=4"], "folder": PATH,
// "digests": true}. Writes into that folder what `strata train --summary --export` writes, as summary.json and weights,
// and with digests what --metrics --digests writes, as metrics.jsonl, for which ranks send more. Answers with a line
// {"status": 0, "said": "", "plan": [{"peak_bytes": ..., "total_peak_bytes": ..., "calls": ..., "program": 7}]}: the
// exit status and the message that `strata train` would end with, and what a dry run says of each rank: memory, calls
// of collectives, a digest of its program.
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/dry_run.hpp"
#include "ranks_in_threads.hpp"
#include "report/run_summary.hpp"
#include "run/run_report.hpp"

namespace {

using namespace strata;

struct Request {
  std::string config;
  int ranks = 1;
  std::vector<std::string> settings;
  std::string folder;
  bool digests = true;
};

void train_rank(const resolve::ResolvedRun& resolved, const Request& request, int rank, LocalGroups& groups) {
  report::ReportSettings settings;
  settings.progress = false;
  settings.digests = request.digests;
  if (request.digests) settings.metrics_file = request.folder + "/metrics.jsonl";
  settings.summary_file = request.folder + "/summary.json";
  run::RunReport report(settings, resolved.config, rank);
  run::Run run(resolved, run::open_training(resolved.config, rank), {rank, request.ranks, rank},
               [&](const config::RunConfig&, const plugins::PluginRegistry&, stage::PluginSet&) {
                 return std::make_unique<LocalProvider>(groups, rank);
               });
  run.fill();
  report.begin(run);
  report.end(run, run::train(run, {&report}), /*predicted_step_s=*/{});
  run.export_weights(request.folder + "/weights");
  report.finish();
}

nlohmann::json planned(const plan::DryRun& run) {
  nlohmann::json json = {{"peak_bytes", report::to_json(run.ledger.peak)}, {"total_peak_bytes", run.ledger.total_peak}};
  for (int c = 0; c < collective_count; ++c)
    json["calls"][to_string(static_cast<Collective>(c))] = run.traffic.calls_of(static_cast<Collective>(c));
  std::string program;
  for (const program::Instruction& instruction : run.program) program += to_string(instruction) + "\n";
  json["program"] = std::hash<std::string>()(program);
  return json;
}

void train(const Request& request, nlohmann::json& plan) {
  const config::World world{request.ranks, "the test"};
  std::vector<resolve::ResolvedRun> ranks;  // a registry is one thread's
  for (int rank = 0; rank < request.ranks; ++rank)
    ranks.push_back(resolve::read_run(request.config, request.settings, world));
  const resolve::ResolvedRun& run = ranks.front();
  plan::check_run(run.config, *run.registry);
  for (int rank = 0; rank < request.ranks; ++rank) {
    plan.push_back(planned(plan::dry_run(run.config, *run.registry, rank)));
  }
  load_plugins(run);
  LocalGroups groups(std::chrono::seconds(60));
  in_threads(request.ranks,
             [&](int rank) { train_rank(ranks[static_cast<std::size_t>(rank)], request, rank, groups); });
}

nlohmann::json answer(const Request& request) {
  nlohmann::json said = {{"status", 0}, {"said", ""}, {"plan", nlohmann::json::array()}};
  try {
    train(request, said["plan"]);
  } catch (const Error& error) {
    said["status"] = error.exit_status();
    said["said"] = std::string("strata: ") + error.what();
  } catch (const std::exception& error) {
    said["status"] = 70;
    said["said"] = std::string("strata: internal error: ") + error.what();
  }
  return said;
}

}  // namespace

int main() {
  spdlog::set_level(spdlog::level::off);
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json request = nlohmann::json::parse(line);
    std::cout << answer(
                     {request["config"], request["ranks"], request["settings"], request["folder"], request["digests"]})
                     .dump()
              << std::endl;
  }
}
