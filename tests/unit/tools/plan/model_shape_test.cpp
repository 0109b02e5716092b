#include "tools/plan/model_shape.hpp"

#include <strata/error.hpp>

#include <cmath>

#include "catch.hpp"

using namespace strata;
using namespace strata::cli;

namespace {

// A transformer without biases: embedding and head, 12 h^2 a layer.
CountParameters transformer(std::int64_t vocabulary) {
  return [=](const ModelShape& shape) {
    return 2 * vocabulary * shape.hidden_size + 12 * shape.hidden_size * shape.hidden_size * shape.layers;
  };
}

// What model_shape.hpp promises, found by trying every width and depth.
ModelShape found_by_trying(std::int64_t parameters, const CountParameters& count) {
  ModelShape best;
  const auto aspect_error = [](const ModelShape& shape) {
    return std::abs(std::log(static_cast<double>(shape.hidden_size) / static_cast<double>(shape.layers) / 128.0));
  };
  for (std::int64_t hidden = 64; count({hidden, 1}) <= parameters; hidden += 64) {
    for (std::int64_t layers = 1; layers <= 4 * hidden / 64; ++layers) {
      const ModelShape shape{hidden, layers};
      const double error = static_cast<double>(count(shape)) / static_cast<double>(parameters) - 1.0;
      if (std::abs(error) <= 0.001 && (best.layers == 0 || aspect_error(shape) < aspect_error(best))) best = shape;
    }
  }
  return best;
}

}  // namespace

TEST_CASE("A shape is within 1 % of any number of parameters") {
  for (const double parameters : {3e6, 14e6, 1e8, 1.3e9, 7.5e9, 13e9, 128e9, 175e9, 1e12}) {
    const std::int64_t vocabulary = parameters < 1e7 ? 257 : 50304;
    const CountParameters count = transformer(vocabulary);
    const ModelShape shape = shape_model(static_cast<std::int64_t>(parameters), count);
    INFO(parameters << ": " << shape.hidden_size << " x " << shape.layers);
    CHECK(std::abs(static_cast<double>(shape.parameters) / parameters - 1.0) <= 0.01);
    CHECK(shape.parameters == count(shape));
    CHECK(shape.hidden_size % 64 == 0);
    CHECK(shape.heads * 64 == shape.hidden_size);
    CHECK(shape.layers >= 1);
  }
}

TEST_CASE("A large model's shape has the width over depth nearest 128") {
  const CountParameters count = transformer(50304);
  for (const double parameters : {1.3e9, 7.5e9, 13e9, 128e9, 175e9}) {
    const auto wanted = static_cast<std::int64_t>(parameters);
    const ModelShape shape = shape_model(wanted, count), tried = found_by_trying(wanted, count);
    INFO(parameters);
    CHECK(shape.hidden_size == tried.hidden_size);
    CHECK(shape.layers == tried.layers);
  }
  const ModelShape published = shape_model(count({12288, 96}), count);  // GPT-3's
  CHECK(published.hidden_size == 12288);
  CHECK(published.layers == 96);
}

TEST_CASE("What no shape comes near is refused with the nearest") {
  try {
    shape_model(1000, transformer(257));
    FAIL("1000 parameters were shaped");
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Catch::Contains("--params 1000") && Catch::Contains("hidden_size 64, layers 1"));
  }
  CHECK_THROWS_AS(shape_model(6'100'000, transformer(50304)), UserError);  // less than the narrowest
}
