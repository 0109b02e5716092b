// What compressed messages make of values, number by number: the reference of BlockCode and of what is built on it.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

struct ReferenceCode {
  int bits = 8;
  std::int64_t block = 2048;

  // One block, as it is decoded.
  std::vector<float> decoded(const std::vector<float>& values) const {
    float largest = 0.0F;
    for (const float value : values) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : value;
    std::vector<float> result;
    const float scale = largest / (bits == 8 ? 127.0F : 7.0F);
    const bool small = scale < std::numeric_limits<float>::min();
    for (const float value : values) result.push_back(small ? 0.0F : std::nearbyint(value * (1.0F / scale)) * scale);
    return result;
  }

  // Calls work(begin, end) for each block of [0, elements).
  template <class Work>
  void each_block(std::int64_t elements, const std::vector<std::int64_t>& borders, const Work& work) const {
    for (std::int64_t begin = 0; begin < elements;) {
      std::int64_t end = std::min(elements, begin + block);
      for (const std::int64_t border : borders)
        if (border > begin) end = std::min(end, border);
      work(begin, end);
      begin = end;
    }
  }

  // A range; with errors, which are decoded ones, what is sent of it and the new errors.
  std::vector<float> sent(std::vector<float> values, const std::vector<std::int64_t>& borders,
                          std::vector<float>* errors = nullptr, float beta = 0.0F) const {
    each_block(static_cast<std::int64_t>(values.size()), borders, [&](std::int64_t begin, std::int64_t end) {
      const auto of = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + begin, all.begin() + end);
      };
      std::vector<float> value = of(values), error = errors != nullptr ? of(*errors) : std::vector<float>(value.size());
      for (std::size_t i = 0; i < value.size(); ++i) value[i] += error[i];
      const std::vector<float> result = decoded(value);
      for (std::size_t i = 0; i < value.size(); ++i)
        error[i] = beta * error[i] + (1.0F - beta) * (value[i] - result[i]);
      std::copy(result.begin(), result.end(), values.begin() + begin);
      if (errors == nullptr) return;
      error = ReferenceCode{8, block}.decoded(error);
      std::copy(error.begin(), error.end(), errors->begin() + begin);
    });
    return values;
  }
};
