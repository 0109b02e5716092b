// The options that sharding partitioners share, for the list of each one's own; see <strata/options.hpp>. Names and
// meanings are DeepSpeed's where it has them, without the prefix stage3_.
#pragma once
#include <strata/error.hpp>
#include <strata/step.hpp>
#include <strata/toolbox/sharded_gradients.hpp>

#include <cmath>
#include <cstdlib>
#include <string>

#define STRATA_REDUCE_OPTIONS(OPTION)                                                                             \
  OPTION(integer, reduce_bucket_size, 500'000'000, "min=1", "elements",                                           \
         "A layer's gradient of more elements is summed in pieces of at most so many, each by itself; smaller "   \
         "ones do not wait for others to fill a bucket.")                                                         \
  OPTION(boolean, overlap_comm, true, "", "",                                                                     \
         "Communicate while layers compute; false: wait for each collective where it starts.")                    \
  OPTION(boolean, prescale_gradients, true, "", "",                                                               \
         "Divide gradients by the number of ranks before they are summed; false: after it, so that less is lost " \
         "below the smallest number of a 16-bit reduction. What is multiplied is a power of two, so it cancels.") \
  OPTION(number, gradient_predivide_factor, 1.0, "", "",                                                          \
         "Without prescale_gradients: divide gradients by this before they are summed and by the rest after it; " \
         "a power of two.")

#define STRATA_REDUCE_SCATTER_OPTION(OPTION)    \
  OPTION(boolean, reduce_scatter, true, "", "", \
         "Sum gradients by reduce-scatter; false: by all-reduce, twice the bytes for the same sums.")

#define STRATA_REDUCTION_TIME_OPTION(OPTION)                                                                   \
  OPTION(text, gradient_reduction, "each_micro_batch", "one_of=each_micro_batch|last_micro_batch", "",         \
         "When gradients are summed over ranks: each micro-batch's into the rank's own part, or once a step, " \
         "which sends less and keeps whole gradients.")

#define STRATA_ALLGATHER_OPTION(OPTION)                                                                        \
  OPTION(integer, allgather_bucket_size, 500'000'000, "min=1", "elements",                                     \
         "A layer's updated parameters of more elements are gathered in pieces of at most so many. Gradients " \
         "are cut at the same places.")

#define STRATA_GATHER_OPTIONS(OPTION)                                                                             \
  OPTION(integer, prefetch_layers, 1, "min=0,max=64", "layers", "How many layers ahead parameters are gathered.") \
  OPTION(integer, prefetch_bucket_size, 1'000'000'000, "min=0", "elements",                                       \
         "At most so many elements are gathered ahead of their use; a larger layer is gathered at its use.")      \
  OPTION(integer, max_live_parameters, 1'000'000'000, "min=0", "elements",                                        \
         "At most so many elements are gathered at a time; what one layer needs is always gathered.")             \
  OPTION(integer, max_reuse_distance, 1, "min=0", "elements",                                                     \
         "Parameters stay gathered when layers of fewer elements than this compute before their next use. "       \
         "1: when nothing does; 0: never.")                                                                       \
  OPTION(integer, persistence_threshold, 0, "min=0", "elements",                                                  \
         "A layer's parameters stay whole on every rank when they have at most so many elements.")                \
  OPTION(integer, model_persistence_threshold, 9'000'000'000'000'000'000, "min=0", "elements",                    \
         "At most so many elements of the model stay whole by persistence_threshold, the first layers' first.")

namespace strata::toolbox {

// Throws UserError on a factor whose effect would not cancel, or that would have none. `name`: the plugin's.
template <class Options>
void check_scaling(const std::string& name, const Options& options) {
  int exponent = 0;
  const double factor = options.gradient_predivide_factor;
  if (!(factor > 0.0) || std::frexp(factor, &exponent) != 0.5 || std::abs(exponent - 1) > 24)
    throw UserError(name + ": gradient_predivide_factor is " + std::to_string(factor) +
                    "; it must be a power of two from 2^-24 to 2^24, so that what is divided before a sum and after it "
                    "cancels exactly");
  if (options.prescale_gradients && factor != 1.0)
    throw UserError(name + ": gradient_predivide_factor is " + std::to_string(factor) +
                    ", and with prescale_gradients everything is divided before the sum; set prescale_gradients to "
                    "false, or leave the factor out");
}

// What STRATA_REDUCE_OPTIONS say, checked. `name`: the plugin's.
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
