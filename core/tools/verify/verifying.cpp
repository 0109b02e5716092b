#include "tools/verify/verifying.hpp"

#include <strata/error.hpp>
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "conformance/drawn/draws.hpp"
#include "conformance/drawn/shrink.hpp"
#include "text/shell_word.hpp"
#include "text/terminal_output.hpp"
#include "tools/compare/variant_runs.hpp"
#include "tools/verify/covered.hpp"
#include "tools/verify/drawn_runs.hpp"
#include "tools/verify/folder.hpp"
#include "tools/verify/ticker.hpp"

namespace strata::verify {

namespace {

// An update, and a gradient by what it wrote.
std::int64_t own_steps(const CheckedRun& run) {
  return is_delayed(run) ? 3 : 2;
}

constexpr int simpler_worlds = 24;             // to try for a drawn run that is wrong
constexpr std::int64_t steps_near = 3;         // of every drawn run, so that they share plain runs
constexpr std::uint64_t drawn_to_choose = 16;  // of these, the one that shows most is run

Bounds bounds_of(const CheckedRun& run) {
  using Kind = plugins::Equivalence::Kind;
  const config::RunConfig& config = run.config();
  const at::ScalarType dtype = asked<PrecisionPolicy>(run, config.precision)->activation();
  const plugins::Equivalence own = equivalence(run, config.precision);
  constexpr double of_16_bits = 2e-2;  // what such formats promise; one that promises less rounds more
  Bounds bounds;
  bounds.rounding = std::exp2(own.kind == Kind::Bitwise ? -24 : dtype == at::kHalf ? -11 : -9);
  if (own.kind == Kind::Tolerance) bounds.rounding *= std::max(1.0, own.bound / of_16_bits);
  bounds.tokens = config.train.global_batch * config.model.seq_len;
  bounds.tensor_ranks = config.parallel.size(Axis::Tensor);
  for (const config::PluginChoice* choice : config.plugins()) {
    const plugins::Equivalence promise = equivalence(run, *choice);
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

using FinalSettings = std::map<std::string, std::string>;  // by key

// For a shell.
std::string command(const Run& run, std::int64_t steps) {
  std::string text = "strata train " + text::shell_word(run.config);
  if (run.ranks > 1) text += format(" --nproc {} --oversubscribe", run.ranks);
  for (const std::string& setting : run.settings) text += " --set " + text::shell_word(setting);
  return format("{} --set train.steps={}", text, steps);
}

class Verifying {
 public:
  Verifying(const Run& user_run, const std::string& keep, bool say) : user_run_(user_run), folder_(keep), say_(say) {}

  // First with the precision that hides nothing, in which a difference of a thousandth shows.
  Findings run(const Search& search) {
    const auto begin = std::chrono::steady_clock::now();
    const CheckedRun small = [&] {
      const Ticker ticker("scaling the config down", say_);
      return make_small(user_run_, folder_.path());
    }();
    std::map<std::string, double> rounding;
    std::optional<CheckedRun> exact;
    if (equivalence(small, small.config().precision).kind != plugins::Equivalence::Kind::Bitwise) {
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

  // Until one is wrong; that one, simplified, is reported.
  void try_near(const CheckedRun& small, const std::optional<CheckedRun>& exact, const Search& search,
                std::chrono::steady_clock::time_point begin, Findings& findings) {
    const auto over = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= search.seconds;
    };
    Covered covered;
    for (std::uint64_t turn = 0; !findings.agreement.wrong && !over(); ++turn) {
      const CheckedRun& around = exact && turn % 2 == 0 ? *exact : small;
      const auto [drawn, choices] = next(around, search.seed, turn, covered);
      if (!drawn.run) continue;
      covered.add(drawn.traits);
      const std::optional<bool> wrong = is_wrong(drawn);
      if (wrong) ++findings.near;
      if (!wrong.value_or(false)) continue;
      const std::int64_t tried = findings.near;
      const DrawnRun simple = simplest(around, choices);
      findings = shown(simple);
      findings.near = tried;
      findings.changes = simple.changes;
    }
  }

  // Of some drawn runs the one with most combinations of traits that none had, for the processes that it takes.
  std::pair<DrawnRun, conformance::Choices> next(const CheckedRun& around, std::uint64_t seed, std::uint64_t turn,
                                                 const Covered& covered) {
    std::pair<DrawnRun, conformance::Choices> best;
    double most = 0.0;
    for (std::uint64_t one = 0; one < drawn_to_choose; ++one) {
      conformance::Draws draws(conformance::mixed(seed, turn * drawn_to_choose + one));
      DrawnRun drawn = drawn_run(around, user_run_.settings, folder_.path(), draws);
      if (!drawn.run) continue;
      const int processes = 1 + drawn.run->run.ranks + (plain_runs_.contains(plain_key(drawn)) ? 0 : 1);
      const double shows = covered.unseen(drawn.traits) / processes;
      if (shows <= most) continue;
      most = shows;
      best = {std::move(drawn), draws.chosen()};
    }
    return best;
  }

  // Settings of its plain run; later ones win.
  static FinalSettings plain_key(const DrawnRun& drawn) {
    FinalSettings settings;
    for (const std::string& one : plain_run_for_step(*drawn.run, drawn.plain->run, 0).settings)
      settings.insert_or_assign(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
    return settings;
  }

  // A run that ends in an error is wrong, too: the config was accepted. Nothing where the plain run has no numbers to
  // compare with, as with some values of an optimizer's options, or where other micro-batches alone change it as much.
  std::optional<bool> is_wrong(const DrawnRun& drawn) {
    bounds_ = bounds_of(*drawn.run);
    const auto [found, is_new] = plain_runs_.try_emplace(plain_key(drawn));
    if (is_new) found->second = plain_record(drawn);
    const auto finite = [](double number) { return std::isfinite(number); };
    const auto is_norm = [](double number) { return std::isfinite(number) && number > 0.0; };
    if (!std::ranges::all_of(found->second.losses, finite) || !std::ranges::all_of(found->second.norms, is_norm))
      return std::nullopt;
    try {
      if (!compare(record("similar run: " + described(*drawn.run), drawn.run->run, steps_near), found->second, bounds_)
               .wrong)
        return false;
    } catch (const EnvironmentError&) {
      return true;
    }
    const std::optional<CheckedRun> by_samples = plain_run_by_samples(*drawn.run);
    if (!by_samples) return true;
    if (compare(
            record_plain("reference of a similar run, other micro-batches", *drawn.run, by_samples->run, steps_near),
            found->second, bounds_)
            .wrong)
      return std::nullopt;
    return true;
  }

  // Without numbers where it does not run at all.
  Recorded plain_record(const DrawnRun& drawn) {
    try {
      return record_plain("reference of a similar run", *drawn.run, drawn.plain->run, steps_near);
    } catch (const EnvironmentError&) {
      Recorded nothing;
      nothing.losses = {NAN};
      return nothing;
    }
  }

  // Its first two steps and the others may be those of different runs.
  Recorded record_plain(const std::string& what, const CheckedRun& small, const Run& plain, std::int64_t steps) {
    Recorded recorded = record(what, plain_run_for_step(small, plain, 0), steps);
    if (!is_delayed(small)) return recorded;
    const Recorded later = record(what, plain_run_for_step(small, plain, 2), steps);
    for (std::size_t step = 2; step < later.gradients.size(); ++step) {
      recorded.losses[step] = later.losses[step];
      recorded.norms[step] = later.norms[step];
      recorded.gradients[step] = later.gradients[step];
    }
    return recorded;
  }

  Findings shown(const DrawnRun& wrong) {
    try {
      return run(*wrong.run, steps_near);
    } catch (const EnvironmentError& error) {
      throw EnvironmentError("a similar run fails: {}\n  {}\n{}", described(*wrong.run),
                             command(wrong.run->run, steps_near), error.what());
    }
  }

  DrawnRun simplest(const CheckedRun& around, const conformance::Choices& failing) {
    const auto draw = [&](const conformance::Choices& choices, conformance::Choices& took) {
      conformance::Draws draws(choices);
      DrawnRun drawn = drawn_run(around, user_run_.settings, folder_.path(), draws);
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
    plain_ = record_plain("reference run", findings.small, plain.run, steps);
    if (by_samples) {
      findings.agreement =
          agreement(record_plain("reference run, other micro-batches", findings.small, by_samples->run, steps));
      findings.plain_runs_differ = findings.agreement.wrong.has_value();
    }
    if (!findings.plain_runs_differ)
      findings.agreement = agreement(record("run of the config", findings.small.run, steps));
    if (findings.agreement.wrong) {
      if (!findings.plain_runs_differ) find_cause(findings);
      const auto of_step = [&](const Run& run) {
        return command(plain_run_for_step(findings.small, run, findings.agreement.wrong->step), steps);
      };
      findings.commands = {findings.plain_runs_differ ? of_step(by_samples->run) : command(findings.small.run, steps),
                           of_step(plain.run)};
    }
    findings.rounding[findings.small.config().precision.name] = findings.agreement.furthest;
    return findings;
  }

  Recorded record(const std::string& what, const Run& run, std::int64_t steps) {
    const Ticker ticker(what, say_);
    const bool several = run.ranks > 1;
    Recorded recorded;
    compare::VariantRuns(several ? run.ranks : 0, /*oversubscribe=*/several, /*warmup_steps=*/0)
        .record({what, run.config, run.settings}, steps, recorded);
    return recorded;
  }

  Agreement agreement(const Recorded& run) const { return compare(run, plain_, bounds_); }

  Recorded plain_of(const CheckedRun& simpler, const CheckedRun& small) {
    return train_differently(simpler, small) ? record_plain("its plain run", simpler, plain_run(simpler).run, steps_)
                                             : plain_;
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
  Bounds bounds_;
  Recorded plain_;
  std::int64_t steps_ = 0;
  std::map<FinalSettings, Recorded> plain_runs_;  // of drawn runs
};

}  // namespace

Findings verify(const Run& user_run, const Search& search, const std::string& keep, bool say) {
  return Verifying(user_run, keep, say).run(search);
}

}  // namespace strata::verify
