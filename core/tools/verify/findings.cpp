#include "tools/verify/findings.hpp"

#include <algorithm>
#include <cmath>

#include "text/formatted.hpp"

namespace strata::verify {

namespace {

using text::formatted;

std::string joined(const std::vector<std::string>& parts, const std::string& between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

bool about(double value, double wanted) {
  return std::abs(value - wanted) <= 0.02 * wanted;
}

// The divisions of the work that may be wrong: without one of them the run is right; all of them where none helped.
std::vector<Division> suspects(const Findings& findings) {
  std::vector<Division> divisions;
  for (const SimplerRun& run : findings.right_without.empty() ? findings.tried : findings.right_without)
    if (!run.division.parts.empty()) divisions.push_back(run.division);
  // Without tensor-parallel ranks there are no slices either.
  if (std::ranges::find(divisions, slices_of_the_sequence, &Division::parts) != divisions.end())
    std::erase_if(divisions, [](const Division& one) { return one.parts == info_of(Axis::Tensor).ranks; });
  return divisions;
}

std::string names_of(const std::vector<Division>& divisions) {
  std::vector<std::string> names;
  for (const Division& division : divisions) names.push_back(division.parts);
  return names.empty() ? "ranks" : joined(names, " or ");
}

std::string guess_by_factor(const Findings& findings, double factor) {
  std::vector<Division> counted, averaged;
  for (const Division& division : suspects(findings)) {
    const auto many = static_cast<double>(division.number);
    if (many > 1 && about(factor, many)) counted.push_back(division);
    if (many > 1 && about(factor, 1.0 / many)) averaged.push_back(division);
  }
  const std::string times = text::formatted("it is %.4g times the correct value", factor);
  if (!counted.empty())
    return times + ": summed over the " + names_of(counted) + ", although each already has the full value";
  if (!averaged.empty())
    return times + ": averaged over the " + names_of(averaged) + " instead of summed, or taken from one of them alone";
  return times;
}

std::string guess(const Findings& findings, const WrongStep& wrong, const WrongGradient* gradient) {
  if (findings.plain_runs_differ)
    return "a single process computes different gradients with another train.accumulation: the loss may be a mean (it "
           "must be a sum over valid tokens), or a layer may mix samples";
  if (wrong.step > 0)
    return "the gradients of the previous step are right, so the update after it is wrong: some elements are not "
           "updated exactly once, or some ranks do not get the new values";
  if (gradient == nullptr && wrong.norm && !wrong.loss)
    return std::abs(wrong.norm->factor.value_or(0.0)) > 1.0
               ? "all gradients are right, only the norm is wrong: some elements are counted by several ranks"
               : "all gradients are right, only the norm is wrong: some elements are counted by no rank";
  if (wrong.loss) return "the forward computes a different loss: start there, because the gradients depend on it";
  if (gradient == nullptr) return "";
  if (!std::isfinite(gradient->apart)) return "it is missing or not finite in one of the two runs";
  if (gradient->factor) return guess_by_factor(findings, *gradient->factor);
  return "a part of it is missing or counted twice, for example because it is not summed over the " +
         names_of(suspects(findings));
}

std::vector<std::string> names(const std::vector<SimplerRun>& runs) {
  std::vector<std::string> all;
  for (const SimplerRun& run : runs) all.push_back(run.without);
  return all;
}

std::string layer_of(const Findings& findings, const std::string& parameter) {
  const auto found = std::ranges::find(findings.parameters, parameter, &PlacedParameter::name);
  return found == findings.parameters.end() ? "no layer" : found->layer;
}

std::string first_wrong(const Findings& findings, const WrongStep& wrong, const WrongGradient& gradient) {
  return gradient.parameter + " of " + layer_of(findings, gradient.parameter) +
         text::formatted(", off by %.2g of its norm in step %lld (rounding: up to %.1g)", gradient.apart,
                         static_cast<long long>(wrong.step + 1), gradient.bound);
}

}  // namespace

const WrongGradient* first_in_backward(const Findings& findings) {
  if (!findings.agreement.wrong) return nullptr;
  const auto place = [&](const WrongGradient& gradient) {
    return std::ranges::find(findings.parameters, gradient.parameter, &PlacedParameter::name) -
           findings.parameters.begin();
  };
  const auto& wrong = findings.agreement.wrong->gradients;
  const auto last = std::ranges::max_element(wrong, {}, place);
  return last == wrong.end() ? nullptr : &*last;
}

std::string described(const CheckedRun& small) {
  const config::RunConfig& config = small.config();
  const std::string mesh = text_of(config.parallel.mesh) + (config.sequence_parallel ? " with sequence" : "");
  std::vector<std::string> parts{config.model.plugin.name, mesh};
  for (const config::PluginChoice* choice :
       {&config.partitioner, &config.scheduler, &config.precision, &config.optimizer})
    parts.push_back(choice->name);
  if (config.recompute.all || !config.recompute.layers.empty()) parts.emplace_back("recomputation");
  for (const config::PluginChoice* home : config.offload.homes())
    if (home->slot.find('.') != std::string::npos && home->slot != "offload.host" && home->slot != "offload.disk")
      parts.push_back(home->slot + " on " + home->name);
  return joined(parts, ", ");
}

std::string to_text(const Findings& findings) {
  std::string text = described(findings.small) + "\n";
  if (!findings.agreement.wrong) {
    text += text::formatted(
        "OK: gradients of %zu parameters, norms and losses over %zu steps match a single process; worst deviation:",
        findings.agreement.parameters, findings.agreement.steps);
    for (const auto& [precision, part] : findings.rounding)
      text += text::formatted(" %.0f %% of the rounding bound in ", 100.0 * part) + precision +
              (precision == findings.rounding.rbegin()->first ? "\n" : ",");
    if (findings.near > 0) text += text::formatted("OK: %lld similar runs\n", static_cast<long long>(findings.near));
    return text;
  }
  if (!findings.changes.empty())
    text += text::formatted(
                "The config's own run is right. Similar run %lld is wrong; simplified, it differs from the config by: ",
                static_cast<long long>(findings.near)) +
            joined(findings.changes, ", ") + "\n";
  const WrongStep& wrong = *findings.agreement.wrong;
  const WrongGradient* const gradient = first_in_backward(findings);
  text += text::formatted("wrong from step %lld on: %zu of %zu gradients", static_cast<long long>(wrong.step + 1),
                          wrong.gradients.size(), findings.agreement.parameters);
  if (wrong.norm)
    text += text::formatted(", the norm (%.6g times the correct value)", wrong.norm->factor.value_or(NAN));
  if (wrong.loss) text += text::formatted(", the loss (off by %.2g)", wrong.loss->apart);
  text += "\n";
  if (gradient != nullptr)
    text += "first wrong gradient in backward order: " + first_wrong(findings, wrong, *gradient) + "\n";
  if (!findings.tried.empty())
    text += findings.right_without.empty()
                ? "still wrong after removing individually: " + joined(names(findings.tried), ", ") + "\n"
                : "right without: " + joined(names(findings.right_without), ", or ") + "\n";
  if (!findings.did_not_run.empty())
    text += "cannot run: without " + joined(names(findings.did_not_run), ", without ") + "\n";
  const std::string cause = guess(findings, wrong, gradient);
  if (!cause.empty()) text += "likely cause: " + cause + "\n";
  for (const std::string& command : findings.commands) text += "  " + command + "\n";
  return text;
}

nlohmann::json to_json(const Findings& findings) {
  nlohmann::json json{{"run", described(findings.small)},
                      {"ranks", findings.small.run.ranks},
                      {"equal", !findings.agreement.wrong.has_value()},
                      {"parameters", findings.agreement.parameters},
                      {"part_of_bound", findings.rounding},
                      {"runs_near", findings.near},
                      {"changes", findings.changes}};
  if (!findings.agreement.wrong) return json;
  const WrongStep& wrong = *findings.agreement.wrong;
  const WrongGradient* const gradient = first_in_backward(findings);
  json["step"] = wrong.step + 1;
  json["wrong_gradients"] = nlohmann::json::array();
  for (const WrongGradient& one : wrong.gradients) {
    json["wrong_gradients"].push_back({{"parameter", one.parameter}, {"apart", one.apart}, {"bound", one.bound}});
    if (one.factor) json["wrong_gradients"].back()["factor"] = *one.factor;
  }
  if (gradient != nullptr)
    json["first"] = {{"parameter", gradient->parameter}, {"layer", layer_of(findings, gradient->parameter)}};
  if (wrong.norm) json["norm_factor"] = wrong.norm->factor.value_or(NAN);
  if (wrong.loss) json["loss_apart"] = wrong.loss->apart;
  json["tried_without"] = names(findings.tried);
  json["did_not_run_without"] = names(findings.did_not_run);
  json["right_without"] = names(findings.right_without);
  json["likely"] = guess(findings, wrong, gradient);
  json["commands"] = findings.commands;
  return json;
}

}  // namespace strata::verify
