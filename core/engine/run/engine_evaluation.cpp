// An engine's calls that compute without training.
#include <strata/error.hpp>

#include <algorithm>

#include "run/implementation.hpp"

namespace strata {

double Engine::evaluate(Where where) {
  Implementation& engine = *implementation_;
  engine.check_between_steps("evaluate", where);
  if (engine.config().validation.data.path.empty())
    refuse("evaluate", where, "validation.path is not set; set it, or pass the micro-batches to evaluate");
  const report::ValidationResult result = engine.part([&] {
    const auto progress = [&](std::int64_t done, std::int64_t samples) { engine.report.validating(done, samples); };
    return engine.run.validate(progress).value();
  });
  if (engine.report.has_begun()) plugins::for_program([&] { engine.report.after_validation(engine.run, result); });
  return result.loss;
}

double Engine::evaluate(const std::vector<Batch>& micro_batches, Where where) {
  Implementation& engine = *implementation_;
  engine.check_between_steps("evaluate", where);
  const auto given = static_cast<std::int64_t>(micro_batches.size());
  if (given < 1 || given > engine.config().train.accumulation)
    refuse("evaluate", where,
           std::to_string(given) + " micro-batches were given; 1 to train.accumulation = " +
               std::to_string(engine.config().train.accumulation) + " can be evaluated in one call");
  std::vector<MicroBatch> batches;
  std::int64_t valid_tokens = 0;
  for (const Batch& batch : micro_batches) {
    const data::TokenBatch tokens = engine.checked(batch, "evaluate", where);
    batches.push_back(engine.run.on_device(engine.run.steps_done(), static_cast<std::int64_t>(batches.size()), tokens));
    batches.back().training = false;
    valid_tokens += tokens.valid_tokens;
  }
  return engine.part([&] {
    step::Session& session = engine.run.session();
    const stage::ForwardSums sums = session.zero_sums();
    session.evaluate(batches, sums);
    return session.figures(sums, valid_tokens).loss;
  });
}

at::Tensor Engine::next_token_logits(const std::vector<std::int64_t>& tokens, Where where) {
  Implementation& engine = *implementation_;
  engine.check_between_steps("next_token_logits", where);
  if (tokens.empty() || std::ssize(tokens) > seq_len())
    refuse("next_token_logits", where,
           std::to_string(tokens.size()) + " tokens were given; 1 to model.seq_len = " + std::to_string(seq_len()) +
               " are allowed; of a longer text pass the last ones");
  const std::int64_t vocabulary = engine.run.model().vocabulary();
  const auto unknown = std::ranges::find_if(tokens, [&](std::int64_t id) { return id < 0 || id >= vocabulary; });
  if (unknown != tokens.end())
    refuse("next_token_logits", where,
           "the tokens hold " + std::to_string(*unknown) + "; the model's vocabulary is 0 to " +
               std::to_string(vocabulary - 1));
  return engine.part([&] { return engine.run.session().next_token_logits(tokens); });
}

}  // namespace strata
