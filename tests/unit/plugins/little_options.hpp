// Options of every type, shared by the little plugin and by the test that compares its manifest with its code.
#pragma once
#include <strata/options.hpp>

#define LITTLE_OPTIONS(OPTION)                                                                                 \
  OPTION(integer, depth, 5'000, "min=0,max=64000", "layers", "An integer; its default has a digit separator.") \
  OPTION(number, ratio, 6e-4, "min=0,max=1", "", "A number.")                                                  \
  OPTION(boolean, eager, true, "", "", "A boolean.")                                                           \
  OPTION(text, order, "forward", "one_of=forward|reverse", "",                                                 \
         "A text with choices, "                                                                               \
         "documented in two literals; commas, 'quotes' and |bars| included.")                                  \
  OPTION(text, fails_with, "", "", "", "What the constructor throws; nothing when empty.")                     \
  OPTION(size, bucket, "64MiB", "min=1KiB", "bytes", "A size.")                                                \
  OPTION(integers, cuts, "[]", "min=1", "layers", "A list of integers.")                                       \
  OPTION(numbers, betas, "[0.9, 0.95]", "min=0,max=0.999", "", "A list of numbers.")
STRATA_OPTIONS(LittleOptions, LITTLE_OPTIONS)
