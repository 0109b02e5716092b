// Options that sharding partitioners share, to be included in their own lists; see <strata/options.hpp>. Names and
// meanings are DeepSpeed's where it has the option, without the prefix stage3_.
#pragma once
#include <strata/error.hpp>
#include <strata/step.hpp>
#include <strata/toolbox/sharded_gradients.hpp>

#include <cmath>
#include <cstdlib>
#include <string>

#define STRATA_REDUCE_OPTIONS(OPTION)                                                                                 \
  OPTION(integer, reduce_bucket_size, 500'000'000, "min=1", "elements",                                               \
         "Maximum elements per reduction; larger gradients are split, smaller ones are sent at once without waiting " \
         "for a full bucket.")                                                                                        \
  OPTION(boolean, overlap_comm, true, "", "",                                                                         \
         "Overlap communication with computation; false: wait for each collective as soon as it starts.")             \
  OPTION(boolean, prescale_gradients, true, "", "",                                                                   \
         "Divide gradients by the data-parallel size before the sum; false: after it, so that fewer small values "    \
         "underflow in a 16-bit reduction. The scaling is by powers of two, so it cancels exactly.")                  \
  OPTION(number, gradient_predivide_factor, 1.0, "", "",                                                              \
         "With prescale_gradients false: divide gradients by this before the sum and by the rest after it; a power "  \
         "of two.")

#define STRATA_REDUCE_SCATTER_OPTION(OPTION)    \
  OPTION(boolean, reduce_scatter, true, "", "", \
         "Sum gradients by reduce-scatter; false: by all-reduce, which sends twice the bytes for the same result.")

#define STRATA_REDUCTION_TIME_OPTION(OPTION)                                                                        \
  OPTION(text, gradient_reduction, "each_micro_batch", "one_of=each_micro_batch|last_micro_batch", "",              \
         "When to reduce gradients: after each micro-batch, so that a rank keeps only its own shard, or after the " \
         "last one, which sends less and keeps full gradients.")

#define STRATA_ALLGATHER_OPTION(OPTION)                                                                                \
  OPTION(integer, allgather_bucket_size, 500'000'000, "min=1", "elements",                                             \
         "Maximum elements per all-gather of updated parameters; larger layers are split. Gradients are split at the " \
         "same boundaries.")

#define STRATA_GATHER_OPTIONS(OPTION)                                                                                \
  OPTION(integer, prefetch_layers, 1, "min=0,max=64", "layers", "How many layers ahead to gather parameters.")       \
  OPTION(integer, prefetch_bucket_size, 1'000'000'000, "min=0", "elements",                                          \
         "Maximum elements to gather ahead of their use; a larger layer is gathered when it is used.")               \
  OPTION(integer, max_live_parameters, 1'000'000'000, "min=0", "elements",                                           \
         "Maximum elements to hold gathered at a time; what one layer needs is always gathered.")                    \
  OPTION(integer, max_reuse_distance, 1, "min=0", "elements",                                                        \
         "Keep parameters gathered if the layers that compute before their next use have fewer elements than this. " \
         "1: only if no layer does; 0: never.")                                                                      \
  OPTION(integer, persistence_threshold, 0, "min=0", "elements",                                                     \
         "Do not shard layers with at most this many parameters; every rank keeps them whole.")                      \
  OPTION(integer, model_persistence_threshold, 9'000'000'000'000'000'000, "min=0", "elements",                       \
         "Maximum elements of the model to keep whole by persistence_threshold, from the first layer on.")

namespace strata::toolbox {

// Throws UserError if the factor would not cancel exactly or has no effect. `name`: the plugin's.
template <class Options>
void check_scaling(const std::string& name, const Options& options) {
  int exponent = 0;
  const double factor = options.gradient_predivide_factor;
  if (!(factor > 0.0) || std::frexp(factor, &exponent) != 0.5 || std::abs(exponent - 1) > 24)
    throw UserError(name + ": gradient_predivide_factor is " + std::to_string(factor) +
                    "; it must be a power of two from 2^-24 to 2^24, so that the scaling cancels exactly");
  if (options.prescale_gradients && factor != 1.0)
    throw UserError(name + ": gradient_predivide_factor is " + std::to_string(factor) +
                    ", but it has no effect while prescale_gradients is true; set prescale_gradients to false, or "
                    "remove the factor");
}

// Reads and checks STRATA_REDUCE_OPTIONS. `name`: the plugin's, for errors.
template <class Options>
GradientSharding gradient_sharding(const std::string& name, const Options& options) {
  check_scaling(name, options);
  GradientSharding sharding;
  sharding.overlap = options.overlap_comm;
  sharding.prescale = options.prescale_gradients;
  sharding.predivide_factor = options.gradient_predivide_factor;
  return sharding;
}

template <class Options>
Lookahead gather_lookahead(const Options& options) {
  Lookahead lookahead;
  lookahead.layers = static_cast<int>(options.prefetch_layers);
  lookahead.elements = options.prefetch_bucket_size;
  lookahead.live_parameters = options.max_live_parameters;
  lookahead.reuse_distance = options.max_reuse_distance - 1;
  return lookahead;
}

}  // namespace strata::toolbox
