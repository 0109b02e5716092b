#include "report/run_summary.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/formatted.hpp"
#include "text/size.hpp"

namespace strata::report {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

std::string memory_name(Category category, Tier tier) {
  return to_string(category) + (tier == Tier::Device ? "" : std::string(" (") + to_string(tier) + ")");
}

nlohmann::json to_json(const Ledger::Table& table) {
  nlohmann::json json = nlohmann::json::object();
  for (int t = 0; t < tier_count; ++t)
    for (int c = 0; c < category_count; ++c)
      if (const std::int64_t bytes = table[static_cast<std::size_t>(c)][static_cast<std::size_t>(t)]; bytes != 0)
        json[to_string(static_cast<Tier>(t))][to_string(static_cast<Category>(c))] = bytes;
  return json;
}

namespace {

nlohmann::json sent_json(const RankUsage& usage) {
  nlohmann::json json = {{"total", usage.sent}};
  for (int c = 0; c < collective_count; ++c)
    if (const std::int64_t bytes = usage.sent_by_collective[static_cast<std::size_t>(c)]; bytes != 0)
      json[to_string(static_cast<Collective>(c))] = bytes;
  return json;
}

nlohmann::json offload_json(const RankUsage& usage) {
  return {{"read", usage.read}, {"written", usage.written}};
}

nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::json statistics_json(const std::map<std::string, double>& statistics) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : statistics) json[name] = number(value);
  return json;
}

nlohmann::json metrics_json(const std::map<std::string, stage::Metric>& metrics) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, metric] : metrics) json[name] = {{"value", number(metric.value)}, {"unit", metric.unit}};
  return json;
}

// The wait of a step, or a run, for collectives of the tensor group; null without one.
nlohmann::json tensor_json(const stage::TensorTimes& times) {
  if (times.alone_bytes + times.beside_bytes == 0) return nullptr;
  const std::optional<double> hidden = times.hidden();
  return {{"alone_s", times.alone},
          {"alone_bytes", times.alone_bytes},
          {"beside_s", times.beside},
          {"beside_bytes", times.beside_bytes},
          {"hidden", hidden ? nlohmann::json(*hidden) : nlohmann::json()}};
}

}  // namespace

constexpr std::size_t ranks_shown = 8;  // a column for each; of more, the ends of their range

nlohmann::json to_json(const ValidationResult& validation) {
  nlohmann::json json = {{"loss", number(validation.loss)},
                         {"perplexity", number(validation.perplexity())},
                         {"samples", validation.samples},
                         {"tokens", validation.valid_tokens},
                         {"seconds", validation.seconds}};
  if (validation.auxiliary_loss) json["auxiliary_loss"] = number(*validation.auxiliary_loss);
  if (!validation.statistics.empty()) json["statistics"] = statistics_json(validation.statistics);
  return json;
}

nlohmann::json to_json(const StepRecord& record) {
  const step::StepTimes& times = record.outcome.times;
  nlohmann::json json = {
      {"step", record.step + 1},
      {"loss", number(record.outcome.loss)},
      {"grad_norm", number(record.outcome.gradient_norm)},
      {"clip", record.outcome.clip_factor},
      {"lr", record.learning_rate},
      {"applied", record.applied},
      {"step_s", record.step_s},
      {"parts_s",
       {{"data", record.data_s},
        {"forward", times.forward},
        {"backward", times.backward},
        {"gather", times.gather},
        {"reduce", times.reduce},
        {"pipeline", times.pipeline},
        {"optimizer", times.optimizer},
        {"offload", times.offload}}},
      {"tensor", tensor_json(times.tensor)},
      {"tokens_per_s", record.tokens_per_s},
  };
  if (record.outcome.auxiliary_loss) json["auxiliary_loss"] = number(*record.outcome.auxiliary_loss);
  if (!record.outcome.statistics.empty()) json["statistics"] = statistics_json(record.outcome.statistics);
  if (record.validation) json["validation"] = to_json(*record.validation);
  for (const RankUsage& usage : record.ranks) {
    json["bytes"].push_back(to_json(usage.ledger.now));
    json["peak_bytes"].push_back(to_json(usage.ledger.peak));
    json["rss"].push_back(usage.resident);
    json["sent"].push_back(sent_json(usage));
    json["offload"].push_back(offload_json(usage));
  }
  for (const ParameterDigest& digest : record.gradients)
    json["gradients"][digest.parameter] = {number(digest.projection), number(digest.norm)};
  if (!record.non_finite.empty()) json["non_finite"] = record.non_finite;
  json["plugin_metrics"] = metrics_json(record.metrics);
  return json;
}

nlohmann::json to_json(const RunSummary& summary) {
  nlohmann::json json = {
      {"event", "summary"},
      {"first_step", summary.first_step + 1},
      {"steps", summary.steps},
      {"stopped_by", summary.stopped_by},
      {"checkpoint", summary.saved_in},
      {"skipped", summary.skipped},
      {"made_again", summary.made_again},
      {"warmup_steps", summary.warmup_steps},
      {"median_step_s", summary.median_step_s},
      {"tokens_per_s", summary.tokens_per_s},
      {"losses", summary.losses},
      {"step_seconds", summary.step_seconds},
      {"setup", summary.setup},
      {"tensor", tensor_json(summary.tensor)},
      {"plugin_metrics", metrics_json(summary.metrics)},
  };
  if (summary.predicted_step_s) json["predicted_step_s"] = *summary.predicted_step_s;
  if (!summary.auxiliary_losses.empty()) json["auxiliary_losses"] = summary.auxiliary_losses;
  for (const auto& [name, validation] :
       {std::pair{"last", &summary.last_validation}, {"best", &summary.best_validation}}) {
    if (!*validation) continue;
    json["validation"][name] = to_json((*validation)->result);
    json["validation"][name]["step"] = (*validation)->step + 1;
  }
  for (const RankUsage& usage : summary.ranks) {
    constexpr double mebibyte = 1024.0 * 1024.0;
    json["memory"].push_back({{"peak_bytes", to_json(usage.ledger.peak)},
                              {"total_peak_bytes", usage.ledger.total_peak},
                              {"peak_rss_mib", static_cast<double>(usage.peak_resident) / mebibyte},
                              {"rss_after_mib", static_cast<double>(usage.resident) / mebibyte}});
    json["sent"].push_back(sent_json(usage));
    json["offload"].push_back(offload_json(usage));
    json["cpu_use"].push_back(static_cast<double>(usage.processor) /
                              static_cast<double>(std::max<std::int64_t>(1, usage.elapsed)));
  }
  return json;
}

std::string summary_table(const RunSummary& summary) {
  std::ostringstream out;
  const auto loss = [](double value) { return std::isnan(value) ? std::abs(value) : value; };  // printf has a -nan
  const double first = summary.losses.empty() ? 0.0 : loss(summary.losses.front());
  const double last = summary.losses.empty() ? 0.0 : loss(summary.losses.back());
  out << (summary.steps == 0 ? text::formatted("no steps left to run: %lld were run before",
                                               static_cast<long long>(summary.steps_done))
                             : text::formatted("steps %lld, loss %.4f->%.4f, median step %.3f s, %.0f tokens/s",
                                               static_cast<long long>(summary.steps), first, last,
                                               summary.median_step_s, summary.tokens_per_s))
      << (summary.skipped > 0 ? ", skipped " + std::to_string(summary.skipped) : "")
      << (summary.made_again > 0 ? ", updates repeated " + std::to_string(summary.made_again) : "") << "\n";
  if (summary.predicted_step_s && summary.steps > 0)
    out << text::formatted("offload: auto predicted %.3f s per step; the median differs by %+.1f %%\n",
                           *summary.predicted_step_s,
                           100.0 * (summary.median_step_s / *summary.predicted_step_s - 1.0));
  if (const std::optional<double> hidden = summary.tensor.hidden()) {
    const double steps = static_cast<double>(std::max<std::int64_t>(summary.steps, 1));
    out << text::formatted(
        "tensor parallelism: waits for collectives %.3f s per step; matmuls hid %.0f %% of the overlapped ones\n",
        summary.tensor.waited() / steps, 100.0 * *hidden);
  }
  if (summary.last_validation) {
    const ValidationResult& found = summary.last_validation->result;
    out << text::formatted("validation loss %.4f, perplexity %.2f; best loss %.4f after step %lld\n", found.loss,
                           found.perplexity(), summary.best_validation->result.loss,
                           static_cast<long long>(summary.best_validation->step + 1));
  }
  using Values = std::vector<std::int64_t>;  // by rank
  std::vector<std::pair<std::string, Values>> rows;
  const auto row = [&](const std::string& name, auto&& value) {
    Values values;
    for (const RankUsage& usage : summary.ranks) values.push_back(value(usage));
    if (std::ranges::any_of(values, [](std::int64_t one) { return one != 0; })) rows.emplace_back(name, values);
  };
  for (int c = 0; c < category_count; ++c)
    for (int t = 0; t < tier_count; ++t)
      row(memory_name(static_cast<Category>(c), static_cast<Tier>(t)), [&](const RankUsage& usage) {
        return usage.ledger.peak[static_cast<std::size_t>(c)][static_cast<std::size_t>(t)];
      });
  row("RSS", [](const RankUsage& usage) { return usage.peak_resident; });
  row("sent", [](const RankUsage& usage) { return usage.sent; });
  row("offload read", [](const RankUsage& usage) { return usage.read; });
  row("offload written", [](const RankUsage& usage) { return usage.written; });
  int width = 12;
  for (const auto& [name, values] : rows) width = std::max(width, static_cast<int>(name.size()));
  out << text::formatted("%-*s", width + 2, "peak bytes");
  const auto cell = [&](const std::string& text) { out << text::formatted(" %14s", text.c_str()); };
  const bool all = summary.ranks.size() <= ranks_shown;
  if (!all) {
    cell("least");
    cell("most");
    cell("most on");
  }
  for (std::size_t rank = 0; all && rank < summary.ranks.size(); ++rank) cell("rank " + std::to_string(rank));
  out << "\n";
  for (const auto& [name, values] : rows) {
    out << text::formatted("  %-*s", width, name.c_str());
    if (!all) {
      const auto least = std::ranges::min_element(values), most = std::ranges::max_element(values);
      cell(text::format_bytes(*least));
      cell(text::format_bytes(*most));
      cell("rank " + std::to_string(most - values.begin()));
    }
    for (std::size_t rank = 0; all && rank < values.size(); ++rank) cell(text::format_bytes(values[rank]));
    out << "\n";
  }
  return out.str();
}

}  // namespace strata::report
