#include "tools/compare/variant_runs.hpp"

#include <stdlib.h>
#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>

#include "data/temporary_folder.hpp"
#include "report/run_summary.hpp"
#include "text/json.hpp"
#include "tools/compare/run_in_turns.hpp"

namespace strata::compare {

namespace {

// A number, which JSON writes as null where it is none.
double number(const text::JsonValue& value) {
  return value.json().is_null() ? NAN : value.number();
}

double number(const text::JsonValue& record, const char* key) {
  const std::optional<text::JsonValue> value = record.find(key);
  return value ? value->number() : NAN;
}

std::string read_whole(const std::string& path) {
  const InputFile file(path);
  std::string bytes(file.size(), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

text::JsonDocument read_summary(const std::string& path) {
  return text::read_json(InputFile(path), {std::size_t{1} << 30});
}

// The median over the steps of `times` / `baseline`, so that single slow steps do not matter.
double middle_ratio(const std::vector<double>& times, const std::vector<double>& baseline) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(times.size(), baseline.size()); ++i) ratios.push_back(times[i] / baseline[i]);
  return report::median(ratios);
}

}  // namespace

VariantRuns::VariantRuns(int nproc, bool oversubscribe, std::int64_t warmup_steps)
    : nproc_(nproc),
      oversubscribe_(oversubscribe),
      warmup_steps_(warmup_steps),
      folder_(data::make_temporary_folder("strata-compare")) {}

VariantRuns::~VariantRuns() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> VariantRuns::command(const ComparedRun& run, std::int64_t steps,
                                              const std::string& summary) const {
  for (const std::string& earlier : {summary, std::string("metrics.jsonl")})  // those of the run before
    std::filesystem::remove(file(earlier));
  std::vector<std::string> words{"strata", "train", run.config, "--quiet", "--summary", file(summary)};
  if (nproc_ > 0) words.insert(words.end(), {"--nproc", std::to_string(nproc_)});
  if (oversubscribe_) words.emplace_back("--oversubscribe");
  words.insert(words.end(), {"--warmup-steps", std::to_string(warmup_steps_)});
  for (const std::string& setting : run.settings) words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), {"--set", "train.steps=" + std::to_string(steps + warmup_steps_)});
  return words;
}

void VariantRuns::expect_success(const ComparedRun& run, int status, const std::string& output,
                                 const std::string& summary) const {
  std::error_code missing;
  const bool whole = std::filesystem::file_size(file(summary), missing) > 0 && !missing;
  if (status == 0 && whole) return;
  std::string text = read_whole(file(output));
  while (text.ends_with('\n')) text.pop_back();
  if (text.starts_with("strata: ")) text.erase(0, 8);
  if (status == 0) text = "before its last step: something that it loaded ended the process. " + text;
  throw EnvironmentError("{} ended with exit status {}: {}", run.name, status, text);
}

void VariantRuns::record(const ComparedRun& run, std::int64_t steps, ComparedVariant& variant) const {
  std::vector<std::string> words = command(run, steps, "summary.json");
  words.insert(words.end(), {"--metrics", file("metrics.jsonl"), "--digests"});
  expect_success(run, RunInTurns(words, file("output"), 0).finish(), "output", "summary.json");
  variant.summary = read_summary(file("summary.json")).json();
  std::istringstream metrics(read_whole(file("metrics.jsonl")));
  for (std::string line; std::getline(metrics, line);) {
    const text::JsonDocument document(line, {file("metrics.jsonl")});
    const text::JsonValue record = document.object();
    variant.losses.push_back(number(record, "loss"));
    variant.norms.push_back(number(record, "grad_norm"));
    auto& gradients = variant.gradients.emplace_back();
    variant.resident.push_back(record["rss"].json());
    for (const auto& [name, sums] : record["gradients"].members()) {
      const std::vector<text::JsonValue> both = sums.elements();
      sums.check(both.size() == 2, "it must be a pair");
      gradients[name] = {number(both[0]), number(both[1])};
    }
  }
}

void VariantRuns::time(const ComparedRun& run, std::int64_t steps, ComparedVariant& variant) const {
  expect_success(run, RunInTurns(command(run, steps, "summary.json"), file("output"), 0).finish(), "output",
                 "summary.json");
  variant.step_seconds.push_back(read_summary(file("summary.json")).object()["median_step_s"].number());
}

void VariantRuns::time_together(const std::vector<ComparedRun>& runs, std::int64_t steps, bool backwards,
                                std::vector<ComparedVariant>& variants) const {
  const auto name = [](std::size_t i) { return std::to_string(i); };
  std::vector<std::size_t> order(runs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = backwards ? order.size() - 1 - i : i;
  std::map<std::size_t, RunInTurns> started;
  for (const std::size_t i : order) {
    started.try_emplace(i, command(runs[i], steps, name(i) + ".json"), file(name(i) + ".output"), std::max(1, nproc_));
    if (!started.at(i).stands_before_step())
      expect_success(runs[i], started.at(i).finish(), name(i) + ".output", name(i) + ".json");
  }
  for (std::int64_t step = 0; step < steps + warmup_steps_; ++step) {
    for (const std::size_t i : order) {
      started.at(i).go();
      if (!started.at(i).stands_before_step())
        expect_success(runs[i], started.at(i).finish(), name(i) + ".output", name(i) + ".json");
    }
    std::reverse(order.begin(), order.end());
  }
  std::vector<std::vector<double>> seconds;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const text::JsonDocument summary = read_summary(file(name(i) + ".json"));
    std::vector<double> all;
    for (const text::JsonValue& one : summary.object()["step_seconds"].elements()) all.push_back(one.number());
    seconds.emplace_back(all.begin() + std::min<std::ptrdiff_t>(warmup_steps_, std::ssize(all)), all.end());
    variants[i].step_seconds.push_back(report::median(seconds[i]));
    variants[i].ratios.push_back(middle_ratio(seconds[i], seconds[0]));
  }
}

}  // namespace strata::compare
