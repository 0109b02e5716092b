// Options shared by sharding partitioners, to be included in their own lists; see <strata/options.hpp>. Names and
// meanings are DeepSpeed's if it has the option, without the prefix stage3_.
#pragma once
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>
#include <strata/step.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>

#include <cmath>
#include <cstdlib>
#include <string>

#define STRATA_REDUCE_OPTIONS(OPTION)                                                                                  \
  OPTION(integer, reduce_bucket_size, 500'000'000, "min=1", "elements",                                                \
         "Maximum elements per reduction. Larger gradients are split; smaller ones are sent at once, without waiting " \
         "for a full bucket.")                                                                                         \
  OPTION(boolean, overlap_comm, true, "", "",                                                                          \
         "Overlap of communication with computation; false: wait for each collective as soon as it is started.")       \
  OPTION(boolean, prescale_gradients, true, "", "",                                                                    \
         "Division of gradients by the data-parallel size before the sum; false: after it, which lets fewer small "    \
         "values underflow in a 16-bit reduction. The factors are powers of two and cancel exactly.")                  \
  OPTION(number, gradient_predivide_factor, 1.0, "", "",                                                               \
         "Divisor of gradients before the sum, with prescale_gradients: false; the rest of the division follows the "  \
         "sum. A power of two.")

#define STRATA_REDUCE_SCATTER_OPTION(OPTION)    \
  OPTION(boolean, reduce_scatter, true, "", "", \
         "Gradient sums by reduce-scatter; false: by all-reduce, which sends twice the bytes for the same result.")

#define STRATA_REDUCTION_TIME_OPTION(OPTION)                                                                        \
  OPTION(text, gradient_reduction, "each_micro_batch", "one_of=each_micro_batch|last_micro_batch", "",              \
         "Time of the gradient reduction. each_micro_batch: after each micro-batch, so that a rank keeps only its " \
         "own shard; last_micro_batch: after the last one, which sends less and keeps full gradients.")

#define STRATA_ALLGATHER_OPTION(OPTION)                                                                                \
  OPTION(integer, allgather_bucket_size, 500'000'000, "min=1", "elements",                                             \
         "Maximum elements per all-gather of updated parameters. Larger layers are split, and their gradients at the " \
         "same boundaries.")

#define STRATA_GATHER_OPTIONS(OPTION)                                                                                \
  OPTION(integer, prefetch_layers, 1, "min=0,max=64", "layers", "Number of layers to gather ahead of use.")          \
  OPTION(integer, prefetch_bucket_size, 1'000'000'000, "min=0", "elements",                                          \
         "Maximum elements to gather ahead of use; a larger layer is gathered when it is used.")                     \
  OPTION(integer, max_live_parameters, 1'000'000'000, "min=0", "elements",                                           \
         "Maximum elements gathered at a time; the parameters that one layer needs are always gathered.")            \
  OPTION(integer, max_reuse_distance, 1, "min=0", "elements",                                                        \
         "Parameters stay gathered until their next use if the layers computed in between have fewer elements than " \
         "this. 1: only if no layer is in between; 0: never.")                                                       \
  OPTION(integer, persistence_threshold, 0, "min=0", "elements",                                                     \
         "Layers with at most this number of parameters are not sharded; every rank keeps them whole.")              \
  OPTION(integer, model_persistence_threshold, 9'000'000'000'000'000'000, "min=0", "elements",                       \
         "Maximum elements of the model kept whole by persistence_threshold, first layers first.")

// Compression of messages between ranks. It changes numbers, within STRATA_COMPRESSION_EQUIVALENCE
// (CMake).
#define STRATA_COMPRESSION_OPTIONS(OPTION)                                                                             \
  OPTION(                                                                                                              \
      text, weights_on_wire, "exact", "one_of=exact|int8", "",                                                         \
      "Format of gathered weights. int8: 8 bits with one scale per block, a quarter of the bytes of fp32 and half of " \
      "bf16. All ranks compute with the rounded weights, each off by at most 1/254 of the largest in its block; "      \
      "updates and checkpoints stay exact. ZeRO stages 1 and 2, which keep weights whole, then store this rank's "     \
      "shard twice.")                                                                                                  \
  OPTION(text, gradients_on_wire, "exact", "one_of=exact|int8|int4", "",                                               \
         "Format of reduced gradients. int8, int4: 8 or 4 bits with one scale per block, a quarter or an eighth of "   \
         "the bytes of fp32. The values that a rank sends are off by at most 1/254 or 1/14 of the largest in their "   \
         "block, once inside a group and again across groups. The sum is in fp32, in the order of the ranks. int4 "    \
         "converges as well as exact gradients only with error_feedback.")                                             \
  OPTION(boolean, error_feedback, false, "", "",                                                                       \
         "Error feedback (LoCo), with gradients_on_wire: add the rounding errors of earlier gradients to the next "    \
         "one. Takes one byte of memory per element of the gradients of this rank's layers, and two in a checkpoint.") \
  OPTION(number, error_beta, 0.8, "min=0,max=1", "",                                                                   \
         "Weight of earlier errors in the moving average, with error_feedback; 0: only the last error counts.")        \
  OPTION(integer, error_reset, 1024, "min=1", "steps", "Steps after which the errors are reset, with error_feedback.") \
  OPTION(integer, wire_block_size, 2048, "min=16,max=8000", "elements",                                                \
         "Neighbouring weights or gradients that share a scale when compressed. Smaller blocks are rounded less and "  \
         "send more. Each parameter starts a new block.")

namespace strata::toolbox {

// Throws UserError if the factor would not cancel exactly or has no effect. `name`: the plugin's name.
template <class Options>
void check_scaling(const std::string& name, const Options& options) {
  int exponent = 0;
  const double factor = options.gradient_predivide_factor;
  if (!(factor > 0.0) || std::frexp(factor, &exponent) != 0.5 || std::abs(exponent - 1) > 24)
    throw UserError(
        "{}: gradient_predivide_factor is {}; it must be a power of two from 2^-24 to 2^24, so that the scaling "
        "cancels exactly",
        name, factor);
  if (options.prescale_gradients && factor != 1.0)
    throw UserError(
        "{}: gradient_predivide_factor is {}, but it has no effect while prescale_gradients is true; set "
        "prescale_gradients to false, or remove the factor",
        name, factor);
}

// Reads and checks STRATA_REDUCE_OPTIONS. `name`: the plugin's name, for errors.
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

// Reads and checks STRATA_COMPRESSION_OPTIONS, and STRATA_SPARSE_OPTION if declared, into otherwise complete settings.
// Also applies a byte code of the precision policy.
template <class Options>
void compress(PluginContext& context, const Options& options, ShardingSettings& settings) {
  const std::string& name = context.plugin_name();
  const bool weights = options.weights_on_wire != "exact", gradients = options.gradients_on_wire != "exact";
  if (gradients && !settings.gradients.reduce_scatter)
    throw UserError(
        "{}: gradients_on_wire is {} and reduce_scatter is false; compressed gradients have their own exchange: leave "
        "reduce_scatter out",
        name, options.gradients_on_wire);
  if (options.error_feedback && !gradients)
    throw UserError(
        "{}: error_feedback is true, but it has no effect while gradients_on_wire is exact; set gradients_on_wire to "
        "int8 or int4, or remove error_feedback",
        name);
  const Options unset;
  const auto has_no_effect = [&](const std::string& option, const auto& value, const std::string& without) {
    throw UserError("{}: {} is {}, but it has no effect without {}; set that, or remove {}", name, option, value,
                    without, option);
  };
  if (!options.error_feedback && options.error_beta != unset.error_beta)
    has_no_effect("error_beta", options.error_beta, "error_feedback");
  if (!options.error_feedback && options.error_reset != unset.error_reset)
    has_no_effect("error_reset", options.error_reset, "error_feedback");
  if (!weights && !gradients && options.wire_block_size != unset.wire_block_size)
    has_no_effect("wire_block_size", options.wire_block_size, "weights_on_wire or gradients_on_wire");
  if constexpr (requires { options.sparse_gradients; }) settings.gradients.rows = options.sparse_gradients;
  if (gradients && settings.gradients.rows)
    throw UserError(
        "{}: gradients_on_wire is {} and sparse_gradients is true; rows are sent uncompressed: leave one of the two "
        "out",
        name, options.gradients_on_wire);
  if (weights) settings.parameters.compression = BlockFormat{8, options.wire_block_size};
  auto* const code = static_cast<WeightCode*>(context.extension(WeightCode::id));
  if (code != nullptr && code->is_wanted()) settings.parameters.code = code;
  if (settings.parameters.code != nullptr && weights)
    throw UserError(
        "{}: weights_on_wire is {} and the precision policy sends weights in its own 8-bit format; leave "
        "weights_on_wire or that option of the precision out",
        name, options.weights_on_wire);
  if (gradients)
    settings.gradients.compression =
        GradientCompression{{options.gradients_on_wire == "int8" ? 8 : 4, options.wire_block_size},
                            options.error_feedback,
                            options.error_beta,
                            options.error_reset};
  settings.log = [&context](LogLevel level, const std::string& text) { context.log(level, text); };
}

}  // namespace strata::toolbox
