// What the ranks of a test with real processes share.
#pragma once
#include <strata/checked_group.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

// Throws with the text unless it holds; the rank then exits with status 1.
inline void expect(bool holds, const std::string& text) {
  if (!holds) throw std::runtime_error("expected: " + text);
}

// Every operation, dtype and many sizes against a computation that knows all ranks' inputs, bit by bit.
void check_collectives(strata::CheckedGroup& group);
// all_reduce, reduce_scatter + all_gather and reduce on large buffers: equal bits.
void check_equal_bits(strata::CheckedGroup& group);
// Many operations of all kinds started before the first is waited for.
void check_many_in_flight(strata::CheckedGroup& group);
