// What `step_policy: local` saves, shows and exports, and what it is not combined with.
#include "every_pair.hpp"
#include "local_training_runs.hpp"

namespace local_training {

TEST_CASE("a local run resumes bit by bit, at an average and between two") {
  for (const auto& [layout, at, outer] :
       every_pair(layouts(), std::vector{3, 4, 5}, std::vector{Outer{}, Outer{.steps = 4, .fragments = 2}})) {
    CAPTURE(layout.settings, outer.fragments, at);
    const Config config;
    const std::vector<std::string> settings = of_run(config, layout, outer);
    const Trained whole = trained(config, layout, settings);
    trained(config, layout, settings, {.until = at, .saves = config / "saved"});
    const Trained rest = trained(config, layout, settings, {.resumes = config / ("saved/step-" + std::to_string(at))});
    CHECK(rest.losses == std::vector<double>(whole.losses.begin() + at, whole.losses.end()));
    check_same(rest.states, whole.states);
  }
}

TEST_CASE("evaluations and exports use the groups' last common weights") {
  for (const Layout& layout : layouts()) {
    CAPTURE(layout.settings);
    const Config config;
    const std::vector<std::string> settings = of_run(config, layout, {});
    const std::string folder = config / "exported";
    const Trained plain = trained(config, layout, settings, {.until = 5});
    const Trained evaluated = trained(config, layout, settings, {.until = 5, .evaluates = true, .exports = folder});
    CHECK(evaluated.losses == plain.losses);
    check_same(evaluated.states, plain.states);
    CHECK(evaluated.evaluated[3] == evaluated.evaluated[2]);  // averaged after steps 3 and 6
    CHECK(evaluated.evaluated[2] != evaluated.evaluated[1]);
    std::vector<std::string> anew = settings;
    anew.push_back("model.init=" + folder);
    CHECK(trained(config, layout, anew, {.until = 0, .evaluates = true}).evaluated.front() ==
          evaluated.evaluated.back());
  }
}

TEST_CASE("a checkpoint of local training needs the same number of groups") {
  const Config config;
  const Layout four{4, 1, 1, {}}, two{2, 2, 2, {}};
  for (const int at : {3, 4}) {
    const std::string folder = config / ("saved" + std::to_string(at));
    trained(config, two, of_run(config, two, {}), {.until = at, .saves = folder});
    const What what{.resumes = folder + "/step-" + std::to_string(at)};
    CHECK_THAT(error_of([&] { trained(config, four, of_run(config, four, {}), what); }),
               Contains("holds state of each of 2 groups of ranks that train independently") &&
                   Contains("this run has state of each of 4 groups"));
    CHECK_THAT(error_of([&] { trained(config, two, of_both(config, two), what); }),
               Contains("this run has one optimizer state for all ranks") && Contains("strata checkpoint export"));
  }
  trained(config, two, of_both(config, two), {.until = 2, .saves = config / "plain"});
  CHECK_THAT(error_of([&] { trained(config, two, of_run(config, two, {}), {.resumes = config / "plain/step-2"}); }),
             Contains("holds one optimizer state for all ranks"));
}

TEST_CASE("conflicts with local training are refused with the rule and the remedy") {
  const Config config;
  const Layout two{2, 1, 1, {}};
  const auto said = [&](const std::vector<std::string>& more, const Outer& outer) {
    std::vector<std::string> settings = of_run(config, two, outer);
    settings.insert(settings.end(), more.begin(), more.end());
    return error_of([&] { trained(config, two, settings, {.until = 1}); });
  };
  const auto refused = [&](const std::vector<std::string>& more, const std::string& found, const std::string& rule,
                           const std::string& remedy, const Outer& outer = {}) {
    CHECK_THAT(said(more, outer),
               Contains(found) && Contains(rule) && Contains(remedy + ", or set step_policy: plain"));
  };
  const std::string and_local = ", and step_policy is local: ";
  refused({"partitioner.plugin=zero1"},
          "with its options, partitioner/zero1 has no two ranks that own the same slices" + and_local,
          "groups of ranks that together hold one full copy of the weights", "replicates across them");
  refused({"partitioner.hybrid.secondary_shard=true"}, "with its options, partitioner/hybrid has no two ranks", "", "");
  refused({"partitioner.hybrid.shard_size=2"},
          "partitioner/hybrid makes one group of the 2 data-parallel ranks" + and_local, "two groups or more",
          "use smaller groups or more ranks");
  refused({"optimizer.plugin=lamb"}, "optimizer/lamb needs sums over the ranks of a stage" + and_local,
          "several groups", "choose an optimizer that updates each piece independently");
  refused({"optimizer.plugin=schedule_free"},
          "optimizer/schedule_free trains at other weights than its masters" + and_local, "averages the master weights",
          "choose an optimizer that trains at its masters");
  refused({"offload.optimizer.plugin=cpu"}, "offload.optimizer is set" + and_local, "averaged on the device",
          "leave offload.optimizer out");
  refused({}, "step_policy is local, and local.fragments is 4 and local.steps 3",
          "each fragment is averaged at a step of its own", "set local.fragments to at most local.steps",
          {.steps = 3, .fragments = 4});
  refused({}, "step_policy is local, and local.fragments is 5 and the model has 4 layers",
          "fragments are made of layers", "at most that number", {.steps = 9, .fragments = 5});
  CHECK_THAT(said({"scheduler.plugin=pipedream", "partitioner.hybrid.stage=1", "train.clip=0"}, {}),
             Contains("step_policy is not plain"));
  CHECK_THAT(said({"offload=auto"}, {}), Contains("offload is automatic, and step_policy is local"));
}

}  // namespace local_training
