// Cases on the layout: groups, slices, and what a partitioner promises of them.
#include <strata/error.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "partitioner/partitioner_cases.hpp"
#include "partitioner/ranks.hpp"

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
    require(std::is_sorted(members.begin(), members.end()),
            which + "; they must be in ascending order, so that all ranks number them alike");
    for (const int member : members) {
      require(member >= 0 && member < ranks, which + "; ranks are 0 to " + std::to_string(ranks - 1));
      require(seen.insert(member).second,
              which + "; rank " + std::to_string(member) + " is already in another group of this name");
    }
  }
  require(static_cast<int>(seen.size()) == ranks, "the groups of the name '" + spec.name + "' have " +
                                                      std::to_string(seen.size()) + " of the " + std::to_string(ranks) +
                                                      " ranks; they must cover all");
}

bool same(const std::vector<GroupSpec>& left, const std::vector<GroupSpec>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const GroupSpec& l, const GroupSpec& r) { return l.name == r.name && l.members == r.members; });
}

void groups_partition_the_ranks(Subject& subject) {
  for_each_layout(subject, {1, 2, 3, 4, 6, 8}, [&](const Layout& layout) {
    const MeshShape mesh{1, layout.ranks, 1};
    const auto asked = subject.make<Partitioner>(layout.options, 0, mesh);
    const std::vector<GroupSpec> groups = asked->groups(mesh);
    std::set<std::string> names;
    for (const GroupSpec& spec : groups) {
      require(names.insert(spec.name).second, "two groups have the name '" + spec.name + "'");
      check_group(spec, layout.ranks);
    }
    require(same(groups, asked->groups(mesh)), "groups() gives other groups the second time");
    const auto other = subject.make<Partitioner>(layout.options, layout.ranks - 1, mesh);
    require(same(groups, other->groups(mesh)), "groups() gives other groups on rank " +
                                                   std::to_string(layout.ranks - 1) +
                                                   " than on rank 0; ranks that create different groups deadlock");
  });
}

void check_slice(const PartitionRank& rank, const Slice& slice) {
  require(slice.flat != nullptr, "a slice of owned() has no flat parameter");
  const FlatParameterInfo& info = slice.flat->info();
  const std::string which = "slice [" + std::to_string(slice.begin) + ", " + std::to_string(slice.end) + ") of " +
                            info.name + ", which has " + std::to_string(info.elements) + " elements,";
  require(slice.begin >= 0 && slice.begin < slice.end && slice.end <= info.elements, which + " is empty or outside");
  require(
      slice.counted_begin <= slice.counted_end && slice.counted_begin >= slice.begin && slice.counted_end <= slice.end,
      which + " counts [" + std::to_string(slice.counted_begin) + ", " + std::to_string(slice.counted_end) +
          "), which is not inside it");
  const auto check = [&](const BufferRange& range, at::ScalarType dtype, const std::string& what) {
    require(range.buffer != nullptr, which + " has no " + what);
    const at::Tensor tensor = rank.at_rest(range);
    require(tensor.numel() == slice.end - slice.begin && tensor.is_contiguous() && tensor.scalar_type() == dtype,
            which + " has a " + what + " of " + std::to_string(tensor.numel()) + " x " +
                c10::toString(tensor.scalar_type()) + "; it is contiguous, as long as the slice and " +
                c10::toString(dtype));
  };
  check(slice.parameter, info.dtypes.parameter, "parameter");
  if (info.trainable) check(slice.gradient, info.dtypes.gradient, "gradient");
}

// How often each element of each flat parameter is owned, and counted, over all ranks.
struct Coverage {
  std::mutex mutex;
  std::map<int, std::vector<int>> owned, counted;
};

void add_slices(PartitionRank& rank, Coverage& coverage) {
  std::map<int, std::vector<int>> own;
  for (const Slice& slice : rank.owned()) {
    check_slice(rank, slice);
    const auto elements = static_cast<std::size_t>(slice.flat->elements());
    const int id = slice.flat->info().id;
    const std::lock_guard lock(coverage.mutex);
    for (std::vector<int>* times : {&own[id], &coverage.owned[id], &coverage.counted[id]}) times->resize(elements);
    for (std::int64_t i = slice.begin; i < slice.end; ++i) {
      ++coverage.owned[id][static_cast<std::size_t>(i)];
      require(++own[id][static_cast<std::size_t>(i)] == 1,
              "element " + std::to_string(i) + " of " + slice.flat->info().name +
                  " is in two slices of one rank, so it would be updated twice");
    }
    for (std::int64_t i = slice.counted_begin; i < slice.counted_end; ++i)
      ++coverage.counted[id][static_cast<std::size_t>(i)];
  }
}

void check_coverage(const Coverage& coverage, const std::vector<FlatParameterInfo>& infos) {
  for (const FlatParameterInfo& info : infos) {
    const auto owned = coverage.owned.find(info.id);
    require(owned != coverage.owned.end(), "no rank owns a slice of " + info.name +
                                               (info.trainable ? ""
                                                               : "; frozen parameters need slices too: they are "
                                                                 "initialised and saved"));
    for (std::size_t i = 0; i < owned->second.size(); ++i) {
      const std::string which =
          "element " + std::to_string(i) + " of the " + std::to_string(info.elements) + " of " + info.name;
      require(owned->second[i] > 0, which + " is in no rank's slices, so it is never updated");
      const int counted = coverage.counted.at(info.id)[i];
      require(counted == 1, which + " is counted " + std::to_string(counted) +
                                " times in norms; over all ranks it must be counted once");
    }
  }
}

void slices_cover(Subject& subject) {
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    for (const DTypes& dtypes : {DTypes{}, some_dtypes()[1]}) {
      const std::vector<FlatParameterInfo> infos = parameters_of_all_kinds(dtypes);
      Coverage coverage;
      on_ranks_of(subject, layout, infos, [&](PartitionRank& rank, int) { add_slices(rank, coverage); });
      check_coverage(coverage, infos);
    }
  });
}

// Begins and ends of a rank's slices of flat parameters of one size.
using Cuts = std::map<std::int64_t, std::set<std::pair<std::int64_t, std::int64_t>>>;

std::vector<Cuts> cuts_of(Subject& subject, const Layout& layout, const std::vector<FlatParameterInfo>& infos) {
  std::vector<Cuts> cuts(static_cast<std::size_t>(layout.ranks));
  on_ranks_of(subject, layout, infos, [&](PartitionRank& rank, int own) {
    for (const Slice& slice : rank.owned())
      cuts[static_cast<std::size_t>(own)][slice.flat->elements()].emplace(slice.begin, slice.end);
  });
  return cuts;
}

std::set<std::pair<std::int64_t, std::int64_t>> slices_of_size(const Cuts& cuts, std::int64_t elements) {
  const auto found = cuts.find(elements);
  return found == cuts.end() ? std::set<std::pair<std::int64_t, std::int64_t>>() : found->second;
}

// Two pipeline stages that share a parameter hold it among other ones.
void slices_of_ties(Subject& subject) {
  std::vector<FlatParameterInfo> all, without_the_first;
  for (const std::int64_t elements : {1, 7, 64, 1000, 2003}) {
    const auto tied = [&](std::size_t id) {
      FlatParameterInfo info = fakes::flat_parameter_info(static_cast<int>(id), elements);
      info.parameters.front().info.tie = "of " + std::to_string(elements);
      info.name = "tie " + info.parameters.front().info.tie;
      if (elements % 8 == 0) info.parameters.front().unit = elements;
      return info;
    };
    if (!all.empty()) without_the_first.push_back(tied(without_the_first.size()));
    all.push_back(tied(all.size()));
  }
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    const std::vector<Cuts> some = cuts_of(subject, layout, all), others = cuts_of(subject, layout, without_the_first);
    for (std::size_t rank = 0; rank < some.size(); ++rank)
      for (const auto& [elements, cuts] : some[rank])
        require(
            elements == 1 || slices_of_size(others[rank], elements) == cuts,
            "rank " + std::to_string(rank) + " owns other slices of a tied flat parameter of " +
                std::to_string(elements) +
                " elements when other ones stand before it; they must depend only on its elements, formats and unit, "
                "because pipeline stages that share a parameter sum their gradients of it slice by slice");
  });
}

// Parameters that are never cut, in blocks, in rows and anywhere, in one flat parameter and each in its own.
std::vector<FlatParameterInfo> parameters_with_units() {
  std::vector<FlatParameterInfo> infos{flat_parameter_of(0, {{40, 30}, {41, 100}, {9, 64}, {13, 7}, {19}}),
                                       flat_parameter_of(1, {{5000}}), flat_parameter_of(2, {{30, 30}}),
                                       flat_parameter_of(3, {{3, 50}, {50}})};
  const std::vector<std::vector<std::int64_t>> units{{1200, 256, 64, 7, 1}, {256}, {300}, {150, 50}};
  for (std::size_t i = 0; i < units.size(); ++i)
    for (std::size_t k = 0; k < units[i].size(); ++k) infos[i].parameters[k].unit = units[i][k];
  return infos;
}

void cuts_between_units(Subject& subject) {
  const std::vector<FlatParameterInfo> infos = parameters_with_units();
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    Coverage coverage;
    on_ranks_of(subject, layout, infos, [&](PartitionRank& rank, int own) {
      add_slices(rank, coverage);
      for (const Slice& slice : rank.owned())
        for (const std::int64_t at : {slice.begin, slice.end})
          require(slice.flat->info().cut_up_to(at) == at,
                  "slice [" + std::to_string(slice.begin) + ", " + std::to_string(slice.end) + ") of " +
                      slice.flat->info().name + " cuts within a unit that begins at element " +
                      std::to_string(slice.flat->info().cut_up_to(at)) +
                      "; the engine refuses that: the optimizer updates a unit's elements together "
                      "(ParameterSpan::unit)");
      for (const int micro_batches : {1, 3}) {
        publish_values(rank, micro_batches);
        for (FlatParameter* flat : rank.flat_parameters())
          require_values(rank, *flat, micro_batches, Phase::Forward, tolerance_of(subject, layout.options));
        run_and_check_gradients(rank, own, layout.ranks, micro_batches, tolerance_of(subject, layout.options));
      }
    });
    check_coverage(coverage, infos);
  });
}

void few_elements_are_spread(Subject& subject) {
  std::vector<FlatParameterInfo> infos;
  for (int id = 0; id < 4; ++id) infos.push_back(fakes::flat_parameter_info(id, id + 1));
  for_each_layout(subject, {2, 3, 4, 5}, [&](const Layout& layout) {
    Coverage coverage;
    on_ranks_of(subject, layout, infos, [&](PartitionRank& rank, int own) {
      add_slices(rank, coverage);
      publish_values(rank, 1.0);
      for (FlatParameter* flat : rank.flat_parameters())
        require_values(rank, *flat, 1.0, Phase::Forward, tolerance_of(subject, layout.options));
      run_and_check_gradients(rank, own, layout.ranks, 2, tolerance_of(subject, layout.options));
    });
    check_coverage(coverage, infos);
  });
}

void lookahead_is_sane(Subject& subject) {
  for_each_layout(subject, {1, 2, 4}, [&](const Layout& layout) {
    on_ranks_of(subject, layout, parameters_of_all_kinds(), [&](PartitionRank& rank, int) {
      const Lookahead ahead = rank.partitioner().lookahead();
      require(ahead.layers >= 0,
              "lookahead() prefetches " + std::to_string(ahead.layers) + " layers ahead; it must be at least 0");
      require(ahead.elements >= 0 && ahead.live_parameters >= 0, "lookahead() gives a negative limit of elements");
      require(!ahead.resident || ahead.layers == 0,
              "lookahead() says both that parameters are resident and that layers are prefetched");
      const Lookahead again = rank.partitioner().lookahead();
      require(again.layers == ahead.layers && again.elements == ahead.elements &&
                  again.reuse_distance == ahead.reuse_distance && again.live_parameters == ahead.live_parameters &&
                  again.resident == ahead.resident,
              "lookahead() gives another answer the second time; the program of all steps is built from the "
              "first one");
      if (!ahead.resident) return;
      for (const FlatParameter* flat : rank.flat_parameters())
        require(flat->residence() == Residence::Gathered,
                flat->info().name + " is " + to_string(flat->residence()) +
                    " after attach(), but lookahead() says that parameters are "
                    "resident, so it would never be gathered");
    });
  });
}

// What the capability in its manifest promises.
void capabilities_hold(Subject& subject) {
  if (!subject.can(Capability::ReleasesParameters)) throw Skip("the plugin does not declare releases_parameters");
  for_default_layouts(subject, {2, 3, 4}, [&](const Layout& layout) {
    on_ranks_of(subject, layout, parameters_of_all_kinds(), [&](PartitionRank& rank, int) {
      publish_values(rank, 0.0);
      for (FlatParameter* flat : rank.flat_parameters()) {
        rank.partitioner().gather(*flat, Phase::Forward);
        rank.partitioner().release(*flat, Phase::Forward);
        require(flat->residence() == Residence::Released, "the plugin declares releases_parameters, but " +
                                                              flat->info().name + " is " +
                                                              to_string(flat->residence()) + " after release()");
      }
    });
  });
}

}  // namespace

std::vector<Case> layout_cases() {
  return {
      {"partitioner.groups", "groups() covers every rank once, and is the same on all ranks.",
       groups_partition_the_ranks},
      {"partitioner.slices_cover",
       "Slices cover every element, do not overlap within a rank, and count each element once.", slices_cover},
      {"partitioner.slices_of_ties", "Slices of a tied flat parameter depend only on its elements, formats and unit.",
       slices_of_ties},
      {"partitioner.cuts_between_units",
       "Slices begin and end where the optimizer allows a cut, and values and sums are right where it does not.",
       cuts_between_units},
      {"partitioner.few_elements",
       "Flat parameters with fewer elements than ranks are stored, gathered and summed like others.",
       few_elements_are_spread},
      {"partitioner.lookahead", "lookahead() gives valid limits that do not change.", lookahead_is_sane},
      {"partitioner.capabilities", "The plugin has the capabilities that it declares.", capabilities_hold},
  };
}

}  // namespace strata::conformance
