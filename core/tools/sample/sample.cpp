#include "tools/sample/sample.hpp"

#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "plan/dry_run.hpp"
#include "plan/model_facts.hpp"
#include "run/launch_groups.hpp"
#include "run/saved_model.hpp"
#include "tools/ranks/nproc.hpp"
#include "tools/sample/character_stream.hpp"
#include "tools/sample/continuation.hpp"
#include "tools/sample/written_tokens.hpp"

namespace strata::sample {

namespace {

using namespace strata::sample;

// The inputs of a rank.
struct Prepared {
  WrittenTokens written;
  std::vector<std::int64_t> prompt;
  resolve::ResolvedRun run;
};

WrittenTokens written_by(const SampleArguments& arguments) {
  return arguments.prompt_tokens ? WrittenTokens::as_numbers() : WrittenTokens(arguments.tokenizer);
}

std::vector<std::int64_t> read_prompt(const SampleArguments& arguments, const WrittenTokens& written) {
  if (!arguments.prompt && !arguments.prompt_tokens)
    throw UserError("no prompt given; give --prompt TEXT or --prompt-tokens NUMBERS");
  std::vector<std::int64_t> tokens = written.read(arguments.prompt ? *arguments.prompt : *arguments.prompt_tokens);
  if (tokens.empty()) throw UserError("the prompt is empty; give at least one word");
  return tokens;
}

// The config of a run that computes no more than it must: one sample, of the prompt and its continuation. Of a text
// that is longer than model.seq_len the model sees the last tokens.
Prepared prepare(const SampleArguments& arguments, const config::World& world) {
  WrittenTokens written = written_by(arguments);
  std::vector<std::int64_t> prompt = read_prompt(arguments, written);
  resolve::ResolvedRun run =
      resolve::read_run(arguments.run.config, arguments.run.settings, world, config::DataSection::Optional);
  config::RunConfig& config = run.config;
  if (config.model.init.empty() && arguments.checkpoint.empty())
    throw UserError("{}: no weights to sample from; give --checkpoint PATH or --init FOLDER, or set model.init",
                    arguments.run.config);
  if (!arguments.checkpoint.empty()) run::take_saved_model(run, arguments.checkpoint);
  const std::int64_t given = std::ssize(prompt);
  if (given > config.model.seq_len)
    throw UserError(
        "the prompt has {} tokens, and model.seq_len is {}; shorten the prompt, or give --set model.seq_len={} if the "
        "model supports it",
        given, config.model.seq_len, given);
  config.model.seq_len = std::min(config.model.seq_len, given + arguments.tokens - 1);
  config.train.micro_batch = 1;
  config.train.global_batch = config.train.accumulation * config.parallel.size(Axis::Data);
  config.validation.data.path.clear();
  return {std::move(written), std::move(prompt), std::move(run)};
}

std::optional<std::int64_t> document_end_of(const SampleArguments& arguments, const Prepared& prepared) {
  const std::string& text = arguments.document_end;
  if (text == "none") return {};
  if (text == "auto") {
    const std::optional<std::int64_t>& of_config = prepared.run.config.data.document_end;
    return of_config ? of_config : prepared.written.document_end();
  }
  std::int64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{} || end != text.data() + text.size() || id < 0)
    throw UserError("--document-end is '{}'; it must be none, auto or a token id", text);
  return id;
}

void check_prompt(const Prepared& prepared, std::int64_t vocabulary) {
  const auto unknown = std::ranges::find_if(prepared.prompt, [&](std::int64_t token) { return token >= vocabulary; });
  if (unknown == prepared.prompt.end()) return;
  throw UserError("token {} of the prompt, counted from 0, is {}, and the model's token ids are 0 to {}{}",
                  unknown - prepared.prompt.begin(), *unknown, vocabulary - 1,
                  prepared.written.numbers()
                      ? "; give other tokens"
                      : "; the model was not trained on the tokens of " + prepared.written.name() +
                            ": give the --tokenizer that its tokens were made with");
}

// The output of a text: as it comes, or all at the end.
class Output {
 public:
  Output(const SampleArguments& arguments, const Prepared& prepared, std::ostream& out)
      : prepared_(prepared), json_(arguments.format == "json"), out_(out) {
    const WrittenTokens& written = prepared.written;
    if (!written.numbers()) prompt_ = stream_.add(*arguments.prompt);
    for (const std::int64_t token : written.numbers() ? prepared.prompt : std::vector<std::int64_t>())
      prompt_ += written.write(token).substr(prompt_.empty() ? 1 : 0);
  }

  void add(std::int64_t token) { show(stream_.add(prepared_.written.write(token))); }

  void finish(const Continuation& made) {
    show(stream_.finish());
    if (!json_) {
      out_ << std::endl;
      return;
    }
    nlohmann::ordered_json object;
    if (!prepared_.written.numbers()) object = {{"prompt", prompt_}, {"text", text_}};
    object["prompt_tokens"] = prepared_.prompt;
    object["tokens"] = made.tokens;
    object["ended_by"] = made.ended ? "document_end" : "tokens";
    out_ << object.dump(2) << std::endl;
  }

 private:
  // Not before there is a token, so that an error stands alone.
  void show(const std::string& text) {
    if (!json_) out_ << (begun_ ? "" : prompt_) << text << std::flush;
    begun_ = true;
    text_ += text;
  }

  const Prepared& prepared_;
  bool json_;
  std::ostream& out_;
  CharacterStream stream_;
  std::string prompt_, text_;
  bool begun_ = false;
};

// The arguments that must agree on all ranks.
std::string asked(const SampleArguments& arguments, const Prepared& prepared) {
  const Choice& choice = arguments.choice;
  const nlohmann::json all{prepared.prompt, arguments.tokens, choice.temperature,     choice.top_p,
                           choice.top_k,    choice.seed,      arguments.document_end, prepared.written.name()};
  return "sampling " + all.dump() + ";";
}

int sample_on_rank(const SampleArguments& arguments, const group::LaunchPlace& place, std::ostream& out) {
  const Prepared prepared = prepare(arguments, run::world_of(place));
  if (place.rank == 0)
    for (const std::string& note : prepared.written.notes()) spdlog::warn("{}: {}", prepared.written.name(), note);
  const config::RunConfig& config = prepared.run.config;
  const ContinuationSettings settings{arguments.choice, arguments.tokens, config.model.seq_len,
                                      document_end_of(arguments, prepared)};
  run::Run run(prepared.run, run::open_evaluation(config, arguments.checkpoint),
               {place.rank, place.size, place.local_rank}, run::launch_groups(place, asked(arguments, prepared)));
  check_prompt(prepared, run.model().vocabulary());
  run.fill();
  std::optional<Output> output;
  if (place.rank == 0) output.emplace(arguments, prepared, out);
  const Continuation made = continuation_of(
      prepared.prompt, settings, prepared.written,
      [&](std::span<const std::int64_t> text) { return run.session().next_token_logits(text); },
      [&](std::int64_t token) {
        if (output) output->add(token);
      });
  if (output) output->finish(made);
  return 0;
}

}  // namespace

int sample_command(const SampleArguments& arguments, std::ostream& out) {
  const group::LaunchPlace place = group::read_environment();
  if (!ranks::starts_ranks(arguments.run.nproc, place)) return sample_on_rank(arguments, place, out);
  const Prepared prepared = prepare(arguments, config::World::started_here(arguments.run.nproc));
  (void)document_end_of(arguments, prepared);
  const config::RunConfig& config = prepared.run.config;
  const checkpoint::SavedWeights weights(config.model.init, arguments.checkpoint);
  plugins::PluginRegistry& registry = *prepared.run.registry;
  plan::check_evaluation(config, registry, weights.model_config());  // report errors once
  check_prompt(prepared, plan::vocabulary_of(config, registry, weights.model_config()));
  return cli::start_ranks(arguments.run, prepared.run);
}

}  // namespace strata::sample
