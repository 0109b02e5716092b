#include "state/initial_values.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <strata/error.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

namespace strata::state {
namespace {

constexpr int width = 64;                   // counters worked on in one loop, which becomes vector code
constexpr std::int64_t group = 4 * width;   // elements that come of them
constexpr std::int64_t grain = 64 * group;  // elements below which a second thread does not pay
using Word = std::uint32_t;

struct Key {
  std::uint64_t seed;
  std::uint64_t name;
};

// FNV-1a, 64 bits.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

struct Words {
  Word a, b, c, d;
};

// Philox 4x32-10 (Salmon et al., 2011) of one counter.
inline Words philox(std::uint64_t block, const Key& key) {
  Words w{static_cast<Word>(block), static_cast<Word>(block >> 32), static_cast<Word>(key.name),
          static_cast<Word>(key.name >> 32)};
  Word key0 = static_cast<Word>(key.seed), key1 = static_cast<Word>(key.seed >> 32);
#pragma GCC unroll 10  // without a loop inside, the loop over counters becomes vector code
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * w.a, product1 = std::uint64_t{0xCD9E8D57U} * w.c;
    w = {static_cast<Word>(product1 >> 32) ^ w.b ^ key0, static_cast<Word>(product1),
         static_cast<Word>(product0 >> 32) ^ w.d ^ key1, static_cast<Word>(product0)};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return w;
}

// -ln u for u in (0, 1], to about one unit in the last place.
inline float negative_logarithm(float u) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(u);
  const float fraction = std::bit_cast<float>((bits & 0x007FFFFFU) | 0x3F000000U);  // in [0.5, 1)
  const bool small = fraction < 0.707106781186547524F;
  const float exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126) - (small ? 1.0F : 0.0F);
  const float x = fraction - 1.0F + (small ? fraction : 0.0F);
  const float z = x * x;
  float p = 7.0376836292e-2F * x - 1.1514610310e-1F;
  p = p * x + 1.1676998740e-1F;
  p = p * x - 1.2420140846e-1F;
  p = p * x + 1.4249322787e-1F;
  p = p * x - 1.6668057665e-1F;
  p = p * x + 2.0000714765e-1F;
  p = p * x - 2.4999993993e-1F;
  p = p * x + 3.3333331174e-1F;
  const float tail = p * x * z - 2.12194440e-4F * exponent - 0.5F * z;
  return -(x + tail + 0.693359375F * exponent);
}

// Two independent standard normal values of two words: Box-Muller, the angle's quadrant taken from the word's top bits.
inline void normal_pair(Word radius_word, Word angle_word, float& first, float& second) {
  const float u = (static_cast<float>(static_cast<std::int32_t>(radius_word >> 1)) + 0.5F) * 0x1p-31F;
  const float radius = std::sqrt(2.0F * negative_logarithm(u));
  const Word quadrant = (angle_word + 0x20000000U) >> 30;
  const float t = static_cast<float>(static_cast<std::int32_t>(angle_word - (quadrant << 30))) *
                  1.46291807926715968e-9F;  // 2 pi / 2^32
  const float z = t * t;
  const float sine = ((-1.9515295891e-4F * z + 8.3321608736e-3F) * z - 1.6666654611e-1F) * z * t + t;
  const float cosine =
      ((2.443315711809948e-5F * z - 1.388731625493765e-3F) * z + 4.166664568298827e-2F) * z * z - 0.5F * z + 1.0F;
  const float a = (quadrant & 1U) != 0 ? sine : cosine, b = (quadrant & 1U) != 0 ? cosine : sine;
  first = radius * (((quadrant + 1U) & 2U) != 0 ? -a : a);
  second = radius * ((quadrant & 2U) != 0 ? -b : b);
}

// values[0 .. group) of the elements that come of counters block, block + 1, ...
STRATA_VECTOR_CLONES void normal_group(std::uint64_t block, const Key& key, float mean, float deviation,
                                       float* values) {
  float results[4][width];
  for (int j = 0; j < width; ++j) {
    const Words words = philox(block + static_cast<std::uint64_t>(j), key);
    normal_pair(words.a, words.b, results[0][j], results[1][j]);
    normal_pair(words.c, words.d, results[2][j], results[3][j]);
  }
  for (int j = 0; j < width; ++j) {
    for (int k = 0; k < 4; ++k) values[4 * j + k] = mean + deviation * results[k][j];
  }
}

// A uniform value in [0, 1) of a word's top 24 bits.
inline float unit(Word word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24F;
}

STRATA_VECTOR_CLONES void uniform_group(std::uint64_t block, const Key& key, float low, float span, float* values) {
  float results[4][width];
  for (int j = 0; j < width; ++j) {
    const Words words = philox(block + static_cast<std::uint64_t>(j), key);
    results[0][j] = unit(words.a);
    results[1][j] = unit(words.b);
    results[2][j] = unit(words.c);
    results[3][j] = unit(words.d);
  }
  for (int j = 0; j < width; ++j) {
    for (int k = 0; k < 4; ++k) values[4 * j + k] = low + span * results[k][j];
  }
}

void make_group(std::int64_t first, const Key& key, const Initializer& initializer, float* values) {
  const auto block = static_cast<std::uint64_t>(first) / 4;
  const auto a = static_cast<float>(initializer.mean), b = static_cast<float>(initializer.deviation);
  if (initializer.kind == Initializer::Kind::Normal) {
    normal_group(block, key, a, b, values);
  } else {
    uniform_group(block, key, a, static_cast<float>(initializer.deviation - initializer.mean), values);
  }
}

// Elements [begin, end) into target, group by group; the first and last group may stick out.
template <class Scalar>
void fill_range(Scalar* target, std::int64_t begin, std::int64_t end, const Key& key, const Initializer& initializer) {
  float values[group];
  for (std::int64_t first = begin / group * group; first < end; first += group) {
    make_group(first, key, initializer, values);
    const std::int64_t from = std::max(first, begin), to = std::min(first + group, end);
    for (std::int64_t i = from; i < to; ++i) target[i - begin] = static_cast<Scalar>(values[i - first]);
  }
}

void fill_on_cpu(const at::Tensor& destination, const ParameterInfo& info, std::int64_t begin, const Key& key) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, destination.scalar_type(), "fill_initial_values", [&] {
    scalar_t* const target = destination.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, destination.numel(), grain, [&](std::int64_t from, std::int64_t to) {
      fill_range(target + from, begin + from, begin + to, key, info.initializer);
    });
  });
}

}  // namespace

void fill_initial_values(const at::Tensor& destination, const ParameterInfo& info, std::int64_t begin,
                         std::uint64_t seed) {
  strata_check(destination.dim() == 1 && destination.is_contiguous(),
               "initial values go into one-dimensional contiguous memory");
  strata_check(begin >= 0 && begin + destination.numel() <= info.elements(),
               "initial values of elements outside the parameter");
  if (destination.is_meta()) return;
  at::Tensor target = destination;
  switch (info.initializer.kind) {
    case Initializer::Kind::Zeros:
      target.fill_(0.0);
      return;
    case Initializer::Kind::Ones:
      target.fill_(1.0);
      return;
    case Initializer::Kind::Constant:
      target.fill_(info.initializer.mean);
      return;
    case Initializer::Kind::Normal:
    case Initializer::Kind::Uniform:
      break;
  }
  const Key key{seed, hash_of(info.name)};
  if (target.is_cpu()) return fill_on_cpu(target, info, begin, key);
  constexpr std::int64_t most = std::int64_t{1} << 24;  // elements on their way to another device
  for (std::int64_t from = 0; from < target.numel(); from += most) {
    const at::Tensor part = target.narrow(0, from, std::min(most, target.numel() - from));
    const at::Tensor staged = at::empty(part.sizes(), part.options().device(at::kCPU));
    fill_on_cpu(staged, info, begin + from, key);
    part.copy_(staged);
  }
}

}  // namespace strata::state
