#include "checkpoint/agreement.hpp"

#include <strata/error.hpp>

#include <array>
#include <optional>
#include <vector>

#include "checkpoint/training_checkpoint.hpp"
#include "group/numbers.hpp"
#include "plugins/machine_error.hpp"

namespace strata::checkpoint {
namespace {

// An outcome on its way to the other ranks.
struct Message {
  std::int64_t failure = 0;
  std::int64_t bytes = 0;        // of the text
  std::array<char, 768> text{};  // an error's beginning
};

Outcome first_failure(Group& world, at::Device device, const Outcome& mine) {
  Message message{static_cast<std::int64_t>(mine.failure)};
  message.bytes = static_cast<std::int64_t>(mine.text.copy(message.text.data(), message.text.size()));
  for (const Message& theirs : group::gather_values(world, device, message))
    if (const auto failure = static_cast<Failure>(theirs.failure); failure != Failure::None)
      return {failure, std::string(theirs.text.data(), static_cast<std::size_t>(theirs.bytes))};
  throw Bug("a rank announced a failure and names none");
}

// One part of the work; whether there is more.
bool work_once(const std::function<bool()>& work, Outcome& outcome) {
  try {
    return work();
  } catch (const DamagedCheckpoint& error) {
    outcome = {Failure::Damaged, error.what()};
  } catch (const UserError& error) {
    outcome = {Failure::User, error.what()};
  } catch (const EnvironmentError& error) {
    outcome = {Failure::Environment, error.what()};
  } catch (const std::exception& error) {
    if (const std::optional<std::string> text = plugins::machine_error(error))
      outcome = {Failure::Environment, *text};
    else
      outcome = {Failure::Bug, plugins::first_line(error)};
  }
  return false;
}

}  // namespace

void Outcome::check() const {
  switch (failure) {
    case Failure::None:
      return;
    case Failure::Damaged:
      throw DamagedCheckpoint(text);
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
    const std::vector<std::int64_t> sums = group::reduce_numbers(world, device, {more, mine.failure != Failure::None});
    if (sums[1] > 0) return first_failure(world, device, mine);
    if (sums[0] == 0) return {};
  }
}

}  // namespace strata::checkpoint
