#include "tools/bench/streams.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace strata::bench {

namespace {

constexpr std::int64_t line = 16;               // fp32 elements per cache line
constexpr std::int64_t lines_of_a_task = 1024;  // minimum work for another thread
constexpr std::size_t most_together = 4;

// Integers: with 0 no operation below changes one, as of any format. In two halves: without
// AVX-512 the compiler passes a vector of 64 bytes through memory.
using HalfLine [[gnu::vector_size(32), gnu::may_alias]] = std::int32_t;
struct [[gnu::may_alias]] Line {
  HalfLine first{}, second{};
  void change(const Line& by) {
    first ^= by.first;
    second ^= by.second;
  }
};

Line* lines_of(float* values) {
  return reinterpret_cast<Line*>(values);
}
Line filled(std::int32_t value) {
  return {HalfLine{} | value, HalfLine{} | value};
}

// Walks `lines` in four parallel sections or one after the other: CPUs prefetch several sections ahead.
STRATA_VECTOR_CLONES std::int32_t sum_of(float* values, std::int64_t lines, bool sections) {
  const Line* const from = lines_of(values);
  const std::int64_t quarter = lines / 4, next = sections ? quarter : 1, step = sections ? 1 : 4;
  Line first, second, third, fourth;
  for (std::int64_t i = 0, at = 0; i < quarter; ++i, at += step) {
    first.change(from[at]);
    second.change(from[at + next]);
    third.change(from[at + 2 * next]);
    fourth.change(from[at + 3 * next]);
  }
  for (std::int64_t at = 4 * quarter; at < lines; ++at) first.change(from[at]);
  for (const Line& other : {second, third, fourth}) first.change(other);
  const HalfLine all = first.first ^ first.second;
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < line / 2; ++i) sum ^= all[i];
  return sum;
}

STRATA_VECTOR_CLONES void change(float* values, std::int64_t lines, bool sections, std::int32_t by) {
  Line* const to = lines_of(values);
  const std::int64_t quarter = lines / 4, next = sections ? quarter : 1, step = sections ? 1 : 4;
  const Line change = filled(by);
  for (std::int64_t i = 0, at = 0; i < quarter; ++i, at += step) {
    to[at].change(change);
    to[at + next].change(change);
    to[at + 2 * next].change(change);
    to[at + 3 * next].change(change);
  }
  for (std::int64_t at = 4 * quarter; at < lines; ++at) to[at].change(change);
}

// The arrays of change_together: those that are read and written, and one that is only read or none. All of them at the
// same line.
struct Together {
  std::array<float*, most_together> changed{};
  std::size_t changes = 0;  // of them
  float* read = nullptr;
};

template <bool reads, std::size_t... k>
inline void change_all(const Together& arrays, std::int64_t lines, std::int32_t by, std::index_sequence<k...>) {
  constexpr std::int64_t ahead = 16;  // lines; prefetching past the end of an array does nothing
  Line* const to[]{lines_of(arrays.changed[k])...};
  const Line* const from = reads ? lines_of(arrays.read) : nullptr;
  for (std::int64_t at = 0; at < lines; ++at) {
    (__builtin_prefetch(to[k] + at + ahead, 1), ...);
    Line change = filled(by);
    if constexpr (reads) {
      __builtin_prefetch(from + at + ahead);
      change = {change.first & from[at].first, change.second & from[at].second};
    }
    (to[k][at].change(change), ...);
  }
}

template <bool reads>
inline void change_all(const Together& arrays, std::int64_t lines, std::int32_t by) {
  switch (arrays.changes) {
    case 1:
      return change_all<reads>(arrays, lines, by, std::make_index_sequence<1>());
    case 2:
      return change_all<reads>(arrays, lines, by, std::make_index_sequence<2>());
    case 3:
      return change_all<reads>(arrays, lines, by, std::make_index_sequence<3>());
    default:
      return change_all<reads>(arrays, lines, by, std::make_index_sequence<most_together>());
  }
}

// A line of every array before the next line of any, as an update does whose arrays have equal elements.
STRATA_VECTOR_CLONES [[gnu::flatten]] void change_together(const Together& arrays, std::int64_t lines,
                                                           std::int32_t by) {
  arrays.read != nullptr ? change_all<true>(arrays, lines, by) : change_all<false>(arrays, lines, by);
}

STRATA_VECTOR_CLONES void fill(float* values, std::int64_t lines, float value) {
  for (std::int64_t i = 0; i < lines * line; ++i) values[i] = value;
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // as in vector_clones.hpp
[[gnu::target_clones("default", "avx2")]]
#endif
// By vectors of 32 bytes, as libtorch copies. memcpy copies long runs past the caches or by string instructions, and
// wider vectors are slower on some processors.
void copy_by_vectors(float* to, const float* from, std::int64_t lines) {
  using Half [[gnu::vector_size(32), gnu::may_alias]] = float;
  auto* const target = reinterpret_cast<Half*>(to);
  const auto* const source = reinterpret_cast<const Half*>(from);
  for (std::int64_t at = 0; at < 2 * lines; at += 2) {
    const Half first = source[at], second = source[at + 1];
    target[at] = first;
    target[at + 1] = second;
  }
}

#if defined(__x86_64__)
void fill_past_caches(float* values, std::int64_t lines, float value) {
  for (std::int64_t i = 0; i < lines * line; i += 4) _mm_stream_ps(values + i, _mm_set1_ps(value));
}

void copy_past_caches(float* to, const float* from, std::int64_t lines) {
  const auto copy_line = [&](std::int64_t at) {
    for (std::int64_t i = at * line; i < (at + 1) * line; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
  };
  const std::int64_t quarter = lines / 4;
  for (std::int64_t at = 0; at < quarter; ++at)
    for (std::int64_t section = 0; section < 4; ++section) copy_line(section * quarter + at);
  for (std::int64_t at = 4 * quarter; at < lines; ++at) copy_line(at);
}

// Once at the end of a pass: it waits for what was stored past the caches.
void end_stores() {
  _mm_sfence();
}
#else
void fill_past_caches(float* values, std::int64_t lines, float value) {
  fill(values, lines, value);
}
void copy_past_caches(float* to, const float* from, std::int64_t lines) {
  std::copy_n(from, lines * line, to);
}
void end_stores() {}
#endif

void copy_by_memcpy(float* to, const float* from, std::int64_t lines) {
  std::copy_n(from, lines * line, to);
}

int passes_over(const Stream& stream) {
  return (stream.read ? 1 : 0) + (stream.written ? 1 : 0);
}

}  // namespace

Streams::Streams(const std::vector<Stream>& streams) {
  for (const Stream& stream : streams) {
    const bool given = stream.memory.defined() && stream.bytes >= 4 * line;
    const std::int64_t lines =
        given ? stream.bytes / (4 * line) : std::max<std::int64_t>((stream.bytes + 4 * line - 1) / (4 * line), 1);
    if (given)
      strata_check(reinterpret_cast<std::uintptr_t>(stream.memory.data_ptr()) % 64 == 0,
                   "libtorch aligns to cache lines");
    arrays_.push_back({.stream = stream, .memory = given ? stream.memory : at::zeros({lines, line}), .lines = lines});
    longest_ = std::max(longest_, lines);
  }
  for (Array& array : arrays_) array.of_longest = static_cast<double>(array.lines) / static_cast<double>(longest_);
}

// The array's line where the longest is at its `index`-th, without a division: one takes as long as to move several
// lines.
std::int64_t Streams::line_of(const Array& array, std::int64_t index) const {
  if (array.lines == longest_) return index;
  return index == longest_ ? array.lines : static_cast<std::int64_t>(static_cast<double>(index) * array.of_longest);
}

void Streams::pass(const Way& way) const {
  static volatile std::int32_t nothing = 0;  // which the compiler does not know
  const std::int32_t value = nothing;
  at::parallel_for(0, longest_, lines_of_a_task, [&](std::int64_t begin, std::int64_t end) {
    std::int32_t sum = 0;
    for (std::int64_t index = begin; index < end;) {
      const std::int64_t next = end - index > way.lines ? index + way.lines : end;
      Together together;
      for (const Array& array : arrays_) {
        const std::int64_t lines = array.lines;
        const std::int64_t from = line_of(array, index), count = line_of(array, next) - from;
        float* const values = array.begin() + from * line;
        const bool changed = array.stream.read && array.stream.written;
        if (way.together && lines == longest_ && changed && together.changes < most_together) {
          together.changed[together.changes++] = values;
        } else if (way.together && lines == longest_ && !array.stream.written && together.read == nullptr) {
          together.read = values;
        } else if (changed) {
          change(values, count, way.sections, value);
        } else if (array.stream.read) {
          sum ^= sum_of(values, count, way.sections);
        } else {
          way.past_caches ? fill_past_caches(values, count, 0.0F) : fill(values, count, 0.0F);
        }
      }
      if (together.changes > 0) change_together(together, next - index, value);
      index = next;
    }
    end_stores();
    // Keeps the compiler from removing the reads.
    volatile std::int32_t seen = sum;
    static_cast<void>(seen);
  });
}

bool Streams::is_copy() const {
  if (arrays_.size() != 2) return false;
  const Stream &from = arrays_[0].stream, &to = arrays_[1].stream;
  return !from.written && !to.read && from.bytes == to.bytes;
}

void Streams::copy(std::int64_t lines_at_a_time, CopyBy copy_by) const {
  const float* const source = arrays_[0].begin();
  float* const target = arrays_[1].begin();
  at::parallel_for(0, longest_, lines_of_a_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; index += lines_at_a_time) {
      const std::int64_t count = std::min(lines_at_a_time, end - index);
      float* const to = target + index * line;
      const float* const from = source + index * line;
      copy_by(to, from, count);
    }
    end_stores();
  });
}

std::vector<Work> Streams::passes() const {
  constexpr std::int64_t few = 32, several = 256, many = 4096;  // fits the L1 cache, L2, exceeds it with several arrays
  const bool only_written =
      std::any_of(arrays_.begin(), arrays_.end(), [](const Array& array) { return !array.stream.read; });
  std::vector<Work> passes;
  std::vector<Way> ways{{few}, {many}, {many, true}, {longest_, true}};
  if (arrays_.size() > 1 && !is_copy())
    for (const std::int64_t lines : {few, several, many}) ways.push_back({.lines = lines, .together = true});
  for (const Way& way : ways) {
    passes.push_back([this, way] { pass(way); });
    if (!only_written || (way.lines <= few && !way.together)) continue;
    Way past = way;
    past.past_caches = true;
    passes.push_back([this, past] { pass(past); });
  }
  if (is_copy()) {
    passes.push_back([this] { copy(longest_, copy_by_memcpy); });
    passes.push_back([this] { copy(longest_, copy_by_vectors); });
    for (const std::int64_t lines : {many, longest_})
      passes.push_back([this, lines] { copy(lines, copy_past_caches); });
  }
  return passes;
}

double Streams::bytes() const {
  double bytes = 0.0;
  for (const Array& array : arrays_) bytes += static_cast<double>(array.stream.bytes) * passes_over(array.stream);
  return bytes;
}

std::string Streams::name() const {
  int count = 0;
  for (const Array& array : arrays_) count += passes_over(array.stream);
  return format("one pass over {} streams", count);
}

}  // namespace strata::bench
