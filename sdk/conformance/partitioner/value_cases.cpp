// Cases on values: gathered parameters are the published ones, gradients are the sums over ranks and micro-batches.
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "partitioner/partitioner_cases.hpp"
#include "partitioner/ranks.hpp"

namespace strata::conformance {

namespace {

using fakes::Movement;
using fakes::PartitionRank;

constexpr Phase phases[] = {Phase::Forward, Phase::Backward, Phase::Recompute};

void check_values(PartitionRank& rank, double offset, double tolerance) {
  for (const Phase phase : phases)
    for (FlatParameter* flat : rank.flat_parameters()) require_values(rank, *flat, offset, phase, tolerance);
}

// New values, read in every phase, read again, other values.
void gathered_values_are_published(Subject& subject) {
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    on_ranks_of(subject, layout, parameters_of_all_kinds(), [&](PartitionRank& rank, int) {
      for (const double offset : {1.0, 11.0, 21.0}) {
        publish_values(rank, offset);
        check_values(rank, offset, tolerance);
        check_values(rank, offset, tolerance);
      }
    });
  });
}

void every_parameter_is_in_its_place(Subject& subject) {
  const std::vector<FlatParameterInfo> infos{
      flat_parameter_of(0, {{3, 5}, {7}, {1}, {2, 2, 2}, {29}}), flat_parameter_of(1, {{1}, {1}, {1}}),
      flat_parameter_of(2, {{64, 3}, {3}, {64}}, {}, false), flat_parameter_of(3, {{257}, {1}})};
  for_default_layouts(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    on_ranks_of(subject, layout, infos, [&](PartitionRank& rank, int own) {
      publish_values(rank, 2.0);
      check_values(rank, 2.0, tolerance);
      run_and_check_gradients(rank, own, layout.ranks, 1, tolerance);
    });
  });
}

// Steps one after the other: what is left from one must not be in the next.
void gradients_are_sums(Subject& subject) {
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    on_ranks_of(subject, layout, parameters_of_all_kinds(), [&](PartitionRank& rank, int own) {
      for (int step = 0; step < 3; ++step) {
        publish_values(rank, step);
        run_and_check_gradients(rank, own, layout.ranks, 1, tolerance);
      }
    });
  });
}

void micro_batches_add_up(Subject& subject) {
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    on_ranks_of(subject, layout, parameters_of_all_kinds(), [&](PartitionRank& rank, int own) {
      for (const int micro_batches : {4, 1, 2, 4}) {
        publish_values(rank, micro_batches);
        run_and_check_gradients(rank, own, layout.ranks, micro_batches, tolerance);
      }
    });
  });
}

// 16-bit parameters, fp32 or 16-bit sums: every number here is exact in 16 bits, so that nothing may be lost.
void narrow_formats_are_kept(Subject& subject) {
  for_each_layout(subject, {1, 2, 4}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    for (const DTypes& dtypes : some_dtypes()) {
      if (dtypes.parameter == at::kFloat) continue;
      on_ranks_of(subject, layout, parameters_of_all_kinds(dtypes), [&](PartitionRank& rank, int own) {
        for (const int micro_batches : {1, 2}) {
          publish_values(rank, micro_batches);
          for (FlatParameter* flat : rank.flat_parameters())
            require_values(rank, *flat, micro_batches, Phase::Forward, tolerance);
          run_and_check_gradients(rank, own, layout.ranks, micro_batches, tolerance);
        }
      });
    }
  });
}

// fp32 gradients that 16 bits would round: what is accumulated in fp32 stays so.
void wide_gradients_stay_wide(Subject& subject) {
  if (tolerance_of(subject, {}) > 0.0) throw Skip("the plugin's EQUIVALENCE allows inexact sums");
  for_each_layout(subject, {1, 2, 3}, [&](const Layout& layout) {
    if (tolerance_of(subject, layout.options) > 0.0) return;
    on_ranks_of(subject, layout, parameters_of_all_kinds(some_dtypes()[1]), [&](PartitionRank& rank, int) {
      publish_values(rank, 0.0);
      const auto value = [](std::int64_t begin, std::int64_t end) {
        return at::arange(begin, end, at::kDouble).remainder(9).add(4097.0);
      };
      fakes::run_step(rank, 2, [&](FlatParameter& flat, const at::Tensor& buffer, int) {
        buffer.add_(value(0, flat.elements()).to(buffer.scalar_type()));
      });
      for (const Slice& slice : rank.owned()) {
        if (!slice.flat->info().trainable) continue;
        const at::Tensor expected = value(slice.begin, slice.end).mul(2.0 * layout.ranks);
        require(
            rank.gradient(slice).to(at::kDouble).equal(expected),
            "the gradient of " + slice.flat->info().name +
                " was rounded to 16 bits; parameters are in 16 bits here, but gradients and their reduction in fp32");
      }
    });
  });
}

void frozen_parameters_are_left_alone(Subject& subject) {
  std::vector<FlatParameterInfo> infos = parameters_of_all_kinds();
  for (FlatParameterInfo& info : infos)
    if (info.id != 1) info = flat_parameter_of(info.id, {{info.elements}}, info.dtypes, false);
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    on_ranks_of(subject, layout, infos, [&](PartitionRank& rank, int own) {
      for (int step = 0; step < 2; ++step) {
        publish_values(rank, 5.0);
        run_and_check_gradients(rank, own, layout.ranks, 2, tolerance);
        check_values(rank, 5.0, tolerance);
      }
      std::int64_t lent = 0;
      for (const FlatParameter* flat : rank.flat_parameters()) lent += flat->info().trainable ? flat->elements() : 0;
      const Ledger& ledger = rank.store().ledger();
      // What a partitioner may hold of the one trainable parameter: whole, its part, a lent buffer, one on its way;
      // padded to 512 bytes.
      const std::int64_t held =
          ledger.peak[static_cast<std::size_t>(Category::Gradient)][static_cast<std::size_t>(Tier::Device)];
      require(held <= 4 * (lent * 4 + 512), "the partitioner held " + std::to_string(held) +
                                                " bytes of gradients, but only " + std::to_string(lent) +
                                                " elements are trainable; frozen parameters need no gradient");
    });
  });
}

// Collectives that write their output as late as possible, in wait().
void pending_is_waited_for(Subject& subject) {
  for_each_layout(subject, {2, 3, 4}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    on_ranks_of(
        subject, layout, parameters_of_all_kinds(some_dtypes()[1]),
        [&](PartitionRank& rank, int own) {
          for (int step = 0; step < 3; ++step) {
            publish_values(rank, step);
            check_values(rank, step, tolerance);
            run_and_check_gradients(rank, own, layout.ranks, 1 + step % 2, tolerance);
          }
        },
        Movement::AtWait);
  });
}

void lent_buffers_are_clean(Subject& subject) {
  for_each_layout(subject, {1, 2, 3}, [&](const Layout& layout) {
    on_ranks_of(subject, layout, parameters_of_all_kinds(some_dtypes()[1]), [&](PartitionRank& rank, int) {
      for (int step = 0; step < 2; ++step) {
        publish_values(rank, step);
        fakes::run_step(rank, 2, [&](FlatParameter& flat, const at::Tensor& buffer, int micro_batch) {
          const FlatParameterInfo& info = flat.info();
          require(buffer.defined() && buffer.numel() == info.elements && buffer.is_contiguous() &&
                      buffer.scalar_type() == info.dtypes.gradient,
                  "gradient() of " + info.name + " must return a contiguous buffer of " +
                      std::to_string(info.elements) + " elements in the gradient's dtype");
          const at::Tensor largest = buffer.abs().max();
          require(micro_batch > 0 || largest.item<double>() == 0.0,
                  "gradient() of " + info.name +
                      " returns a buffer for a step's first micro-batch that is not zero; backward adds to it");
          buffer.add_(1000.0);
        });
      }
    });
  });
}

// Random models, ranks and settings.
void drawn_models_are_right(Subject& subject) {
  std::mt19937_64 random = subject.random("partitioner.drawn");
  const std::vector<fakes::OptionTexts> settings = subject.settings();
  int taken = 0;
  for (int round = 0; round < 12; ++round) {
    const std::vector<DTypes> formats = some_dtypes();
    const DTypes dtypes = formats[random() % formats.size()];
    std::vector<FlatParameterInfo> infos;
    const int count = 1 + static_cast<int>(random() % 6);
    for (int id = 0; id < count; ++id) {
      std::vector<std::vector<std::int64_t>> shapes;
      const std::uint64_t parameters = 1 + random() % 3;
      for (std::uint64_t i = 0; i < parameters; ++i) {
        const std::uint64_t most = random() % 2 == 0 ? 9 : 2000;
        shapes.push_back({static_cast<std::int64_t>(1 + random() % most)});
      }
      infos.push_back(flat_parameter_of(id, shapes, dtypes, id == 0 || random() % 4 != 0));
    }
    const fakes::OptionTexts setting = settings[random() % settings.size()];
    const int micro_batches = 1 + static_cast<int>(random() % 2);
    const auto movement = random() % 2 == 0 ? Movement::AtStart : Movement::AtWait;
    const auto check = [&](const Layout& layout) {
      const double tolerance = tolerance_of(subject, layout.options);
      on_ranks_of(
          subject, layout, infos,
          [&](PartitionRank& rank, int own) {
            for (int step = 0; step < 2; ++step) {
              publish_values(rank, step);
              run_and_check_gradients(rank, own, layout.ranks, micro_batches, tolerance);
              check_values(rank, step, tolerance);
            }
          },
          movement);
    };
    try {
      taken += for_layouts_of(subject, setting, {1 + static_cast<int>(random() % 5)}, check);
    } catch (const Failure& failure) {
      throw Failure("model " + std::to_string(round) + ", " + std::to_string(count) +
                    " flat parameters: " + failure.what());
    }
  }
  if (taken == 0) throw Skip("the plugin refuses every random layout; try another --seed");
}

}  // namespace

std::vector<Case> value_cases() {
  return {
      {"partitioner.gathered_values", "gather() gives the last published values, in every phase.",
       gathered_values_are_published},
      {"partitioner.segments", "Each parameter inside a flat parameter has its own values and gets its own gradient.",
       every_parameter_is_in_its_place},
      {"partitioner.gradient_sums", "After a step each slice's gradient is the sum over all ranks.",
       gradients_are_sums},
      {"partitioner.accumulation",
       "After a step each slice's gradient is the sum over all micro-batches, for any number of them.",
       micro_batches_add_up},
      {"partitioner.narrow_parameters",
       "Gradient sums are right for 16-bit parameters with fp32 gradients, reduced in fp32 or 16 bits.",
       narrow_formats_are_kept},
      {"partitioner.wide_gradients", "fp32 gradients of 16-bit parameters are not rounded to 16 bits.",
       wide_gradients_stay_wide},
      {"partitioner.frozen", "Frozen parameters are gathered and published, and have no gradient.",
       frozen_parameters_are_left_alone},
      {"partitioner.waits",
       "The partitioner waits for a collective before it uses the output, and writes no buffer that one still uses.",
       pending_is_waited_for},
      {"partitioner.lent_buffers",
       "gradient() gives a full buffer in the gradient's dtype, zeroed for a step's first micro-batch.",
       lent_buffers_are_clean},
      {"partitioner.drawn", "Values and gradient sums are right for random models, numbers of ranks and settings.",
       drawn_models_are_right},
  };
}

}  // namespace strata::conformance
