#include <strata/error.hpp>

#include <algorithm>

#include "data/written_files.hpp"

namespace strata::conformance::data_checks {

namespace {

constexpr std::int64_t row = 997;

const std::vector<SampleRequest>& requests() {
  static const std::vector<SampleRequest> all{{8, 0, 1},   {8, 50, 1},  {8, 300, 1234},         {1, 0, 7},
                                              {64, 40, 0}, {500, 1, 3}, {996, 9, 4'294'967'295}};
  return all;
}

std::string text_of(const SampleRequest& request) {
  return "seq_len " + std::to_string(request.seq_len) + ", " + std::to_string(request.samples) + " samples, seed " +
         std::to_string(request.seed);
}

void need_order(Subject& subject) {
  if (!subject.can(Capability::OwnOrder)) throw Skip("the plugin does not declare own_order");
}

std::unique_ptr<Samples> order_of(const DataSet& set, const SampleRequest& request) {
  std::unique_ptr<Samples> order = set.own_order(request);
  require(order != nullptr, text_of(request) + ": own_order() returns null");
  return order;
}

Ids tokens_of(const Samples& order, std::int64_t position, std::int64_t seq_len) {
  Ids read(static_cast<std::size_t>(seq_len) + 1, -1);
  order.read(position, read.data());
  return read;
}

}  // namespace

void order_as_declared(Subject& subject) {
  const auto plugin = subject.make<DataSource>();
  const WrittenFiles files(*plugin);
  files.write(Ids(20, 5));
  const std::unique_ptr<DataSet> set = files.open();
  const bool has = set->own_order({4, 0, 1}) != nullptr, declared = subject.can(Capability::OwnOrder);
  require(has || !declared, "the manifest declares own_order, but own_order() returns null");
  require(declared || !has,
          "own_order() returns an order, but the manifest does not declare own_order, so no config can "
          "select it");
}

void order_is_a_permutation(Subject& subject) {
  need_order(subject);
  const auto plugin = subject.make<DataSource>();
  std::mt19937_64 random = subject.random("data.order_is_a_permutation");
  const WrittenFiles files(*plugin);
  files.write(some_ids(row, random));
  const std::unique_ptr<DataSet> set = files.open();
  for (const SampleRequest& request : requests()) {
    const std::unique_ptr<Samples> order = order_of(*set, request);
    const std::int64_t count = order->count();
    require(count >= std::max<std::int64_t>(request.samples, 1),
            text_of(request) + ": the order has " + std::to_string(count) +
                " samples; a run needs at least as many as it asks for");
    std::vector<bool> seen(static_cast<std::size_t>(count));
    for (std::int64_t position = 0; position < count; ++position) {
      const std::string where = text_of(request) + ": position " + std::to_string(position);
      const std::int64_t sample = order->sample(position);
      require(sample >= 0 && sample < count,
              where + " is sample " + std::to_string(sample) + " of " + std::to_string(count));
      require(!seen[static_cast<std::size_t>(sample)],
              where + " is sample " + std::to_string(sample) + ", which the order has already had");
      seen[static_cast<std::size_t>(sample)] = true;
      for (const std::int64_t token : tokens_of(*order, position, request.seq_len))
        require(token >= 0 && token < 127, where + " holds token " + std::to_string(token) +
                                               ", which was not written; a sample is seq_len + 1 tokens of the data");
    }
    for (const std::int64_t position : {std::int64_t{-1}, count}) {
      const std::string what =
          text_of(request) + ": sample(" + std::to_string(position) + ") of " + std::to_string(count);
      require(throws<Bug>(what, [&] { order->sample(position); }), what + " is accepted; it must throw Bug");
    }
  }
}

void order_is_pure(Subject& subject) {
  need_order(subject);
  const auto plugin = subject.make<DataSource>();
  const auto other = subject.make<DataSource>({}, 1, {1, 2, 1});
  std::mt19937_64 random = subject.random("data.order_is_pure");
  const WrittenFiles files(*plugin);
  files.write(some_ids(row, random));
  const std::unique_ptr<DataSet> set = files.open(), theirs = other->open(files.path());
  for (const SampleRequest& request : requests()) {
    const std::unique_ptr<Samples> first = order_of(*set, request), again = order_of(*set, request),
                                   far = order_of(*theirs, request);
    require(first->count() == again->count() && first->count() == far->count(),
            text_of(request) + ": a second order has another number of samples");
    std::vector<Ids> read;
    for (std::int64_t position = 0; position < first->count(); ++position)
      read.push_back(tokens_of(*first, position, request.seq_len));
    for (std::int64_t position = first->count() - 1; position >= 0; --position) {  // in another order
      const std::string where = text_of(request) + ": position " + std::to_string(position);
      const auto same = [&](const Samples& order) {
        return order.sample(position) == first->sample(position) &&
               tokens_of(order, position, request.seq_len) == read[static_cast<std::size_t>(position)];
      };
      require(same(*first) && same(*again), where + " gives another sample the second time");
      require(same(*far), where + " gives another sample on another rank");
    }
  }
}

}  // namespace strata::conformance::data_checks
