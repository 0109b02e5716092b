#include "general/uses.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/fakes/partition_ranks.hpp>
#include <strata/learning_rate.hpp>
#include <strata/precision_policy.hpp>

#include <memory>
#include <optional>

#include "data/written_files.hpp"
#include "device/usable_device.hpp"
#include "model/built_model.hpp"
#include "offload/device_under_test.hpp"
#include "optimizer/parameter_tensors.hpp"
#include "scheduler/schedules.hpp"

namespace strata::conformance {

namespace {

// A use of one rank by an instance at its defaults: `work(instance)` is a step.
template <class Interface, class Work>
Use by_an_instance(Subject& subject, Work work) {
  const auto plugin = std::make_shared<std::optional<fakes::LoadedPlugin<Interface>>>();
  return {1, [&subject, plugin](int) { plugin->emplace(subject.make<Interface>()); },
          [plugin, work](int) { work(***plugin); }, [plugin](int) { (*plugin)->shutdown(); }};
}

// The same where the kind has an object that makes the instance.
template <class Subjected, class Work>
Use by(Subject& subject, Work work) {
  const auto used = std::make_shared<std::unique_ptr<Subjected>>();
  return {1, [&subject, used](int) { *used = std::make_unique<Subjected>(subject); },
          [used, work](int) { work(**used); }, [used](int) { used->reset(); }};
}

Use of_partitioner(Subject& subject) {
  struct Ranks {
    std::unique_ptr<fakes::PartitionGroups> groups;
    std::vector<std::unique_ptr<fakes::PartitionRank>> ranks;
  };
  const auto all = std::make_shared<Ranks>();
  for (const int ranks : {2, 3, 4, 1}) {
    try {
      all->groups = std::make_unique<fakes::PartitionGroups>(subject.library(), fakes::OptionTexts{}, ranks);
      break;
    } catch (const UserError&) {  // it takes other numbers of ranks
    }
  }
  if (all->groups == nullptr) throw Skip("the plugin's defaults take none of 1 to 4 ranks");
  all->ranks.resize(static_cast<std::size_t>(all->groups->ranks()));
  const auto rank_of = [all](int rank) -> auto& {
    return all->ranks[static_cast<std::size_t>(rank)];
  };
  const auto or_give_up = [all](const auto& work) {
    try {
      work();
    } catch (...) {
      all->groups->give_up();
      throw;
    }
  };
  return {all->groups->ranks(),
          [&subject, all, rank_of, or_give_up](int rank) {
            or_give_up([&] {
              rank_of(rank) = std::make_unique<fakes::PartitionRank>(subject.library(), fakes::OptionTexts{},
                                                                     *all->groups, rank, fakes::odd_flat_parameters());
              for (FlatParameter* flat : rank_of(rank)->flat_parameters()) rank_of(rank)->partitioner().publish(*flat);
            });
          },
          [rank_of, or_give_up](int rank) {
            or_give_up([&] {
              fakes::run_step(*rank_of(rank), 2,
                              [](FlatParameter&, const at::Tensor& buffer, int) { buffer.add_(1.0); });
              for (FlatParameter* flat : rank_of(rank)->flat_parameters())
                if (flat->info().trainable) rank_of(rank)->partitioner().publish(*flat);
            });
          },
          [rank_of](int rank) { rank_of(rank)->shutdown(); }};
}

Use of_optimizer(Subject& subject) {
  struct Updates {
    std::optional<ParameterTensors> parameter;
    std::int64_t made = 0;
  };
  const auto updates = std::make_shared<Updates>();
  return by_an_instance<Optimizer>(subject, [updates](Optimizer& optimizer) {
    std::mt19937_64 random(1);
    if (!updates->parameter)
      updates->parameter = make_parameter(optimizer, "layer.weight", {96, 65}, {.copy = at::kBFloat16}, random);
    Piece piece = updates->parameter->whole();
    fakes::update(optimizer, piece, scalars_of(0.001, updates->made++));
  });
}

Use of_precision(Subject& subject) {
  return by_an_instance<PrecisionPolicy>(subject, [](PrecisionPolicy& policy) {
    const ParameterInfo weight{"layers.0.weight", {16, 8}};
    const DTypes dtypes = policy.dtypes(weight);
    const at::Tensor x = at::ones({4, 8}, at::TensorOptions().dtype(policy.activation())),
                     into = at::zeros({16, 8}, at::TensorOptions().dtype(dtypes.gradient));
    const Parameter w{weight, at::ones({16, 8}, at::TensorOptions().dtype(dtypes.parameter))};
    const at::Tensor y = policy.linear(x, w, at::Tensor());
    policy.input_gradient(y, w);
    policy.add_weight_gradient(y, x, weight, into);
    policy.judge({1, 1.0, true});
  });
}

Use of_data(Subject& subject) {
  struct Files {
    std::optional<fakes::LoadedPlugin<DataSource>> plugin;
    std::unique_ptr<WrittenFiles> files;
  };
  const auto used = std::make_shared<Files>();
  return {1,
          [&subject, used](int) {
            used->plugin.emplace(subject.make<DataSource>());
            used->files = std::make_unique<WrittenFiles>(**used->plugin);
            used->files->write(Ids(5000, 7));
          },
          [used](int) { all_of(*used->files->open()); },
          [used](int) {
            used->files.reset();
            used->plugin->shutdown();
          }};
}

Use of_model(Subject& subject) {
  struct Built {
    std::optional<fakes::LoadedPlugin<Model>> model;
    std::optional<BuiltModel> built;
  };
  const auto used = std::make_shared<Built>();
  return {1,
          [&subject, used](int) {
            used->model.emplace(make_small(subject));
            used->built.emplace(**used->model, BatchShape{2, 7, at::kFloat}, at::kFloat, 5);
          },
          [used](int) { used->built->backward(draw_batch(**used->model, 2, 7, 6), 1.0); },
          [used](int) {
            used->built.reset();
            used->model->shutdown();
          }};
}

}  // namespace

Use use_of(Subject& subject) {
  switch (subject.manifest().kind) {
    case PluginKind::Partitioner:
      return of_partitioner(subject);
    case PluginKind::Optimizer:
      return of_optimizer(subject);
    case PluginKind::PrecisionPolicy:
      return of_precision(subject);
    case PluginKind::DataSource:
      return of_data(subject);
    case PluginKind::Model:
      return of_model(subject);
    case PluginKind::Scheduler:
      return by_an_instance<Scheduler>(subject, [](Scheduler& scheduler) {
        for (const PipelineShape& shape : some_shapes()) schedule_of(scheduler, shape);
      });
    case PluginKind::LearningRate:
      return by_an_instance<LearningRate>(subject, [](LearningRate& schedule) {
        const TrainingRun run{1e-3, 1000, 10};
        for (std::int64_t update = 0; update < 100; ++update) {
          schedule.rate(update, run);
          schedule.momentum(update, run);
        }
      });
    case PluginKind::OffloadDevice:
      return by<DeviceUnderTest>(subject, [](const DeviceUnderTest& device) {
        const Bytes bytes = device.buffer(std::max<std::size_t>(device.down(100'000), device.limits().alignment));
        const Region region = device->reserve(bytes.size());
        device->write(region, 0, bytes.span())->wait();
        device->read(region, 0, bytes.span())->wait();
        device->free(region);
      });
    case PluginKind::Device:
      return by<UsableDevice>(subject, [](const UsableDevice& device) {
        const at::Tensor values = at::zeros({1000}, device.options(at::kFloat));
        const auto event = device->make_event();
        device->on(StreamKind::Communication, [&] { values.add_(1.0); });
        event->record(StreamKind::Communication);
        event->block(StreamKind::Compute);
        device->host_buffer(4096);
        device->synchronize();
      });
    case PluginKind::Communicator:
      break;
  }
  throw Skip("ranks of communicators are processes, which end with a case");
}

}  // namespace strata::conformance
