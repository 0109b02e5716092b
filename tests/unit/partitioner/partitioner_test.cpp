// What every partitioner must do, on 1, 2, 3 and 4 ranks that are threads, against arithmetic done by hand: gathered values are the
// published ones, gradients are the sum over ranks and micro-batches, slices cover every element, nothing is left taken.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/plain_device.hpp>
#include <strata/partitioner.hpp>

#include <atomic>
#include <mutex>
#include <sstream>

#include "catch.hpp"
#include "loaded_plugin.hpp"

using namespace strata;

namespace {

// One rank's surroundings of a partitioner.
class Rank final : public PartitionContext {
 public:
  Rank(const std::string& library, CheckedGroup& group, const std::vector<FlatParameterInfo>& infos)
      : partitioner(library.c_str(), defaults()), group_(group), store_(at::kCPU), slots_(store_, device_) {
    for (const FlatParameterInfo& info : infos) {
      own_.push_back(std::make_unique<FlatParameter>(info, at::kCPU));
      flat_.push_back(own_.back().get());
    }
    partitioner->attach(*this);
  }
  const std::vector<FlatParameter*>& flat_parameters() const override { return flat_; }
  Group& group(const std::string&) override { return group_; }
  StateStore& store() override { return store_; }
  SlotPool& slots() override { return slots_; }
  Device& device() override { return device_; }

  LoadedPlugin<Partitioner> partitioner;

 private:
  static OptionValues defaults() {
    OptionValues values;  // of every partitioner in the tree: unknown ones are not read
    values.set("prefetch_layers", std::int64_t{1});
    values.set("reuse_distance", std::int64_t{0});
    return values;
  }
  CheckedGroup& group_;
  PlainDevice device_{at::kCPU};
  StateStore store_;
  SlotPool slots_;
  std::vector<std::unique_ptr<FlatParameter>> own_;
  std::vector<FlatParameter*> flat_;
};

FlatParameterInfo flat_info(int id, std::int64_t elements, const DTypes& dtypes = {}, bool trainable = true) {
  FlatParameterInfo info;
  info.id = id;
  info.name = "layer " + std::to_string(id);
  info.layers = {id};
  info.elements = elements;
  info.trainable = trainable;
  info.dtypes = dtypes;
  info.parameters = {{{"p" + std::to_string(id), {elements}, {}, trainable, ""}, 0}};
  return info;
}

// Odd sizes, a single element, fewer elements than ranks, a frozen one.
std::vector<FlatParameterInfo> odd_infos(const DTypes& dtypes = {}) {
  return {flat_info(0, 1, dtypes), flat_info(1, 2, dtypes), flat_info(2, 37, dtypes), flat_info(3, 1000, dtypes),
          flat_info(4, 11, dtypes, false)};
}

// Exact in every dtype that is summed here: small integers.
double gradient_value(int rank, int micro_batch, std::int64_t element) {
  return static_cast<double>((element % 7) + 1) * (rank + 1) + 3.0 * micro_batch;
}

void publish_values(Rank& rank, double offset) {
  for (const Slice& slice : rank.partitioner->owned())
    slice.parameter.copy_(at::arange(slice.begin, slice.end, at::kDouble).remainder(100).add(offset));
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner->publish(*flat);
}

bool has_values(Rank& rank, FlatParameter& flat, double offset) {
  Partitioner& partitioner = *rank.partitioner;
  if (!partitioner.lookahead().resident) {
    partitioner.prefetch(flat, Phase::Forward);
    partitioner.gather(flat, Phase::Forward);
  }
  const at::Tensor expected = at::arange(flat.elements(), at::kDouble).remainder(100).add(offset).to(flat.info().dtypes.parameter);
  const bool equal = at::equal(flat.parameters()[0].detach(), expected);
  if (!partitioner.lookahead().resident) partitioner.release(flat, Phase::Forward);
  return equal;
}

// One step of gradients: `micro_batches` contributions of every trainable flat parameter.
void reduce_all(Rank& rank, int group_rank, int micro_batches) {
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    const Accumulation accumulation{micro_batch == 0, micro_batch + 1 == micro_batches};
    for (auto flat = rank.flat_parameters().rbegin(); flat != rank.flat_parameters().rend(); ++flat) {
      if (!(*flat)->info().trainable) continue;
      const at::Tensor buffer = rank.partitioner->gradient(**flat, accumulation);
      for (std::int64_t i = 0; i < (*flat)->elements(); ++i) buffer.narrow(0, i, 1).add_(gradient_value(group_rank, micro_batch, i));
      rank.partitioner->reduce(**flat, accumulation);
    }
  }
  rank.partitioner->finish_gradients();
}

double expected_gradient(int ranks, int micro_batches, std::int64_t element) {
  double sum = 0.0;
  for (int rank = 0; rank < ranks; ++rank)
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) sum += gradient_value(rank, micro_batch, element);
  return sum;
}

std::vector<std::string> libraries() {
  std::vector<std::string> list;
  std::istringstream text(PARTITIONERS);
  for (std::string library; std::getline(text, library, ':');) list.push_back(library);
  return list;
}

}  // namespace

TEST_CASE("values, gradients and slices of every partitioner") {
  REQUIRE(libraries().size() >= 2);
  const DTypes mixed{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
  DTypes narrow_sums = mixed;
  narrow_sums.reduction = at::kBFloat16;  // sums here stay below 256: exact in bf16
  for (const std::string& library : libraries()) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (const DTypes& dtypes : {DTypes{}, mixed, narrow_sums}) {
        CAPTURE(library, ranks, dtypes.parameter, dtypes.reduction);
        std::mutex mutex;
        std::map<int, std::vector<int>> counted;  // flat parameter -> times each element was counted
        std::atomic<int> wrong_values{0};
        std::atomic<int> wrong_gradients{0};
        std::atomic<int> left_taken{0};
        fakes::on_ranks(ranks, [&](CheckedGroup& group) {
          Rank rank(library, group, odd_infos(dtypes));
          for (int step = 0; step < 3; ++step) {
            const double offset = 10.0 * step;
            publish_values(rank, offset);
            for (FlatParameter* flat : rank.flat_parameters()) wrong_values += has_values(rank, *flat, offset) ? 0 : 1;
            const int micro_batches = step + 1;
            reduce_all(rank, group.rank(), micro_batches);
            for (const Slice& slice : rank.partitioner->owned()) {
              if (!slice.flat->info().trainable) continue;
              const at::Tensor gradient = slice.gradient.to(at::kDouble);
              for (std::int64_t i = slice.begin; i < slice.end; ++i)
                if (gradient.const_data_ptr<double>()[i - slice.begin] != expected_gradient(ranks, micro_batches, i)) ++wrong_gradients;
            }
            left_taken += rank.slots().taken();
          }
          const std::lock_guard<std::mutex> lock(mutex);
          for (const Slice& slice : rank.partitioner->owned()) {
            std::vector<int>& times = counted[slice.flat->info().id];
            times.resize(static_cast<std::size_t>(slice.flat->elements()));
            if (slice.counted_begin < slice.begin || slice.counted_end > slice.end) ++wrong_values;
            for (std::int64_t i = slice.counted_begin; i < slice.counted_end; ++i) ++times[static_cast<std::size_t>(i)];
          }
        });
        CHECK(wrong_values == 0);
        CHECK(wrong_gradients == 0);
        CHECK(left_taken == 0);
        REQUIRE(counted.size() == 5);
        for (const auto& [id, times] : counted)
          CHECK(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
      }
    }
  }
}

TEST_CASE("a released flat parameter cannot be read, a gathered one not be published over") {
  for (const std::string& library : libraries()) {
    CAPTURE(library);
    std::atomic<int> failures{0};
    fakes::on_ranks(2, [&](CheckedGroup& group) {
      Rank rank(library, group, odd_infos());
      if (rank.partitioner->lookahead().resident) return;
      FlatParameter& flat = *rank.flat_parameters()[2];
      rank.partitioner->gather(flat, Phase::Forward);
      try {
        rank.partitioner->publish(flat);
        if (group.size() > 1 && library.find("zero") != std::string::npos) ++failures;
      } catch (const Bug&) {
      }
      rank.partitioner->release(flat, Phase::Forward);
      if (flat.residence() != Residence::Released) ++failures;
      try {
        rank.partitioner->release(flat, Phase::Forward);
        ++failures;
      } catch (const Bug&) {
      }
    });
    CHECK(failures == 0);
  }
}
