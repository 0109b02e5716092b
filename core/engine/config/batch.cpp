#include "config/batch.hpp"

#include <algorithm>

namespace strata::config {
namespace {

std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::int64_t product(std::int64_t left, std::int64_t right, const Place& place) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(left, right, &result)) {
    throw UserError(place, "{} x {} is more than a 64-bit number holds", number(left), number(right));
  }
  return result;
}

// "64 and 72": the multiples of `unit` on both sides of `value`, or the two smallest.
std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = std::max<std::int64_t>(value / unit, 1);
  return number(below * unit) + " and " + number((below + 1) * unit);
}

}  // namespace

ParallelSizes solve_parallel(std::int64_t world_size, const std::string& world_origin,
                             const std::map<Axis, Given>& given) {
  ParallelSizes sizes;
  std::int64_t model = 1;  // ranks that together train on the same samples
  std::string shape;
  for (const Axis axis : axes) {
    if (axis == Axis::Data) continue;
    const Given& size = given.at(axis);
    model = product(model, size.value.value_or(1), size.place);
    sizes.mesh.set(axis, static_cast<int>(size.value.value_or(1)));
    shape += (shape.empty() ? "" : " x ") + std::string(name_of(axis)) + " " + number(sizes.size(axis));
  }
  const std::string world = "world size " + number(world_size) + " (" + world_origin + ")";
  const Given& data = given.at(Axis::Data);
  if (data.value) {
    const std::int64_t ranks = product(model, *data.value, data.place);
    if (ranks != world_size) {
      throw UserError(data.place,
                      "parallel: {} is not {} x data {} = {}; start {} ranks, or leave parallel.data out (auto){}",
                      world, shape, number(*data.value), number(ranks), number(ranks),
                      world_size % model == 0 ? ", which makes it " + number(world_size / model) : "");
    }
  } else if (world_size % model != 0) {
    throw UserError(given.at(axes.front()).place,
                    "parallel: {} is not divisible by {} = {}; the nearest valid world sizes are {}", world, shape,
                    number(model), nearest_multiples(world_size, model));
  }
  sizes.mesh.set(Axis::Data, static_cast<int>(world_size / model));
  sizes.text = "data-parallel size " + number(sizes.size(Axis::Data)) + " = " + world + " / (" + shape + ")";
  return sizes;
}

Batch solve_batch(const BatchRequest& request) {
  const Given &micro_batch = request.micro_batch, &accumulation = request.accumulation;
  const Given& global_batch = request.global_batch;
  const ParallelSizes& parallel = request.parallel;
  const std::string ranks = "data-parallel size " + number(parallel.size(Axis::Data));
  if (!micro_batch.value && !global_batch.value)
    throw UserError(accumulation.place, "train: {} is given; give train.micro_batch or train.global_batch (samples)",
                    accumulation.value ? "accumulation alone" : "no batch size");
  Batch batch;
  batch.micro_batch = micro_batch.value.value_or(0);
  batch.accumulation = accumulation.value.value_or(1);
  batch.global_batch = global_batch.value.value_or(0);
  if (!accumulation.value) batch.accumulation_origin = "1, as only one batch size is given";
  const std::int64_t per_pass = product(batch.micro_batch, parallel.size(Axis::Data), micro_batch.place);
  const auto divide = [&](std::int64_t unit, const std::string& divisor, const std::string& wanted) {
    if (batch.global_batch % unit == 0) return batch.global_batch / unit;
    throw UserError(global_batch.place,
                    "train.global_batch {} / ({} x {} = {}) is not a whole number, so {} cannot be derived from it "
                    "({}); the nearest valid values of global_batch are {}",
                    number(batch.global_batch), divisor, ranks, number(unit), wanted, parallel.text,
                    nearest_multiples(batch.global_batch, unit));
  };
  if (!global_batch.value) {
    batch.global_batch = product(per_pass, batch.accumulation, micro_batch.place);
    batch.global_batch_origin = "micro_batch x accumulation x " + ranks;
  } else if (!micro_batch.value) {
    batch.micro_batch =
        divide(product(batch.accumulation, parallel.size(Axis::Data), accumulation.place),
               "accumulation " + number(batch.accumulation) + (accumulation.value ? "" : " (derived)"), "micro_batch");
    batch.micro_batch_origin = "global_batch / (accumulation x " + ranks + ")";
  } else if (!accumulation.value) {
    batch.accumulation = divide(per_pass, "micro_batch " + number(batch.micro_batch), "accumulation");
    batch.accumulation_origin = "global_batch / (micro_batch x " + ranks + ")";
  } else if (const std::int64_t expected = product(per_pass, batch.accumulation, accumulation.place);
             batch.global_batch != expected) {
    throw UserError(
        global_batch.place,
        "train.global_batch {} is not micro_batch {} x accumulation {} x {} = {} (all three are given, none derived; "
        "{}); leave one out to have it derived: without accumulation the nearest valid values of global_batch are {}",
        number(batch.global_batch), number(batch.micro_batch), number(batch.accumulation), ranks, number(expected),
        parallel.text, nearest_multiples(batch.global_batch, per_pass));
  }
  return batch;
}

}  // namespace strata::config
