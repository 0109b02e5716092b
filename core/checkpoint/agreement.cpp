#include "checkpoint/agreement.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "checkpoint/training_checkpoint.hpp"
#include "group/numbers.hpp"
#include "plugin_host/plugin_call.hpp"

namespace strata::runtime {
namespace {

constexpr std::size_t text_numbers = 96;  // 768 bytes of an error's text travel
constexpr std::size_t message_numbers = 2 + text_numbers;

// Failure, bytes, text.
std::vector<std::int64_t> pack(const Outcome& outcome) {
  std::vector<std::int64_t> message(message_numbers);
  message[0] = static_cast<std::int64_t>(outcome.failure);
  message[1] = static_cast<std::int64_t>(std::min(outcome.text.size(), text_numbers * sizeof(std::int64_t)));
  std::memcpy(&message[2], outcome.text.data(), static_cast<std::size_t>(message[1]));
  return message;
}

Outcome unpack(const std::int64_t* message) {
  Outcome outcome{static_cast<Failure>(message[0]), std::string(static_cast<std::size_t>(message[1]), '\0')};
  std::memcpy(outcome.text.data(), message + 2, outcome.text.size());
  return outcome;
}

Outcome first_failure(Group& world, at::Device device, const Outcome& mine) {
  const std::vector<std::int64_t> all = gather_numbers(world, device, pack(mine));
  for (std::size_t at = 0; at < all.size(); at += message_numbers)
    if (Outcome theirs = unpack(&all[at]); theirs.failure != Failure::None) return theirs;
  throw Bug("a rank announced a failure and names none");
}

// One part of the work; whether there is more.
bool work_once(const std::function<bool()>& work, Outcome& outcome) {
  try {
    return work();
  } catch (const checkpoint::DamagedCheckpoint& error) {
    outcome = {Failure::Damaged, error.what()};
  } catch (const UserError& error) {
    outcome = {Failure::User, error.what()};
  } catch (const EnvironmentError& error) {
    outcome = {Failure::Environment, error.what()};
  } catch (const std::exception& error) {
    if (const std::optional<std::string> memory = plugin_host::out_of_memory(error))
      outcome = {Failure::Environment, *memory};
    else
      outcome = {Failure::Bug, plugin_host::first_line(error)};
  }
  return false;
}

}  // namespace

void Outcome::check() const {
  switch (failure) {
    case Failure::None:
      return;
    case Failure::Damaged:
      throw checkpoint::DamagedCheckpoint(text);
    case Failure::User:
      throw UserError(text);
    case Failure::Environment:
      throw EnvironmentError(text);
    case Failure::Bug:
      throw Bug(text);
  }
}

Outcome work_in_rounds(Group& world, at::Device device, const std::function<bool()>& work) {
  Outcome mine;
  bool more = true;
  for (;;) {
    if (more) more = work_once(work, mine);
    const std::vector<std::int64_t> sums = reduce_numbers(world, device, {more, mine.failure != Failure::None});
    if (sums[1] > 0) return first_failure(world, device, mine);
    if (sums[0] == 0) return {};
  }
}

}  // namespace strata::runtime
