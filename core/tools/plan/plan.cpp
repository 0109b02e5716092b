#include "tools/plan/plan.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "plan/dry_run.hpp"
#include "report/run_summary.hpp"
#include "text/size.hpp"
#include "text/table.hpp"
#include "tools/chosen/option_values.hpp"
#include "tools/command/model_settings.hpp"
#include "tools/plan/largest_micro_batch.hpp"
#include "tools/train/train.hpp"

namespace strata::cli {

namespace {

struct PlanRow {
  int rank;
  std::int64_t stage;
  plan::DryRun run;
};

struct Budget {
  std::string text;  // "32GB"
  std::int64_t bytes = 0;
  std::int64_t needed = 0;  // by the rank that needs most
  MicroBatchFit largest;
  bool fits() const { return needed <= bytes; }
};

struct Plan {
  config::RunConfig config;
  std::vector<PlanRow> rows;
  std::optional<Budget> budget;
};

std::int64_t peak(const plan::DryRun& run, int category, int tier) {
  return run.ledger.peak[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
}

nlohmann::json rank_json(const PlanRow& row) {
  nlohmann::json json = {
      {"rank", row.rank}, {"stage", row.stage}, {"parameters", row.run.parameters}, {"trainable", row.run.trainable}};
  json["peak_bytes"] = report::to_json(row.run.ledger.peak);
  json["total_peak_bytes"] = row.run.ledger.total_peak;
  json["total"] = row.run.peak_total;
  json["needed"] = row.run.needed;
  json["sent"]["total"] = row.run.traffic.total_bytes();
  for (int c = 0; c < collective_count; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (row.run.traffic.calls_of(collective) == 0) continue;
    json["sent"][to_string(collective)] = {{"calls", row.run.traffic.calls_of(collective)},
                                           {"bytes", row.run.traffic.bytes_of(collective)}};
  }
  if (row.run.averages.total_bytes() > 0) json["averages"]["bytes"] = row.run.averages.total_bytes();
  for (const plan::LayerGathers& layer : row.run.gathers)
    json["gathers"].push_back({{"layer", layer.layer}, {"times", layer.gathers}});
  json["instructions"] = row.run.program.size();
  return json;
}

nlohmann::json plan_json(const Plan& plan) {
  const config::RunConfig& config = plan.config;
  const plan::DryRun& first = plan.rows.front().run;
  nlohmann::json json = {
      {"parameters", first.parameters}, {"world_size", config.world_size}, {"ranks", nlohmann::json::array()}};
  // Of a whole step. A backward counts as two forwards; recomputation is not counted.
  // The dry run's are those of one rank of each stage; all other ranks compute as much.
  json["model_flops_per_step"] =
      3.0 * first.forward_flops *
      static_cast<double>(config.train.accumulation * config.world_size / config.parallel.size(Axis::Pipeline));
  json["tokens_per_step"] = config.train.global_batch * config.model.seq_len;
  json["micro_batch"] = config.train.micro_batch;
  if (first.averages.total_bytes() > 0) json["steps_of_averages"] = config.local.steps;
  for (const PlanRow& row : plan.rows) json["ranks"].push_back(rank_json(row));
  if (plan.budget)
    json["memory"] = {{"budget", plan.budget->bytes},
                      {"needed", plan.budget->needed},
                      {"fits", plan.budget->fits()},
                      {"largest_micro_batch", plan.budget->largest.samples}};
  return json;
}

// Adds a column of bytes per rank, unless all are 0.
template <typename BytesOf>
void add_column(text::Table& table, const std::vector<PlanRow>& rows, bool plain, const std::string& name,
                const BytesOf& bytes_of) {
  if (std::all_of(rows.begin(), rows.end(), [&](const PlanRow& row) { return bytes_of(row.run) == 0; })) return;
  table.columns.push_back({name, true});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t bytes = bytes_of(rows[i].run);
    table.rows[i].push_back(plain ? std::to_string(bytes) : text::format_bytes(bytes));
  }
}

text::Table table_of_ranks(const Plan& plan) {
  text::Table table{{{"rank", true}}, {}};
  for (const PlanRow& row : plan.rows) table.rows.push_back({std::to_string(row.rank)});
  if (plan.config.parallel.size(Axis::Pipeline) > 1) {
    table.columns.push_back({"stage", true});
    for (std::size_t i = 0; i < plan.rows.size(); ++i) table.rows[i].push_back(std::to_string(plan.rows[i].stage));
  }
  return table;
}

void add_memory(text::Table& table, const std::vector<PlanRow>& rows, bool plain) {
  for (int t = 0; t < tier_count; ++t)
    for (int c = 0; c < category_count; ++c)
      add_column(table, rows, plain, report::memory_name(static_cast<Category>(c), static_cast<Tier>(t)),
                 [&](const plan::DryRun& run) { return peak(run, c, t); });
  add_column(table, rows, plain, "total", [](const plan::DryRun& run) { return run.peak_total; });
}

void add_traffic(text::Table& table, const Plan& plan, bool plain) {
  const std::vector<PlanRow>& rows = plan.rows;
  for (int c = 0; c < collective_count; ++c)
    add_column(table, rows, plain, to_string(static_cast<Collective>(c)),
               [&](const plan::DryRun& run) { return run.traffic.bytes_of(static_cast<Collective>(c)); });
  add_column(table, rows, plain, "sent a step", [](const plan::DryRun& run) { return run.traffic.total_bytes(); });
  add_column(table, rows, plain, "averages, in " + std::to_string(plan.config.local.steps) + " steps",
             [](const plan::DryRun& run) { return run.averages.total_bytes(); });
}

// Joins neighbouring layers with equal counts: "block 0 to block 5 2x".
std::string gathers_text(const std::vector<plan::LayerGathers>& layers) {
  std::string text;
  for (std::size_t begin = 0; begin < layers.size();) {
    std::size_t end = begin + 1;
    while (end < layers.size() && layers[end].gathers == layers[begin].gathers) ++end;
    const std::string names = layers[begin].layer + (end - begin > 1 ? " to " + layers[end - 1].layer : "");
    text += format("{}{} {}x", text.empty() ? "" : ", ", names, layers[begin].gathers);
    begin = end;
  }
  return text;
}

std::string budget_text(const Plan& plan) {
  const Budget& budget = *plan.budget;
  const auto samples = [](std::int64_t count) { return std::to_string(count) + (count == 1 ? " sample" : " samples"); };
  const std::int64_t apart = budget.bytes - budget.needed;
  const std::string into = budget.text + " (" + text::format_bytes(budget.bytes) + ")";
  std::string text = "micro-batch of " + samples(plan.config.train.micro_batch) + ": a rank needs " +
                     text::format_bytes(budget.needed) +
                     (budget.fits() ? ", fits into " + into + " with " + text::format_bytes(apart) + " left"
                                    : ", does not fit into " + into + ": " + text::format_bytes(-apart) + " missing");
  text += "\nlargest micro-batch that fits: ";
  if (budget.largest.samples == 0)
    return text + "none; a rank needs " + text::format_bytes(budget.largest.bytes) + " with a micro-batch of 1 sample";
  text += samples(budget.largest.samples) + "; a rank needs " + text::format_bytes(budget.largest.bytes);
  return text + (budget.largest.next_bytes == 0 ? "; larger ones were not tried" : "");
}

// The part of the total that is in no category, for the rank where it is largest; empty if there is none.
std::string difference_text(const Plan& plan) {
  std::int64_t most = 0;
  int rank = 0;
  for (const PlanRow& row : plan.rows) {
    std::int64_t known = 0;  // an upper bound: categories may peak at different times
    for (int c = 0; c < category_count; ++c) known += peak(row.run, c, static_cast<int>(Tier::Device));
    if (row.run.peak_total - known <= most) continue;
    most = row.run.peak_total - known;
    rank = row.rank;
  }
  if (most == 0) return "";
  return format(
      "rank {}: at least {} of the total are in no category: activations that autograd keeps for one layer's backward, "
      "and temporaries of operators and of the loss; they grow with train.micro_batch x model.seq_len\n",
      rank, text::format_bytes(most));
}

void print_text(const Plan& plan, text::TableFormat format, std::ostream& out) {
  const plan::DryRun& first = plan.rows.front().run;
  const std::string paragraph = format == text::TableFormat::Markdown ? "\n\n" : "\n";
  out << "parameters: " << first.parameters
      << (first.trainable == first.parameters ? "" : ", of which " + std::to_string(first.trainable) + " are trained")
      << paragraph;
  if (static_cast<std::int64_t>(plan.rows.size()) < plan.config.world_size)
    out << plan.rows.size() << " of " << plan.config.world_size
        << " ranks are shown, the first and the last of each pipeline stage; no rank between them holds or sends "
           "more"
        << paragraph;
  out << "peak memory in a step by category, from a dry run; total: all tensors on the device, with the operators' "
         "temporaries"
      << paragraph;
  text::Table memory = table_of_ranks(plan);
  add_memory(memory, plan.rows, false);
  text::print(memory, format, out);
  out << difference_text(plan);
  text::Table traffic = table_of_ranks(plan);
  const std::size_t columns = traffic.columns.size();
  add_traffic(traffic, plan, false);
  if (traffic.columns.size() > columns) {
    out << "\nbytes that a rank sends in a step, by collective" << paragraph;
    text::print(traffic, format, out);
  }
  out << "\nall-gathers of each layer's parameters in a step";
  std::int64_t stage = -1;
  for (const PlanRow& row : plan.rows) {
    if (row.stage == stage) continue;  // all ranks of a stage gather the same
    if (plan.config.parallel.size(Axis::Pipeline) > 1) out << (stage < 0 ? ": stage " : "; stage ") << row.stage;
    stage = row.stage;
    out << (plan.config.parallel.size(Axis::Pipeline) > 1 ? " " : ": ") << gathers_text(row.run.gathers);
  }
  out << "\n";
  if (plan.budget) out << (format == text::TableFormat::Markdown ? "\n" : "") << budget_text(plan) << "\n";
}

}  // namespace

int plan_run(const PlanArguments& arguments, std::ostream& out) {
  const text::TableFormat format = text::parse_table_format(arguments.format);
  if (!arguments.params.empty() || !arguments.partitioners.empty() || !arguments.bookkeeping.empty())
    throw UserError(
        "--params, --partitioners and --bookkeeping need --table; for the plan of one run use --set instead");
  if (arguments.models.size() > 1)
    throw UserError("--model has several values; a plan covers one run: give one, or add --table");
  if (arguments.config.empty())
    throw UserError("plan: no config given; give a config, or --table for a table of models and partitioners");
  if (arguments.ranks.size() != 1)
    throw UserError("--ranks has several values; a plan covers one run: give one, or add --table");
  const std::int64_t memory = arguments.memory.empty() ? 0 : memory_value("--memory", arguments.memory);
  std::vector<std::string> settings;
  if (!arguments.models.empty()) settings = model_settings(arguments.models.front());
  settings.insert(settings.end(), arguments.settings.begin(), arguments.settings.end());
  if (memory > 0) settings.push_back(strata::format("memory_budget={}", memory));
  resolve::ResolvedRun prepared =
      resolve::read_run(arguments.config, settings,
                        {ranks_value(arguments.ranks.front()), "--ranks", std::nullopt, /*starts_ranks=*/true});
  log_deepspeed(prepared);
  Plan plan;
  plan.config = std::move(prepared.config);
  const std::int64_t ranks_of_stage = plan.config.world_size / plan.config.parallel.size(Axis::Pipeline);
  for (const int rank : plan::planned_ranks(plan.config))
    plan.rows.push_back({rank, rank / ranks_of_stage, plan::dry_run(plan.config, *prepared.registry, rank)});
  if (memory > 0) {
    plan.budget = Budget{arguments.memory, memory, 0, largest_micro_batch(plan.config, *prepared.registry, memory)};
    for (const PlanRow& row : plan.rows) plan.budget->needed = std::max(plan.budget->needed, row.run.needed);
  }
  if (format == text::TableFormat::Json) {
    out << plan_json(plan).dump(2) << "\n";
  } else if (format == text::TableFormat::Csv) {
    text::Table table = table_of_ranks(plan);
    add_memory(table, plan.rows, true);
    add_traffic(table, plan, true);
    text::print(table, format, out);
  } else {
    print_text(plan, format, out);
  }
  return plan.budget && !plan.budget->fits() ? 1 : 0;
}

}  // namespace strata::cli
