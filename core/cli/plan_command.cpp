#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/run_command.hpp"
#include "config/size.hpp"
#include "runtime/dry_run.hpp"

#include <strata/error.hpp>

namespace strata::cli {

namespace {

struct PlanRow {
  int rank;
  runtime::DryRun run;
};

std::int64_t peak(const runtime::DryRun& run, int category, int tier) {
  return run.ledger.peak[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
}

nlohmann::json rank_json(const PlanRow& row) {
  nlohmann::json json = {{"rank", row.rank}, {"parameters", row.run.parameters}, {"trainable", row.run.trainable}};
  for (int t = 0; t < tier_count; ++t)
    for (int c = 0; c < category_count; ++c)
      if (const std::int64_t bytes = peak(row.run, c, t); bytes != 0)
        json["peak_bytes"][to_string(static_cast<Tier>(t))][to_string(static_cast<Category>(c))] = bytes;
  json["total_peak_bytes"] = row.run.ledger.total_peak;
  json["total"] = row.run.peak_total;
  json["sent"]["total"] = row.run.traffic.total_bytes();
  for (int c = 0; c < collective_count; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (row.run.traffic.calls_of(collective) == 0) continue;
    json["sent"][to_string(collective)] = {{"calls", row.run.traffic.calls_of(collective)}, {"bytes", row.run.traffic.bytes_of(collective)}};
  }
  json["instructions"] = row.run.program.size();
  return json;
}

// Category names across, ranks down; the same table for people, reports and spreadsheets.
void print_rows(const std::vector<PlanRow>& rows, const std::string& format, std::ostream& out) {
  std::vector<std::vector<std::string>> cells{{"rank"}};
  std::vector<std::pair<int, int>> columns;
  for (int t = 0; t < tier_count; ++t)
    for (int c = 0; c < category_count; ++c)
      for (const PlanRow& row : rows)
        if (peak(row.run, c, t) != 0) {
          columns.emplace_back(c, t);
          cells.front().push_back(std::string(to_string(static_cast<Category>(c))) +
                                  (t == 0 ? "" : std::string(" (") + to_string(static_cast<Tier>(t)) + ")"));
          break;
        }
  cells.front().insert(cells.front().end(), {"total", "sent a step"});
  const auto text = [&](std::int64_t bytes) { return format == "csv" ? std::to_string(bytes) : config::format_bytes(bytes); };
  for (const PlanRow& row : rows) {
    std::vector<std::string>& line = cells.emplace_back();
    line.push_back(std::to_string(row.rank));
    for (const auto& [category, tier] : columns) line.push_back(text(peak(row.run, category, tier)));
    line.push_back(text(row.run.peak_total));
    line.push_back(text(row.run.traffic.total_bytes()));
  }
  std::vector<std::size_t> widths(cells.front().size());
  for (const auto& line : cells)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  for (std::size_t row = 0; row < cells.size(); ++row) {
    for (std::size_t i = 0; i < cells[row].size(); ++i) {
      const std::string padding(widths[i] - cells[row][i].size(), ' ');
      if (format == "csv")
        out << (i > 0 ? "," : "") << cells[row][i];
      else if (format == "markdown")
        out << "| " << padding << cells[row][i] << (i + 1 == cells[row].size() ? " |" : " ");
      else
        out << (i > 0 ? "  " : "") << padding << cells[row][i];
    }
    out << "\n";
    if (row == 0 && format == "markdown") {
      for (const std::size_t width : widths) out << "|" << std::string(width + 1, '-') << ":";
      out << "|\n";
    }
  }
}

}  // namespace

int plan_command(const RunArguments& arguments, std::ostream& out) {
  const PreparedRun run = prepare_run(arguments, {arguments.nproc > 0 ? arguments.nproc : 1, "--nproc"});
  log_deepspeed(arguments, run);
  std::vector<PlanRow> rows;
  for (int rank = 0; rank < run.config.world_size; ++rank) rows.push_back({rank, runtime::dry_run(run.config, *run.registry, rank)});
  if (arguments.format == "json") {
    const config::RunConfig& config = run.config;
    nlohmann::json json = {{"parameters", rows.front().run.parameters}, {"ranks", nlohmann::json::array()}};
    // Of a whole step: a backward is counted as two forwards, what is computed again is not counted.
    json["model_flops_per_step"] = 3.0 * rows.front().run.forward_flops * static_cast<double>(config.train.accumulation * config.parallel.data);
    json["tokens_per_step"] = config.train.global_batch * config.model.seq_len;
    for (const PlanRow& row : rows) json["ranks"].push_back(rank_json(row));
    out << json.dump(2) << "\n";
    return 0;
  }
  if (arguments.format != "table" && arguments.format != "markdown" && arguments.format != "csv")
    throw UserError("--format " + arguments.format + ": table, markdown, csv or json");
  const std::int64_t trainable = rows.front().run.trainable;
  const std::string frozen = trainable == rows.front().run.parameters ? "" : ", of which " + std::to_string(trainable) + " are trained";
  if (arguments.format == "table")
    out << "parameters: " << rows.front().run.parameters << frozen
        << "\npeak bytes in a step by category (total: of all tensors on the device, the operators' own included), and logical bytes sent, "
           "from a dry run\n";
  print_rows(rows, arguments.format, out);
  return 0;
}

}  // namespace strata::cli
