#include <algorithm>
#include <map>
#include <set>

#include "conformance/partitioner/carried_out.hpp"

#include <strata/format.hpp>

namespace strata::conformance {

namespace {

using fakes::PartitionRank;

std::string to_string(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "{" + text + "}";
}

void check_group(const GroupSpec& spec, int ranks) {
  std::set<int> seen;
  for (const std::vector<int>& members : spec.members) {
    const std::string which = "group '" + spec.name + "' has the members " + to_string(members);
    require(!members.empty(), which);
    require(std::ranges::is_sorted(members),
            which + "; they must be in ascending order, so that all ranks number them alike");
    for (const int member : members) {
      require(member >= 0 && member < ranks, format("{}; ranks are 0 to {}", which, ranks - 1));
      require(seen.insert(member).second,
              format("{}; rank {} is already in another group of this name", which, member));
    }
  }
  require(static_cast<int>(seen.size()) == ranks,
          format("the groups of the name '{}' have {} of the {} ranks; they must cover all", spec.name, seen.size(),
                 ranks));
}

bool same(const std::vector<GroupSpec>& left, const std::vector<GroupSpec>& right) {
  return std::ranges::equal(
      left, right, [](const GroupSpec& l, const GroupSpec& r) { return l.name == r.name && l.members == r.members; });
}

// On every rank, as the engine asks before there is anything else.
void check_groups(Subject& subject, const PartitionWorld& world) {
  const MeshShape& mesh = world.ranks.mesh;
  std::vector<GroupSpec> first;
  for (int rank = 0; rank < mesh.data_parallel(); ++rank) {
    const auto asked = subject.make<Partitioner>(world.options, world.ranks.in_the_run(rank), mesh);
    const std::vector<GroupSpec> groups = asked->groups(mesh);
    require(same(groups, asked->groups(mesh)), "groups() gives other groups the second time");
    if (rank == 0) first = groups;
    require(same(groups, first), "groups() gives other groups on rank " + std::to_string(rank) +
                                     " than on rank 0; ranks that create different groups deadlock");
  }
  std::set<std::string> names;
  for (const GroupSpec& spec : first) {
    require(names.insert(spec.name).second, "two groups have the name '" + spec.name + "'");
    check_group(spec, mesh.data_parallel());
  }
}

std::string range(std::int64_t begin, std::int64_t end) {
  return format("[{}, {})", begin, end);
}

void check_slice(const PartitionRank& rank, const Slice& slice) {
  require(slice.flat != nullptr, "a slice of owned() has no flat parameter");
  const FlatParameterInfo& info = slice.flat->info();
  const std::string which =
      format("slice {} of {}, which has {} elements,", range(slice.begin, slice.end), info.name, info.elements);
  require(slice.begin >= 0 && slice.begin < slice.end && slice.end <= info.elements, which + " is empty or outside");
  require(
      slice.counted_begin <= slice.counted_end && slice.counted_begin >= slice.begin && slice.counted_end <= slice.end,
      which + " counts " + range(slice.counted_begin, slice.counted_end) + ", which is not inside it");
  for (const std::int64_t at : {slice.begin, slice.end})
    require(info.cut_up_to(at) == at,
            format("{} cuts within a unit that begins at element {}; the engine refuses that: the optimizer updates a "
                   "unit's elements together (ParameterSpan::unit)",
                   which, info.cut_up_to(at)));
  const auto check = [&](const BufferRange& part, at::ScalarType dtype, const std::string& what) {
    require(part.buffer != nullptr, which + " has no " + what);
    const at::Tensor tensor = rank.at_rest(part);
    require(tensor.numel() == slice.end - slice.begin && tensor.is_contiguous() && tensor.scalar_type() == dtype,
            format("{} has a {} of {} x {}; it is contiguous, as long as the slice and {}", which, what, tensor.numel(),
                   c10::toString(tensor.scalar_type()), c10::toString(dtype)));
  };
  check(slice.parameter, info.dtypes.parameter, "parameter");
  if (info.trainable) check(slice.gradient, info.dtypes.gradient, "gradient");
}

struct Range {
  std::int64_t begin = 0, end = 0;
  int rank = 0;
};

std::string element(std::int64_t at, const FlatParameterInfo& info) {
  return format("element {} of the {} of {}", at, info.elements, info.name);
}

// Every element at least once, and at most once on a rank.
void check_owned(std::vector<Range> ranges, const FlatParameterInfo& info) {
  require(!ranges.empty(),
          "no rank owns a slice of " + info.name +
              (info.trainable ? "" : "; frozen parameters need slices too: they are initialised and saved"));
  std::ranges::sort(ranges, {}, &Range::begin);
  std::int64_t covered = 0;
  std::map<int, std::int64_t> covered_by;
  for (const Range& one : ranges) {
    require(one.begin <= covered, element(covered, info) + " is in no rank's slices, so it is never updated");
    std::int64_t& own = covered_by[one.rank];
    require(one.begin >= own, format("element {} of {} is in two slices of one rank, so it would be updated twice",
                                     one.begin, info.name));
    own = one.end;
    covered = std::max(covered, one.end);
  }
  require(covered == info.elements, element(covered, info) + " is in no rank's slices, so it is never updated");
}

void check_counted(std::vector<Range> ranges, const FlatParameterInfo& info) {
  std::erase_if(ranges, [](const Range& one) { return one.begin == one.end; });
  std::ranges::sort(ranges, {}, &Range::begin);
  std::int64_t counted = 0;
  const auto wrong = [&](std::int64_t at, const char* times) {
    return element(at, info) + " is counted " + times + " in norms; over all ranks it must be counted once";
  };
  for (const Range& one : ranges) {
    require(one.begin <= counted, wrong(counted, "0 times"));
    require(one.begin >= counted, wrong(one.begin, "2 times"));
    counted = one.end;
  }
  require(counted == info.elements, wrong(counted, "0 times"));
}

std::vector<std::pair<std::int64_t, std::int64_t>> ranges_of(const PartitionRank& rank, int flat) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const Slice& slice : rank.owned())
    if (slice.flat->info().id == flat) ranges.emplace_back(slice.begin, slice.end);
  std::ranges::sort(ranges);
  return ranges;
}

// A pipeline stage that shares a parameter holds it among other ones, here among none.
void check_tie(Subject& subject, const PartitionWorld& world, const PartitionRank& rank, int number,
               FlatParameterInfo info) {
  const auto ranges = ranges_of(rank, info.id);
  info.id = 0;
  const PartitionRank alone(subject.library(), world.options, world.ranks, number, {info});
  require(ranges_of(alone, 0) == ranges,
          "rank " + std::to_string(number) + " owns other slices of a tied flat parameter of " +
              std::to_string(info.elements) +
              " elements when there are other ones; they must depend only on its elements, formats and unit, "
              "because pipeline stages that share a parameter sum their gradients of it slice by slice");
}

Lookahead checked_lookahead(const PartitionRank& rank) {
  const Lookahead ahead = rank.partitioner().lookahead();
  require(ahead.layers >= 0, format("lookahead() prefetches {} layers ahead; it must be at least 0", ahead.layers));
  require(ahead.elements >= 0 && ahead.live_parameters >= 0, "lookahead() gives a negative limit of elements");
  require(!ahead.resident || ahead.layers == 0,
          "lookahead() says both that parameters are resident and that layers are prefetched");
  const Lookahead again = rank.partitioner().lookahead();
  require(again.layers == ahead.layers && again.elements == ahead.elements &&
              again.reuse_distance == ahead.reuse_distance && again.live_parameters == ahead.live_parameters &&
              again.resident == ahead.resident,
          "lookahead() gives another answer the second time; the program of all steps is built from the first one");
  for (const FlatParameter* flat : rank.flat_parameters())
    require(!ahead.resident || flat->residence() == Residence::Gathered,
            flat->info().name + " is " + to_string(flat->residence()) +
                " after attach(), but lookahead() says that parameters are resident, so it would never be gathered");
  return ahead;
}

}  // namespace

Lookahead check_layout(Subject& subject, const PartitionWorld& world) {
  check_groups(subject, world);
  std::vector<std::vector<Range>> owned(world.infos.size()), counted(world.infos.size());
  Lookahead lookahead;
  for (int number = 0; number < world.ranks.size(); ++number) {
    const PartitionRank rank(subject.library(), world.options, world.ranks, number, world.infos);
    lookahead = checked_lookahead(rank);
    for (const Slice& slice : rank.owned()) {
      check_slice(rank, slice);
      const auto flat = static_cast<std::size_t>(slice.flat->info().id);
      owned[flat].push_back({slice.begin, slice.end, number});
      counted[flat].push_back({slice.counted_begin, slice.counted_end, number});
    }
    for (const FlatParameterInfo& info : world.infos)
      if (!info.parameters.front().info.tie.empty()) check_tie(subject, world, rank, number, info);
  }
  for (const FlatParameterInfo& info : world.infos) {
    check_owned(std::move(owned[static_cast<std::size_t>(info.id)]), info);
    check_counted(std::move(counted[static_cast<std::size_t>(info.id)]), info);
  }
  return lookahead;
}

}  // namespace strata::conformance
