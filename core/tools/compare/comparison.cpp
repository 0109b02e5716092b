#include "tools/compare/comparison.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "report/run_summary.hpp"
#include "text/formatted.hpp"
#include "text/size.hpp"
#include "tools/compare/paired_ratio.hpp"

namespace strata::compare {

namespace {

// Difference relative to `baseline`; 0 if both are equal or both NaN; infinite if only one is NaN.
double relative(double value, double baseline) {
  if (value == baseline || (std::isnan(value) && std::isnan(baseline))) return 0.0;
  const double apart = std::abs(value - baseline) / std::max(std::abs(baseline), 1e-30);
  return std::isnan(apart) ? INFINITY : apart;
}

// The parameter whose gradient differs most in this step, its difference relative to its norm, and the median
// difference over parameters.
struct Furthest {
  std::string parameter;
  double off = 0.0;
  double middle = 0.0;
};
Furthest furthest(const std::map<std::string, GradientSums>& gradients,
                  const std::map<std::string, GradientSums>& baseline) {
  Furthest result;
  std::vector<double> all;
  for (const auto& [name, sums] : gradients) {
    const auto found = baseline.find(name);
    if (found == baseline.end()) continue;  // not in the other model; the losses show that
    const GradientSums& other = found->second;
    const double norm = std::max(std::abs(other.norm), 1e-30);
    double off = sums.projection == other.projection ? 0.0 : std::abs(sums.projection - other.projection) / norm;
    if (std::isnan(off)) off = std::isnan(sums.projection) && std::isnan(other.projection) ? 0.0 : INFINITY;
    all.push_back(off);
    if (off > result.off) {
      result.off = off;
      result.parameter = name;
    }
  }
  result.middle = report::median(all);
  return result;
}

std::string verdict(const PairedRatio& ratio) {
  if (!ratio.slower() && !ratio.faster()) return "no difference beyond noise";
  return text::formatted("%s by %.1f %%", ratio.slower() ? "slower" : "faster", 100.0 * std::abs(ratio.ratio - 1.0));
}

std::optional<PairedRatio> ratio_of(const Comparison& comparison, const ComparedVariant& variant) {
  const ComparedVariant& baseline = comparison.variants.front();
  if (&variant == &baseline || comparison.pairs() < smallest_pairs) return std::nullopt;
  if (!variant.ratios.empty()) return paired_ratio(variant.ratios, std::vector<double>(variant.ratios.size(), 1.0));
  return paired_ratio(variant.step_seconds, baseline.step_seconds);
}

// Without an interval, from fewer pairs than one needs.
double plain_ratio(const Comparison& comparison, const ComparedVariant& variant) {
  if (!variant.ratios.empty()) return report::median(variant.ratios);
  return report::median(variant.step_seconds) / report::median(comparison.variants.front().step_seconds);
}

// One quantity of a variant, as a number and as text. NaN: not available.
struct Quantity {
  std::string name;
  std::function<double(const ComparedVariant&)> value;
  std::function<std::string(double)> text;
};

std::string bytes_text(double bytes) {
  return text::format_bytes(static_cast<std::int64_t>(bytes));
}

std::string whole_text(double value) {
  return text::formatted("%.0f", value);
}

// The maximum over ranks of a number in each rank's entry of `section`.
std::function<double(const ComparedVariant&)> largest(const char* section,
                                                      std::function<double(const nlohmann::json&)> number) {
  return [section, number = std::move(number)](const ComparedVariant& variant) {
    double most = 0.0;
    for (const nlohmann::json& rank : variant.summary.at(section)) most = std::max(most, number(rank));
    return most;
  };
}

// Every (tier, category) that any variant holds, in the ledger's order of names.
std::set<std::pair<std::string, std::string>> held_categories(const Comparison& comparison) {
  std::set<std::pair<std::string, std::string>> held;
  for (const ComparedVariant& variant : comparison.variants)
    for (const nlohmann::json& rank : variant.summary.at("memory"))
      for (const auto& [tier, categories] : rank.at("peak_bytes").items())
        for (const auto& [category, bytes] : categories.items()) held.emplace(tier, category);
  return held;
}

std::vector<std::string> metric_names(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const ComparedVariant& variant : comparison.variants)
    for (const auto& [name, metric] : variant.summary.at("plugin_metrics").items())
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

std::vector<Quantity> quantities(const Comparison& comparison) {
  std::vector<Quantity> list;
  const auto tokens_per_second = [](const ComparedVariant& variant) {
    const double recorded = variant.summary.at("median_step_s").get<double>();
    return variant.summary.at("tokens_per_s").get<double>() * recorded / report::median(variant.step_seconds);
  };
  list.push_back({"tokens/s", tokens_per_second, whole_text});
  for (const auto& [tier, category] : held_categories(comparison)) {
    const auto peak = [tier = tier, category = category](const nlohmann::json& rank) {
      const nlohmann::json& bytes = rank.at("peak_bytes");
      return bytes.contains(tier) ? bytes.at(tier).value(category, 0.0) : 0.0;
    };
    list.push_back(
        {"peak " + category + (tier == "device" ? "" : " (" + tier + ")"), largest("memory", peak), bytes_text});
  }
  list.push_back({"peak total", peak_bytes, bytes_text});
  if (std::ranges::any_of(comparison.variants, [](const auto& variant) { return growth_of_memory(variant) > 0.0; }))
    list.push_back({"RSS grows a step", growth_of_memory, bytes_text});
  const auto resident = [](const nlohmann::json& rank) { return rank.at("peak_rss_mib").get<double>() * 0x1p20; };
  list.push_back({"peak RSS", largest("memory", resident), bytes_text});
  const auto percent = [](const nlohmann::json& rank) { return 100.0 * rank.get<double>(); };
  list.push_back({"CPU %", largest("cpu_use", percent), whole_text});
  const auto total = [](const nlohmann::json& rank) { return rank.at("total").get<double>(); };
  const auto sent_a_step = [sent = largest("sent", total)](const ComparedVariant& variant) {
    return sent(variant) / std::max(1.0, variant.summary.at("steps").get<double>());
  };
  list.push_back({"sent a step", sent_a_step, bytes_text});
  for (const std::string& name : metric_names(comparison)) {
    const auto metric = [name](const ComparedVariant& variant) {
      const nlohmann::json& metrics = variant.summary.at("plugin_metrics");
      const bool known = metrics.contains(name) && metrics.at(name).at("value").is_number();
      return known ? metrics.at(name).at("value").get<double>() : NAN;
    };
    list.push_back({name, metric, [](double value) { return text::formatted("%.4g", value); }});
  }
  const auto final_loss = [](const ComparedVariant& variant) {
    return variant.losses.empty() ? NAN : variant.losses.back();
  };
  list.push_back({"final loss", final_loss, [](double value) { return text::formatted("%.6f", value); }});
  return list;
}

// Names and texts of all quantities of a variant, in order of the table.
std::vector<std::pair<std::string, std::string>> described(const Comparison& comparison, const ComparedVariant& variant,
                                                           bool plain_numbers) {
  const bool is_baseline = &variant == &comparison.variants.front();
  std::vector<std::pair<std::string, std::string>> lines;
  const auto seconds = [&](double value) { return text::formatted(plain_numbers ? "%.17g" : "%#.4g", value); };
  lines.emplace_back("step s", seconds(report::median(variant.step_seconds)));
  const auto [low, high] = std::minmax_element(variant.step_seconds.begin(), variant.step_seconds.end());
  if (comparison.pairs() > 1) lines.emplace_back("range of runs", seconds(*low) + " to " + seconds(*high));
  const std::optional<PairedRatio> ratio = ratio_of(comparison, variant);
  lines.emplace_back(
      "time / baseline",
      is_baseline ? "1" : text::formatted("%.3f", ratio ? ratio->ratio : plain_ratio(comparison, variant)));
  if (comparison.pairs() >= smallest_pairs)
    lines.emplace_back("99 % interval", ratio ? text::formatted("%.3f to %.3f", ratio->low, ratio->high) : "");
  lines.emplace_back("verdict", is_baseline ? "baseline" : ratio ? verdict(*ratio) : "none without --thorough");
  for (const Quantity& quantity : quantities(comparison)) {
    const double value = quantity.value(variant);
    lines.emplace_back(quantity.name, std::isnan(value) ? ""
                                      : plain_numbers   ? text::formatted("%.17g", value)
                                                        : quantity.text(value));
  }
  const ComparedVariant& baseline = comparison.variants.front();
  std::string numbers = is_baseline ? "baseline" : to_string(difference(variant, baseline, comparison.tolerance));
  if (!is_baseline && breaks_promise(variant, baseline)) numbers += ", though " + variant.promise->text;
  lines.emplace_back("numbers", numbers);
  return lines;
}

}  // namespace

double peak_bytes(const ComparedVariant& variant) {
  return largest("memory", [](const nlohmann::json& rank) {
    double sum = 0.0;
    for (const nlohmann::json& tier : rank.at("total_peak_bytes")) sum += tier.get<double>();
    return sum;
  })(variant);
}

Difference difference(const ComparedVariant& variant, const ComparedVariant& baseline, double tolerance) {
  const bool of_gradients = !variant.promise || variant.promise->of_gradients;
  Difference result;
  for (std::size_t step = 0; step < std::min(variant.losses.size(), baseline.losses.size()); ++step) {
    const double apart = std::max(relative(variant.losses[step], baseline.losses[step]),
                                  relative(variant.norms[step], baseline.norms[step]));
    result.equal_bits = result.equal_bits && apart == 0.0;
    result.largest = std::max(result.largest, apart);
    if (apart > tolerance && !result.step) result.step = step;
    if (step >= variant.gradients.size() || step >= baseline.gradients.size()) continue;
    const Furthest found = furthest(variant.gradients[step], baseline.gradients[step]);
    result.equal_bits = result.equal_bits && found.off == 0.0;
    if (of_gradients && result.parameter.empty() && found.off > tolerance &&
        (step == 0 || found.off > 100.0 * found.middle) && (!result.step || *result.step == step)) {
      result.step = step;
      result.parameter = found.parameter;
      result.largest_gradient = found.off;
    }
  }
  return result;
}

bool breaks_promise(const ComparedVariant& variant, const ComparedVariant& baseline) {
  if (!variant.promise) return false;
  const double bound = variant.promise->bound;
  const Difference found = difference(variant, baseline, bound);
  if (bound == 0.0) return !found.equal_bits;
  return found.step && (*found.step == 0 || !found.parameter.empty() || found.largest > 100.0 * bound);
}

double growth_of_memory(const ComparedVariant& variant) {
  constexpr std::size_t parts = 4, filling = 50, shortest = 10;  // steps
  constexpr double least = 64 << 10;                             // bytes a step; less is due to allocators
  const std::size_t steps = variant.resident.size();
  if (steps < filling + parts * shortest) return 0.0;
  const std::size_t length = (steps - filling) / parts;
  double most = 0.0;
  for (std::size_t rank = 0; rank < variant.resident.front().size(); ++rank) {
    const auto highest = [&](std::size_t part) {
      double bytes = 0.0;
      for (std::size_t step = 0; step < length; ++step)
        bytes = std::max(bytes, variant.resident[steps - (parts - part) * length + step].at(rank));
      return bytes;
    };
    const auto rise = [&](std::size_t part) {
      return (highest(part) - highest(part - 1)) / static_cast<double>(length);
    };
    const double slowest = std::min({rise(1), rise(2), rise(3)});
    if (slowest >= least) most = std::max(most, (rise(1) + rise(2) + rise(3)) / 3.0);
  }
  return most;
}

namespace {

// Where it is another number than the quotient of the times in the table.
std::string account_of_ratio(const Comparison& comparison) {
  const bool of_steps = !comparison.variants.back().ratios.empty();
  if (!of_steps && comparison.pairs() < smallest_pairs) return "";
  return std::string("time / baseline is the median over pairs of ") +
         (of_steps ? "steps taken in turn" : "runs of a round") + ", not the quotient of the times; ";
}

}  // namespace

std::string account_of_times(const Comparison& comparison) {
  return (comparison.pairs() == 1 ? "a first look: one timed run of each variant; "
                                  : text::formatted("%d timed runs of each variant; ", comparison.pairs())) +
         (comparison.apart.empty() ? "step by step in turn, " : "one after the other (" + comparison.apart + "), ") +
         text::formatted("%lld steps per run; ", static_cast<long long>(comparison.steps)) +
         account_of_ratio(comparison) +
         text::formatted(
             "memory, CPU and bytes sent are of the rank with the most; numbers of the first %zu steps, "
             "tolerance %g",
             comparison.variants.front().losses.size(), comparison.tolerance);
}

std::vector<std::pair<std::string, std::string>> account_of_runs(const Comparison& comparison) {
  const Provenance& provenance = comparison.provenance;
  std::vector<std::pair<std::string, std::string>> lines{{"Strata", provenance.strata},
                                                         {"date", provenance.date},
                                                         {"machine", provenance.machine},
                                                         {"command", provenance.command}};
  for (const ComparedVariant& variant : comparison.variants) {
    std::string text = variant.config;
    const nlohmann::json setup = variant.summary.value("setup", nlohmann::json::object());
    for (const auto& [key, value] : setup.items())
      text += "; " + key + " " + (value.is_string() ? value.get<std::string>() : value.dump());
    for (const std::string& setting : variant.settings) text += "; " + setting;
    lines.emplace_back(variant.name, text);
  }
  std::erase_if(lines, [](const auto& line) { return line.second.empty(); });
  return lines;
}

std::string to_string(const Difference& difference) {
  if (difference.equal_bits) return "equal bits";
  if (!difference.step) return text::formatted("equal to %.1e", difference.largest);
  const std::size_t step = *difference.step + 1;
  if (difference.parameter.empty())
    return text::formatted("differ from step %zu, by up to %.1e", step, difference.largest);
  return "the gradient of " + difference.parameter +
         text::formatted(" differs from step %zu, by %.1e of its norm", step, difference.largest_gradient);
}

text::Table comparison_table(const Comparison& comparison, text::TableFormat format) {
  text::Table table;
  const bool by_line = format == text::TableFormat::Csv;
  table.columns = {{by_line ? "variant" : ""}};
  for (const ComparedVariant& variant : comparison.variants) {
    const auto lines = described(comparison, variant, by_line);
    if (by_line) {
      std::vector<std::string>& row = table.rows.emplace_back();
      row.push_back(variant.name);
      for (const auto& [name, text] : lines) row.push_back(text);
      if (&variant == &comparison.variants.front())
        for (const auto& [name, text] : lines) table.columns.push_back({name});
      continue;
    }
    table.columns.push_back({variant.name, true});
    table.rows.resize(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (table.rows[i].empty()) table.rows[i].push_back(lines[i].first);
      table.rows[i].push_back(lines[i].second);
    }
  }
  return table;
}

nlohmann::json to_json(const Comparison& comparison) {
  const Provenance& provenance = comparison.provenance;
  nlohmann::json all = {{"strata", provenance.strata},
                        {"date", provenance.date},
                        {"machine", provenance.machine},
                        {"command", provenance.command},
                        {"pairs", comparison.pairs()},
                        {"steps", comparison.steps},
                        {"warmup_steps", comparison.warmup_steps},
                        {"tolerance", comparison.tolerance},
                        {"in_turns", comparison.apart.empty()},
                        {"variants", nlohmann::json::array()}};
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  for (const ComparedVariant& variant : comparison.variants) {
    nlohmann::json json = {{"name", variant.name},
                           {"config", variant.config},
                           {"settings", variant.settings},
                           {"setup", variant.summary.value("setup", nlohmann::json::object())},
                           {"median_step_s", report::median(variant.step_seconds)},
                           {"run_step_s", variant.step_seconds},
                           {"run_ratio", variant.ratios},
                           {"losses", nlohmann::json::array()},
                           {"grad_norms", nlohmann::json::array()}};
    for (const double loss : variant.losses) json["losses"].push_back(number(loss));
    for (const double norm : variant.norms) json["grad_norms"].push_back(number(norm));
    for (const Quantity& quantity : quantities(comparison))
      json["quantities"][quantity.name] = number(quantity.value(variant));
    if (&variant != &comparison.variants.front()) {
      const Difference found = difference(variant, comparison.variants.front(), comparison.tolerance);
      json["difference"] = {{"equal_bits", found.equal_bits},
                            {"largest", number(found.largest)},
                            {"first_step", found.step ? nlohmann::json(*found.step + 1) : nlohmann::json(nullptr)},
                            {"gradient_of", found.parameter},
                            {"gradient_off", number(found.largest_gradient)},
                            {"text", to_string(found)}};
      json["promise"] = variant.promise ? nlohmann::json(variant.promise->text) : nlohmann::json(nullptr);
      json["breaks_promise"] = breaks_promise(variant, comparison.variants.front());
      if (const std::optional<PairedRatio> ratio = ratio_of(comparison, variant))
        json["ratio"] = {
            {"value", ratio->ratio}, {"low", ratio->low}, {"high", ratio->high}, {"verdict", verdict(*ratio)}};
    }
    all["variants"].push_back(std::move(json));
  }
  return all;
}

}  // namespace strata::compare
