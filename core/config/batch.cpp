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
    throw UserError(place, number(left) + " x " + number(right) + " is more than a 64-bit number holds");
  }
  return result;
}

// "64 and 72": the multiples of `unit` on both sides of `value`, or the two smallest.
std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = std::max<std::int64_t>(value / unit, 1);
  return number(below * unit) + " and " + number((below + 1) * unit);
}

}  // namespace

ParallelSizes solve_parallel(std::int64_t world_size, const std::string& world_origin, const Given& pipeline,
                             const Given& tensor, const Given& data) {
  ParallelSizes sizes;
  sizes.pipeline = pipeline.value.value_or(1);
  sizes.tensor = tensor.value.value_or(1);
  const std::int64_t model = product(sizes.pipeline, sizes.tensor, pipeline.place);
  const std::string world = "world size " + number(world_size) + " (" + world_origin + ")";
  const std::string shape = "pipeline " + number(sizes.pipeline) + " x tensor " + number(sizes.tensor);
  if (data.value) {
    const std::int64_t ranks = product(model, *data.value, data.place);
    if (ranks != world_size) {
      throw UserError(data.place,
                      "parallel: " + world + " is not " + shape + " x data " + number(*data.value) + " = " +
                          number(ranks) + "; start " + number(ranks) + " ranks, or leave parallel.data out (auto)" +
                          (world_size % model == 0 ? ", which makes it " + number(world_size / model) : ""));
    }
  } else if (world_size % model != 0) {
    throw UserError(pipeline.place, "parallel: " + world + " cannot be divided by " + shape + " = " + number(model) +
                                        ", so there is no data-parallel size; the nearest legal world sizes are " +
                                        nearest_multiples(world_size, model));
  }
  sizes.data = world_size / model;
  sizes.text = "data-parallel size " + number(sizes.data) + " = " + world + " / (" + shape + ")";
  return sizes;
}

namespace {

class Triangle {
 public:
  explicit Triangle(const BatchRequest& request) : request_(request), data_(request.parallel.data) {}

  Batch solve() const {
    const auto& [micro_batch, accumulation, global_batch, parallel] = request_;
    Batch batch;
    batch.micro_batch = micro_batch.value.value_or(0);
    batch.accumulation = accumulation.value.value_or(0);
    batch.global_batch = global_batch.value.value_or(0);
    if (!micro_batch.value && !global_batch.value) {
      throw UserError(accumulation.place, std::string("train: ") +
                                              (accumulation.value ? "accumulation alone" : "no batch size") +
                                              " is given; give train.micro_batch or train.global_batch (samples)");
    }
    if (!accumulation.value && !(micro_batch.value && global_batch.value)) {
      batch.accumulation = 1;
      batch.accumulation_origin = "1, as only one batch size is given";
    }
    if (!global_batch.value) {
      batch.global_batch = product(samples_per_pass(batch), batch.accumulation, micro_batch.place);
      batch.global_batch_origin = "micro_batch x accumulation x data-parallel size " + number(data_);
    } else if (!micro_batch.value) {
      const std::int64_t unit = product(batch.accumulation, data_, accumulation.place);
      batch.micro_batch = divide(
          unit, "accumulation " + number(batch.accumulation) + (accumulation.value ? "" : " (derived)"), "micro_batch");
      batch.micro_batch_origin = "global_batch / (accumulation x data-parallel size " + number(data_) + ")";
    } else if (!accumulation.value) {
      batch.accumulation = divide(samples_per_pass(batch), "micro_batch " + number(batch.micro_batch), "accumulation");
      batch.accumulation_origin = "global_batch / (micro_batch x data-parallel size " + number(data_) + ")";
    } else {
      check_all(batch);
    }
    return batch;
  }

 private:
  std::int64_t samples_per_pass(const Batch& batch) const {
    return product(batch.micro_batch, data_, request_.micro_batch.place);
  }

  std::int64_t divide(std::int64_t unit, const std::string& divisor, const std::string& wanted) const {
    const std::int64_t global_batch = *request_.global_batch.value;
    if (global_batch % unit == 0) return global_batch / unit;
    throw UserError(request_.global_batch.place,
                    "train.global_batch " + number(global_batch) + " / (" + divisor + " x data-parallel size " +
                        number(data_) + " = " + number(unit) + ") is no whole number, so " + wanted +
                        " cannot be derived from it (" + request_.parallel.text +
                        "); the nearest legal values of global_batch are " + nearest_multiples(global_batch, unit));
  }

  void check_all(const Batch& batch) const {
    const std::int64_t per_pass = samples_per_pass(batch);
    const std::int64_t expected = product(per_pass, batch.accumulation, request_.accumulation.place);
    if (batch.global_batch == expected) return;
    throw UserError(
        request_.global_batch.place,
        "train.global_batch " + number(batch.global_batch) + " is not micro_batch " + number(batch.micro_batch) +
            " x accumulation " + number(batch.accumulation) + " x data-parallel size " + number(data_) + " = " +
            number(expected) + " (all three are given, none derived; " + request_.parallel.text +
            "); leave one out to have it derived: without accumulation the nearest legal values of global_batch are " +
            nearest_multiples(batch.global_batch, per_pass));
  }

  const BatchRequest& request_;
  std::int64_t data_;
};

}  // namespace

Batch solve_batch(const BatchRequest& request) {
  return Triangle(request).solve();
}

}  // namespace strata::config
