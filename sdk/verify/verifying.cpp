#include "verify/verifying.hpp"

#include <unistd.h>
#include <strata/error.hpp>
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>

#include "compare/variant_runs.hpp"
#include "drawn/draws.hpp"
#include "drawn/shrink.hpp"
#include "verify/drawn_runs.hpp"
#include "verify/folder.hpp"

namespace strata::verify {

namespace {

// An update, and a gradient by what it wrote.
std::int64_t own_steps(const CheckedRun& run) {
  return run.config().step_policy == config::StepPolicy::Delayed ? 3 : 2;
}

constexpr int simpler_worlds = 24;  // to try for a drawn run that is wrong

Bounds bounds_of(const CheckedRun& run) {
  using Kind = plugin_host::Equivalence::Kind;
  const config::RunConfig& config = run.config();
  const at::ScalarType dtype = asked<PrecisionPolicy>(run, config.precision)->activation();
  const plugin_host::Equivalence own = equivalence(run, config.precision);
  constexpr double of_16_bits = 2e-2;  // what such formats promise; one that promises less rounds more
  Bounds bounds;
  bounds.rounding = std::exp2(own.kind == Kind::Bitwise ? -24 : dtype == at::kHalf ? -11 : -9);
  if (own.kind == Kind::Tolerance) bounds.rounding *= std::max(1.0, own.bound / of_16_bits);
  bounds.tokens = config.train.global_batch * config.model.seq_len;
  bounds.tensor_parallel = config.parallel.tensor > 1;
  for (const config::PluginChoice* choice : config.plugins()) {
    const plugin_host::Equivalence promise = equivalence(run, *choice);
    if (choice != &config.precision && promise.kind == Kind::Tolerance)
      bounds.declared = std::max(bounds.declared, promise.bound);
  }
  return bounds;
}

std::vector<PlacedParameter> parameters_in(const CheckedRun& run) {
  const config::RunConfig& config = run.config();
  const auto model = asked<Model>(run, config.model.plugin);
  std::vector<PlacedParameter> parameters;
  for (int layer = 0; layer < model->layers(); ++layer) {
    const LayerInfo info = model->describe(layer, {1, config.model.seq_len, at::kFloat});
    for (const ParameterInfo& parameter : info.parameters)
      parameters.push_back({parameter.name, "layer " + std::to_string(layer) + " (" + info.name + ")"});
  }
  return parameters;
}

std::string quoted(const std::string& word) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_./=,:-+@%", c); };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

// For a shell.
std::string command(const Run& run, std::int64_t steps) {
  std::string text = "strata train " + quoted(run.config);
  if (run.ranks > 1) text += " --nproc " + std::to_string(run.ranks) + " --oversubscribe";
  for (const std::string& setting : run.settings) text += " --set " + quoted(setting);
  return text + " --set train.steps=" + std::to_string(steps);
}

class Verifying {
 public:
  Verifying(const Run& user_run, const std::string& keep, bool say) : user_run_(user_run), folder_(keep), say_(say) {}

  // First with the precision that hides nothing, in which a difference of a thousandth shows.
  Findings run(const Search& search) {
    const auto begin = std::chrono::steady_clock::now();
    const CheckedRun small = make_small(user_run_, folder_.path());
    std::map<std::string, double> rounding;
    std::optional<CheckedRun> exact;
    if (equivalence(small, small.config().precision).kind != plugin_host::Equivalence::Kind::Bitwise) {
      exact = check({small.run.config, added(small.run.settings, {default_plugin("precision")}), small.run.ranks});
      Findings findings = run(*exact, own_steps(*exact));
      if (findings.agreement.wrong) return findings;
      rounding = findings.rounding;
    }
    Findings findings = run(small, own_steps(small));
    findings.rounding.merge(rounding);
    try_near(small, exact, search, begin, findings);
    return findings;
  }

 private:
  static std::vector<std::string> added(std::vector<std::string> settings, const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  }

  // Until one is wrong: that, made simpler, is what is found then.
  void try_near(const CheckedRun& small, const std::optional<CheckedRun>& exact, const Search& search,
                std::chrono::steady_clock::time_point begin, Findings& findings) {
    const auto over = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= search.seconds;
    };
    for (std::uint64_t world = 0; !findings.agreement.wrong && !over(); ++world) {
      const CheckedRun& around = exact && world % 2 == 0 ? *exact : small;
      conformance::Draws draws(conformance::mixed(search.seed, world));
      const DrawnRun drawn = drawn_run(around, user_run_.settings, draws);
      const std::optional<bool> wrong = drawn.run ? is_wrong(drawn) : std::nullopt;
      if (wrong) ++findings.near;
      if (!wrong.value_or(false)) continue;
      const std::int64_t tried = findings.near;
      const DrawnRun simple = simplest(around, draws.chosen());
      findings = shown(simple);
      findings.near = tried;
      findings.changes = simple.changes;
    }
  }

  // A run that ends in an error is wrong, too: the config was accepted. Nothing where the plain run has no numbers to
  // compare with, as with some values of an optimizer's options, or where other micro-batches alone change it as much.
  std::optional<bool> is_wrong(const DrawnRun& drawn) {
    const CheckedRun plain = plain_run(*drawn.run);
    bounds_ = bounds_of(*drawn.run);
    std::vector<std::string> key = plain.run.settings;
    key.push_back(std::to_string(drawn.steps));
    const auto [found, is_new] = plain_runs_.try_emplace(std::move(key));
    if (is_new) found->second = plain_record(plain.run, drawn.steps);
    const auto finite = [](double number) { return std::isfinite(number); };
    if (!std::ranges::all_of(found->second.losses, finite) || !std::ranges::all_of(found->second.norms, finite))
      return std::nullopt;
    try {
      if (!compare(record("a run near it: " + described(*drawn.run), drawn.run->run, drawn.steps), found->second,
                   bounds_)
               .wrong)
        return false;
    } catch (const EnvironmentError&) {
      return true;
    }
    const std::optional<CheckedRun> by_samples = plain_run_by_samples(*drawn.run);
    if (!by_samples) return true;
    if (compare(record("a plain run in other micro-batches", by_samples->run, drawn.steps), found->second, bounds_)
            .wrong)
      return std::nullopt;
    return true;
  }

  // Without numbers where it does not run at all.
  Recorded plain_record(const Run& plain, std::int64_t steps) {
    try {
      return record("a plain run", plain, steps);
    } catch (const EnvironmentError&) {
      Recorded nothing;
      nothing.losses = {NAN};
      return nothing;
    }
  }

  Findings shown(const DrawnRun& wrong) {
    try {
      return run(*wrong.run, wrong.steps);
    } catch (const EnvironmentError& error) {
      throw EnvironmentError("a run near the config's fails: " + described(*wrong.run) + "\n  " +
                             command(wrong.run->run, wrong.steps) + "\n" + error.what());
    }
  }

  DrawnRun simplest(const CheckedRun& around, const conformance::Choices& failing) {
    const auto draw = [&](const conformance::Choices& choices, conformance::Choices& took) {
      conformance::Draws draws(choices);
      DrawnRun drawn = drawn_run(around, user_run_.settings, draws);
      took = draws.chosen();
      return drawn;
    };
    conformance::Choices took;
    const conformance::Choices shrunk =
        conformance::shrunk(failing, simpler_worlds, [&](const conformance::Choices& choices) {
          const DrawnRun drawn = draw(choices, took);
          return drawn.run && is_wrong(drawn).value_or(false) ? std::optional(took) : std::nullopt;
        });
    return draw(shrunk, took);
  }

  Findings run(CheckedRun small, std::int64_t steps) {
    steps_ = steps;
    Findings findings{std::move(small)};
    const CheckedRun plain = plain_run(findings.small);
    const std::optional<CheckedRun> by_samples = plain_run_by_samples(findings.small);
    bounds_ = bounds_of(findings.small);
    findings.parameters = parameters_in(findings.small);
    plain_ = record("the plain run", plain.run, steps);
    if (by_samples) {
      findings.agreement = agreement(record("the plain run in other micro-batches", by_samples->run, steps));
      findings.plain_runs_differ = findings.agreement.wrong.has_value();
    }
    if (!findings.plain_runs_differ) findings.agreement = agreement(record("the run", findings.small.run, steps));
    if (findings.agreement.wrong) {
      if (!findings.plain_runs_differ) find_cause(findings);
      findings.commands = {command(findings.plain_runs_differ ? by_samples->run : findings.small.run, steps),
                           command(plain.run, steps)};
    }
    findings.rounding[findings.small.config().precision.name] = findings.agreement.furthest;
    if (say_ && on_terminal_) std::cerr << "\r\033[K" << std::flush;
    return findings;
  }

  Recorded record(const std::string& what, const Run& run, std::int64_t steps) {
    if (say_) std::cerr << (on_terminal_ ? "\r\033[K" : "") << what << (on_terminal_ ? "" : "\n") << std::flush;
    const bool several = run.ranks > 1;
    Recorded recorded;
    cli::VariantRuns(several ? run.ranks : 0, /*oversubscribe=*/several, /*warmup_steps=*/0)
        .record({what, run.config, run.settings}, steps, recorded);
    return recorded;
  }

  Agreement agreement(const Recorded& run) const { return compare(run, plain_, bounds_); }

  Recorded plain_of(const CheckedRun& simpler, const CheckedRun& small) {
    return train_differently(simpler, small) ? record("its plain run", plain_run(simpler).run, steps_) : plain_;
  }

  void find_cause(Findings& findings) {
    for (const SimplerRun& simpler : simpler_runs(findings.small)) {
      try {
        const Recorded its = record("without " + simpler.without, simpler.run.run, steps_);
        const bool wrong = compare(its, plain_of(simpler.run, findings.small), bounds_).wrong.has_value();
        findings.tried.push_back(simpler);
        if (!wrong) findings.right_without.push_back(simpler);
      } catch (const EnvironmentError&) {  // the others may tell
        findings.did_not_run.push_back(simpler);
      }
    }
  }

  const Run& user_run_;
  Folder folder_;
  bool say_;
  bool on_terminal_ = isatty(STDERR_FILENO) == 1;
  Bounds bounds_;
  Recorded plain_;
  std::int64_t steps_ = 0;
  std::map<std::vector<std::string>, Recorded> plain_runs_;  // of drawn runs, by settings and steps
};

}  // namespace

Findings verify(const Run& user_run, const Search& search, const std::string& keep, bool say) {
  return Verifying(user_run, keep, say).run(search);
}

}  // namespace strata::verify
