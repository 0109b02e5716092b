#include <ATen/ops/cat.h>
#include <strata/error.hpp>

#include <algorithm>
#include <set>

#include "communicator/checks.hpp"
#include "communicator/rank_processes.hpp"
#include "communicator/values.hpp"
#include "plugin_host/manifest.hpp"

namespace strata::conformance::communicator_checks {

namespace {

// One size and number format on one group.
struct Trial {
  CheckedGroup& group;
  std::uint64_t seed;
  std::int64_t elements;  // of a part
  at::ScalarType dtype;
  bool in_rank_order;

  std::vector<at::Tensor> inputs(std::int64_t count) const {
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < group.size(); ++rank) all.push_back(drawn(seed, rank, count, dtype));
    return all;
  }
  at::Tensor own(std::int64_t count) const { return drawn(seed, group.rank(), count, dtype); }
  at::Tensor part(const at::Tensor& whole, int rank) const { return whole.narrow(0, rank * elements, elements); }
  std::int64_t whole() const { return elements * group.size(); }
  std::string named(const std::string& operation) const {
    return operation + " of " + std::to_string(elements) + " " + c10::toString(dtype) + " a rank on " +
           std::to_string(group.size()) + " ranks";
  }
  void equal(const at::Tensor& found, const at::Tensor& wanted, const std::string& operation,
             const std::string& rule) const {
    require(same_bytes(found, wanted), named(operation) + " does not give the bytes that were sent; " + rule);
  }

  void gather() const {
    const std::string rule = "rank r's input lands at [r * n, (r + 1) * n) of the output";
    const at::Tensor wanted = at::cat(inputs(elements)), mine = own(elements), before = mine.clone();
    const Framed output(whole(), dtype);
    group.all_gather(output.tensor(), mine).wait();
    equal(output.tensor(), wanted, "all_gather", rule);
    output.check(named("all_gather"));
    require(same_bytes(mine, before), named("all_gather") + " wrote to its input");
    const Framed place(whole(), dtype);
    part(place.tensor(), group.rank()).copy_(mine);
    group.all_gather(place.tensor(), part(place.tensor(), group.rank())).wait();
    equal(place.tensor(), wanted, "all_gather with the input in its place of the output", rule);
  }

  void exchange() const {
    const std::vector<at::Tensor> all = inputs(whole());
    const Framed output(whole(), dtype);
    group.all_to_all(output.tensor(), all[static_cast<std::size_t>(group.rank())]).wait();
    for (int from = 0; from < group.size(); ++from)
      equal(part(output.tensor(), from), part(all[static_cast<std::size_t>(from)], group.rank()), "all_to_all",
            "part p of the input goes to rank p, part p of the output comes from rank p");
    output.check(named("all_to_all"));
  }

  void broadcast() const {
    for (int root = 0; root < group.size(); ++root) {
      const Framed tensor(elements, dtype);
      if (group.rank() == root) tensor.tensor().copy_(own(elements));
      group.broadcast(tensor.tensor(), root).wait();
      equal(tensor.tensor(), drawn(seed, root, elements, dtype), "broadcast from rank " + std::to_string(root),
            "all ranks must get the root's bytes");
      tensor.check(named("broadcast"));
    }
  }

  void reduce(ReduceOperation reduction) const {
    const std::string how = reduction == ReduceOperation::Sum ? " (sum)" : " (maximum)";
    const std::vector<at::Tensor> parts = inputs(elements), wholes = inputs(whole());
    const auto check = [&](const at::Tensor& found, const std::vector<at::Tensor>& all, const std::string& operation) {
      check_reduced(found, all, reduction, in_rank_order, named(operation + how));
    };
    const Framed all_reduced(elements, dtype);
    all_reduced.tensor().copy_(own(elements));
    group.all_reduce(all_reduced.tensor(), reduction).wait();
    check(all_reduced.tensor(), parts, "all_reduce");
    all_reduced.check(named("all_reduce"));
    for (int root = 0; root < group.size(); ++root) {
      const at::Tensor tensor = own(elements);
      group.reduce(tensor, root, reduction).wait();
      if (group.rank() == root) check(tensor, parts, "reduce to rank " + std::to_string(root));
    }
    std::vector<at::Tensor> of_this_rank;
    for (const at::Tensor& input : wholes) of_this_rank.push_back(part(input, group.rank()));
    const at::Tensor input = own(whole());
    const Framed output(elements, dtype);
    group.reduce_scatter(output.tensor(), input, reduction).wait();
    check(output.tensor(), of_this_rank, "reduce_scatter");
    output.check(named("reduce_scatter"));
    require(same_bytes(input, own(whole())), named("reduce_scatter") + " wrote to its input");
    group.reduce_scatter(part(input, group.rank()), input, reduction).wait();
    check(part(input, group.rank()), of_this_rank, "reduce_scatter into its place of the input");
  }
};

const std::vector<at::ScalarType> moved{at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kByte};
const std::vector<at::ScalarType> summed{at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong};

bool keeps_rank_order(const Subject& subject) {
  return subject.manifest().equivalence.kind == plugin_host::Equivalence::Kind::Bitwise;
}

// `check` on 2 and 3 ranks for every number format and for 0, 1, an odd number and some ten thousands of elements;
// bytes and fp32 for megabytes too.
void try_all(Subject& subject, const std::string& name, const std::vector<at::ScalarType>& dtypes,
             const std::function<void(const Trial&)>& check) {
  require_usable(subject);
  std::mt19937_64 random = subject.random(name);
  const std::uint64_t seed = random();
  const auto odd = static_cast<std::int64_t>(2 * (random() % 2000) + 3),
             large = static_cast<std::int64_t>(60'000 + random() % 20'000);
  const bool in_rank_order = keeps_rank_order(subject);
  for (const int ranks : {2, 3}) {
    on_rank_processes(subject, {.ranks = ranks}, [&](const RankProcess& process) {
      const auto group = process.world();
      for (const at::ScalarType dtype : dtypes)
        for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, odd, large})
          if (elements != large || dtype != at::kDouble) check({*group, seed, elements, dtype, in_rank_order});
      check({*group, seed, 700'001, dtypes.front(), in_rank_order});
      group->barrier();
    });
  }
}

}  // namespace

void says_where_it_works(Subject& subject) {
  const auto plugin = subject.make<Communicator>();
  const std::string reason = plugin->unavailable();
  require(reason.find('\n') == std::string::npos && (reason.empty() || reason.size() > 10),
          "unavailable() is '" + reason + "'; it must be empty, or one sentence on one line");
  const std::vector<std::string> types = plugin->device_types();
  require(!types.empty(), "device_types() is empty; it must list the device types of the tensors, e.g. cpu or cuda");
  require(std::set<std::string>(types.begin(), types.end()).size() == types.size(),
          "device_types() lists a type twice");
  for (const std::string& type : types) {
    try {
      const at::Device device(type);
      require(!device.has_index() && !device.is_meta(),
              "device_types() holds '" + type + "'; it must list device types without an index");
    } catch (const c10::Error&) {
      throw Failure("device_types() holds '" + type + "', which is no device type of libtorch");
    }
  }
}

void gathers(Subject& subject) {
  try_all(subject, "communicator.gathers", moved, [](const Trial& trial) { trial.gather(); });
}

void reduces(Subject& subject) {
  try_all(subject, "communicator.reduces", summed, [](const Trial& trial) {
    Trial any_order = trial;  // the order is sums_in_rank_order's
    any_order.in_rank_order = false;
    any_order.reduce(ReduceOperation::Sum);
    any_order.reduce(ReduceOperation::Max);
  });
}

void sums_in_rank_order(Subject& subject) {
  require_usable(subject);
  const std::uint64_t seed = subject.random("communicator.sums_in_rank_order")();
  const bool in_rank_order = keeps_rank_order(subject);
  for (const int ranks : {2, 3}) {
    on_rank_processes(subject, {.ranks = ranks}, [&](const RankProcess& process) {
      const auto group = process.world();
      const std::vector<std::pair<std::int64_t, at::ScalarType>> tried{
          {100'003, at::kFloat}, {501, at::kFloat}, {30'001, at::kBFloat16}, {777, at::kHalf}, {5'003, at::kDouble}};
      for (const auto& [elements, dtype] : tried) {
        const Trial trial{*group, seed, elements, dtype, in_rank_order};
        const at::Tensor input = trial.own(trial.whole()), sum = input.clone();
        group->all_reduce(sum, ReduceOperation::Sum).wait();
        check_reduced(sum, trial.inputs(trial.whole()), ReduceOperation::Sum, in_rank_order, trial.named("all_reduce"));
        const Framed everyones(trial.whole() * ranks, dtype);
        group->all_gather(everyones.tensor(), sum).wait();
        for (int rank = 0; rank < ranks; ++rank)
          require(same_bytes(everyones.tensor().narrow(0, rank * trial.whole(), trial.whole()), sum),
                  trial.named("all_reduce") + " gives rank " + std::to_string(rank) + " different bits than rank " +
                      std::to_string(group->rank()) + "; replicas that are updated with it would diverge");
        if (!in_rank_order) continue;
        const Framed scattered(elements, dtype), gathered(trial.whole(), dtype);
        group->reduce_scatter(scattered.tensor(), input, ReduceOperation::Sum).wait();
        group->all_gather(gathered.tensor(), scattered.tensor()).wait();
        require(same_bytes(gathered.tensor(), sum),
                trial.named("reduce_scatter") +
                    " gives different bits than all_reduce; sum in rank order in both, or declare "
                    "EQUIVALENCE reassociation");
      }
      group->barrier();
    });
  }
}

void broadcasts(Subject& subject) {
  try_all(subject, "communicator.broadcasts", moved, [](const Trial& trial) { trial.broadcast(); });
}

void exchanges(Subject& subject) {
  try_all(subject, "communicator.exchanges", moved, [](const Trial& trial) { trial.exchange(); });
}

void options_change_no_result(Subject& subject) {
  require_usable(subject);
  const std::vector<fakes::OptionTexts> settings = subject.settings();
  if (settings.size() < 2) throw Skip("the plugin has no options with limits or choices");
  const std::uint64_t seed = subject.random("communicator.options_change_no_result")();
  const bool in_rank_order = keeps_rank_order(subject);
  for (const fakes::OptionTexts& options : settings) {
    try {
      subject.make<Communicator>(options);
    } catch (const UserError&) {
      continue;
    }
    try {
      on_rank_processes(subject, {.ranks = 2, .options = options}, [&](const RankProcess& process) {
        const auto group = process.world();
        for (const std::int64_t elements : {std::int64_t{1}, std::int64_t{1001}, std::int64_t{50'021}}) {
          const Trial trial{*group, seed, elements, at::kFloat, in_rank_order};
          trial.gather();
          trial.exchange();
          trial.broadcast();
          trial.reduce(ReduceOperation::Sum);
        }
        group->barrier();
      });
    } catch (const Failure& failure) {
      throw Failure("with options " + to_string(options) + ": " + failure.what());
    }
  }
}

}  // namespace strata::conformance::communicator_checks
