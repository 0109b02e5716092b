// Numbers in 8 or 4 bits: the reference's, by the loop and by libtorch's operators; and what errors that are fed back
// are worth.
#include <ATen/ATen.h>
#include <strata/toolbox/block_code.hpp>

#include <limits>

#include "reference_code.hpp"

#include "catch.hpp"

using strata::toolbox::BlockCode;
using strata::toolbox::BlockFormat;

namespace {

std::vector<float> floats(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kFloat).contiguous();
  return {wide.const_data_ptr<float>(), wide.const_data_ptr<float>() + wide.numel()};
}

at::Tensor draw(std::int64_t elements, std::int64_t seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  return at::randn({elements}).mul_(at::arange(elements).remainder(17).add(0.01));
}

at::Tensor bytes(std::int64_t count) {
  return at::full({count}, 0xAB, at::TensorOptions().dtype(at::kByte));
}

std::vector<float> through(const BlockCode& code, const at::Tensor& values) {
  const at::Tensor message = bytes(code.bytes()), result = at::full({values.numel()}, 7.0F);
  code.encode(values, message);
  code.decode_sum(message, 1, 0, result);
  return floats(result);
}

const std::vector<std::int64_t> sizes{1, 2, 7, 31, 64, 1000, 4097};

}  // namespace

TEST_CASE("a message decodes to the reference's numbers") {
  for (const int bits : {8, 4}) {
    for (const std::int64_t block : {1, 3, 16, 33, 2048, 8000}) {
      for (const std::int64_t elements : sizes) {
        for (const std::vector<std::int64_t>& borders :
             {std::vector<std::int64_t>{}, {elements / 3}, {0, 1, 5, elements / 2, elements}}) {
          CAPTURE(bits, block, elements, borders);
          const at::Tensor values = draw(elements, elements);
          std::vector<std::int64_t> inside;
          for (const std::int64_t border : borders)
            if (inside.empty() || border > inside.back()) inside.push_back(border);
          const BlockCode code(elements, inside, {bits, block});
          const ReferenceCode reference{bits, block};
          CHECK(through(code, values) == reference.sent(floats(values), inside));
          std::int64_t expected = 0;
          reference.each_block(elements, inside, [&](std::int64_t begin, std::int64_t end) {
            expected += 4 + ((end - begin) * bits + 7) / 8;
          });
          CHECK(code.bytes() == (expected + 3) / 4 * 4);
        }
      }
    }
  }
}

TEST_CASE("a block's largest is kept and others are off by half a step at most") {
  for (const int bits : {8, 4}) {
    const at::Tensor values = draw(2000, 1);
    const std::vector<float> found = through(BlockCode(2000, {}, {bits, 2000}), values), exact = floats(values);
    const float largest = values.abs().max().item<float>(), step = largest / (bits == 8 ? 127 : 7);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      CHECK(std::abs(found[i] - exact[i]) <= step / 2 * 1.00001F);
      if (std::abs(exact[i]) == largest) CHECK(std::abs(found[i] - exact[i]) <= 1e-6F * largest);
    }
  }
}

TEST_CASE("zeros and tiny values become zeros, and a block with NaN is not finite") {
  for (const int bits : {8, 4}) {
    const BlockCode code(6, {}, {bits, 3});
    const float tiny = std::numeric_limits<float>::min();
    CHECK(through(code, at::zeros({6})) == std::vector<float>(6, 0.0F));
    CHECK(through(code, at::full({6}, -tiny)) == std::vector<float>(6, 0.0F));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      at::Tensor values = at::ones({6});
      values[1] = bad;
      const std::vector<float> found = through(code, values);
      for (std::size_t i = 0; i < 3; ++i) CHECK_FALSE(std::isfinite(found[i]));
      for (std::size_t i = 3; i < 6; ++i) CHECK(found[i] == 1.0F);
      const at::Tensor message = bytes(code.bytes()),
                       errors = at::zeros({code.error_bytes()}, at::TensorOptions().dtype(at::kByte));
      code.encode(values, message, errors, 0.8);
      code.encode(at::ones({6}), message, errors, 0.8);
      at::Tensor next = at::empty({6});
      code.decode_sum(message, 1, 0, next);
      CHECK(next.isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("the loop and libtorch's operators give the same bits") {
  for (const int bits : {8, 4}) {
    for (const std::int64_t block : {1, 5, 33, 512}) {
      for (const std::int64_t elements : sizes) {
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
          CAPTURE(bits, block, elements, dtype);
          const BlockCode code(elements, {elements / 3}, {bits, block});
          at::Tensor loop = bytes(2 * code.bytes()), operators = loop.clone();
          at::Tensor errors = at::zeros({code.error_bytes()}, loop.options()), other_errors = errors.clone();
          for (int place = 0; place < 2; ++place) {
            at::Tensor values = draw(elements, 10 + place);
            if (elements > 40 && place == 0) values[3] = std::numeric_limits<float>::infinity();
            values = values.to(dtype);
            code.encode(values, loop.narrow(0, place * code.bytes(), code.bytes()), errors, 0.8);
            code.encode_by_operators(values, operators.narrow(0, place * code.bytes(), code.bytes()), other_errors,
                                     0.8);
          }
          CHECK(at::equal(loop, operators));
          CHECK(at::equal(errors, other_errors));
          for (const bool add : {false, true}) {
            at::Tensor sum = draw(elements, 3).to(dtype), other = sum.clone();
            code.decode_sum(loop, 2, code.bytes(), sum, add);
            code.decode_sum_by_operators(loop, 2, code.bytes(), other, add);
            CHECK(at::allclose(sum, other, 0.0, 0.0, true));
          }
        }
      }
    }
  }
}

TEST_CASE("errors are the reference's, and make the sum of many messages right") {
  constexpr std::int64_t elements = 500;
  constexpr int rounds = 200;
  for (const int bits : {8, 4}) {
    const BlockCode code(elements, {123}, {bits, 100});
    const at::Tensor values = draw(elements, 5);
    const at::Tensor message = bytes(code.bytes());
    at::Tensor errors = at::zeros({code.error_bytes()}, message.options());
    std::vector<float> reference_errors(elements);
    at::Tensor sum = at::zeros({elements}, at::kDouble), once = at::empty({elements}), decoded = at::empty({elements});
    for (int round = 0; round < rounds; ++round) {
      code.encode(values, message, errors, 0.8);
      code.decode_sum(message, 1, 0, decoded);
      CHECK(floats(decoded) == ReferenceCode{bits, 100}.sent(floats(values), {123}, &reference_errors, 0.8F));
      if (round == 0) once = decoded.clone();
      sum += decoded;
    }
    const double alone = (once - values).abs().max().item<double>();
    CHECK((sum / rounds - values).abs().max().item<double>() < 0.3 * alone);
  }
}
