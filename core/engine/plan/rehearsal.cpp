#include "plan/rehearsal.hpp"

#include <ATen/ops/randint.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>

#include "checkpoint/weights.hpp"
#include "group/numbers.hpp"
#include "plan/model_facts.hpp"

namespace strata::plan {

namespace {

constexpr int steps = 4;  // the first, which makes what the later ones find made, does not count

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

step::StepInput random_step(const config::RunConfig& config, const step::Session& session, std::int64_t vocabulary) {
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(session.store().device());
  const std::vector<std::int64_t> shape{config.train.micro_batch, config.model.seq_len};
  step::StepInput input;
  input.seed = static_cast<std::uint64_t>(config.train.seed);
  input.clip = config.train.clip;
  for (std::int64_t micro_batch = 0; micro_batch < config.train.accumulation; ++micro_batch)
    input.batches.push_back({at::randint(vocabulary, shape, integers), at::randint(vocabulary, shape, integers), 0});
  input.tokens = config.train.global_batch * config.model.seq_len;
  input.valid_tokens = config.train.micro_batch * config.train.accumulation * config.model.seq_len;
  return input;
}

}  // namespace

Rehearsal::Rehearsal(const config::RunConfig& config, plugins::PluginRegistry& registry,
                     const stage::RankNumbers& place, const stage::MakeGroups& make_groups)
    : plugins_(config, registry, place.rank, place.world_size > 1),
      groups_(make_groups(config, registry, plugins_)),
      session_(std::make_unique<step::Session>(config, plugins_, *groups_, place,
                                               stage::ModelSource{model_config(config)},
                                               /*dry_run=*/false)) {
  // Zeros compute in the time of other values; on some devices they take less power, and so less time.
  if (session_->store().device().is_cpu())
    session_->publish();
  else
    session_->fill(checkpoint::initial_values(static_cast<std::uint64_t>(config.train.seed)));
  make_steps(config);
  measure_speed(config.offload.read_ahead);
  tell_stages(static_cast<int>(config.parallel.size(Axis::Pipeline)));
}

void Rehearsal::make_steps(const config::RunConfig& config) {
  Device& device = session_->stage().memory.device();
  const program::ParameterUse use = session_->parameter_use();
  const step::StepInput input = random_step(config, *session_, plugins_.model->vocabulary());
  std::vector<double> seconds;
  for (int step = 0; step < steps; ++step) {
    if (step == 1)
      session_->executor().show_instructions(
          [&](const program::Instruction& instruction, const step::InstructionTimes& times) {
            device.synchronize();
            const int flat = instruction.flat_parameter;
            costs_.add(instruction, flat < 0 ? 1 : use.flat_parameter(flat).update_parts,
                       now() - 1e-9 * static_cast<double>(times.begin + times.waited));
          });
    const double begin = now();
    session_->step(input);
    if (step > 0) seconds.push_back(now() - begin);
  }
  session_->executor().show_instructions({});
  std::ranges::sort(seconds);
  step_s_ = seconds[seconds.size() / 2];
}

// The session's own buffers go and come as they do in a step, as many at once as reading ahead may bring.
void Rehearsal::measure_speed(std::int64_t read_ahead) {
  constexpr int rounds = 3;
  memory::Buffers& buffers = session_->stage().values.buffers();
  std::vector<memory::Moved> all;
  std::int64_t bytes = 0;
  const std::int64_t enough = std::max<std::int64_t>(read_ahead, 1);
  for (const program::Instruction& instruction : session_->program()) {
    if (instruction.op != program::Op::Fetch || instruction.category == Category::Activation || bytes >= enough)
      continue;
    const memory::Moved moved = program::moved_by(instruction);
    if (std::ranges::find(all, moved) != all.end()) continue;
    all.push_back(moved);
    bytes += buffers.moving_bytes(moved);
  }
  speed_.in_background = buffers.moves_in_background();
  speed_.read = speed_.write = std::numeric_limits<double>::infinity();
  std::vector<memory::Buffers::Movement> movements;
  for (const bool comes : {true, false})
    for (const memory::Moved& moved : all) movements.push_back({moved, comes});
  buffers.make_room(movements);
  Device& device = session_->stage().memory.device();
  const auto timed = [&](auto&& work) {
    session_->stage().groups.world().barrier();
    const double begin = now();
    work();
    device.synchronize();
    return now() - begin;
  };
  std::vector<double> reads, writes;
  for (int round = 0; round < rounds; ++round) {
    reads.push_back(timed([&] {
      for (const memory::Moved& moved : all) buffers.fetch(moved, true);
      for (const memory::Moved& moved : all) buffers.await(moved);
    }));
    writes.push_back(timed([&] {
      for (const memory::Moved& moved : all) buffers.store(moved, true);
      for (const memory::Moved& moved : all) buffers.settle(moved);
    }));
  }
  if (all.empty()) return;  // of this rank; others measured at the same time
  std::ranges::sort(reads);
  std::ranges::sort(writes);
  speed_.read = static_cast<double>(bytes) / reads[rounds / 2];
  speed_.write = static_cast<double>(bytes) / writes[rounds / 2];
}

// A Norm's measured time includes a stage's wait for the others, except on the last to come.
void Rehearsal::tell_stages(int stages) {
  if (stages == 1) {
    stages_ = {{costs_, speed_}};
    return;
  }
  constexpr double fastest = 1e18;  // bytes a second, in place of infinity
  std::vector<std::int64_t> mine{static_cast<std::int64_t>(std::min(speed_.read, fastest)),
                                 static_cast<std::int64_t>(std::min(speed_.write, fastest)),
                                 speed_.in_background ? 1 : 0};
  const std::size_t before = mine.size();
  const std::vector<std::int64_t> own = costs_.numbers();
  const auto count = static_cast<std::int64_t>(own.size());
  mine.insert(mine.begin(), count);
  mine.insert(mine.end(), own.begin(), own.end());
  mine.resize(static_cast<std::size_t>(most({count}).front()) + before + 1);
  Group& world = session_->stage().groups.world();
  const std::vector<std::int64_t> all = group::gather_numbers(world, session_->store().device(), mine);
  double norm = std::numeric_limits<double>::infinity();
  for (int stage = 0; stage < stages; ++stage) {
    const std::size_t first_rank =
        static_cast<std::size_t>(world.size()) / static_cast<std::size_t>(stages) * static_cast<std::size_t>(stage);
    const auto numbers = std::span(all).subspan(first_rank * mine.size(), mine.size());
    stages_.push_back({InstructionCosts::from(numbers.subspan(before + 1, static_cast<std::size_t>(numbers.front()))),
                       {static_cast<double>(numbers[1]), static_cast<double>(numbers[2]), numbers[3] != 0}});
    norm = std::min(norm, stages_.back().costs.of({.op = program::Op::Norm}, 1));
  }
  for (StageCosts& stage : stages_) stage.costs.set({.op = program::Op::Norm}, norm);
}

std::vector<std::int64_t> Rehearsal::most(const std::vector<std::int64_t>& mine) {
  return group::reduce_numbers(session_->stage().groups.world(), session_->store().device(), mine,
                               ReduceOperation::Max);
}

std::vector<std::int64_t> Rehearsal::least(const std::vector<std::int64_t>& mine) {
  std::vector<std::int64_t> negative;
  for (const std::int64_t number : mine) negative.push_back(-number);
  std::vector<std::int64_t> found = most(negative);
  for (std::int64_t& number : found) number = -number;
  return found;
}

}  // namespace strata::plan
