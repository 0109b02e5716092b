// Which plugin a slot names, and where its options stand.
#include "outcome.hpp"

namespace strata::config {

TEST_CASE("Plugins that are not there") {
  CHECK(error("partitioner: {plugin: zero33}") ==
        "t.yaml:5:23: partitioner.plugin: no partitioner plugin \"zero33\"; did you mean zero3?");
  CHECK(error("partitioner: {plugin: zero33, prefetch_layers: 2}")
            .starts_with("t.yaml:5:23: partitioner.plugin: no partitioner plugin"));
  CHECK(error("scheduler: {plugin: zzz}").ends_with("known: 1f1b, l2l, sequential"));
  CHECK(error("scheduler: {plugin: ./x.so}").find("is a relative path") != std::string::npos);
  CHECK(error("partitioner: {plugin: none}").find("no partitioner plugin \"none\"") != std::string::npos);
  CHECK(error("optimizer: {plugin: /opt/damaged.so, x: 1}") ==
        "t.yaml:5:21: optimizer.plugin: /opt/damaged.so: not an ELF file");
  CHECK(error("optimizer: {plugin: greedy}").find("which is the engine's own key in optimizer") != std::string::npos);
}

TEST_CASE("Options beside the plugin, under its name, and across trees") {
  const auto prefetch = [](const RunConfig& run) {
    return std::get<std::int64_t>(run.partitioner.options.value("prefetch_layers"));
  };
  CHECK(prefetch(resolved({minimal_config, "partitioner: {plugin: zero3, prefetch_layers: 2}"})) == 2);
  CHECK(prefetch(resolved({minimal_config, "partitioner: {plugin: zero3, zero3: {prefetch_layers: 3}}"})) == 3);
  CHECK(prefetch(resolved({minimal_config, "partitioner: zero3"}, {"partitioner.zero3.prefetch_layers=4"})) == 4);
  CHECK(prefetch(resolved({minimal_config, "partitioner: {plugin: zero3, prefetch_layers: 2}"},
                          {"partitioner.zero3.prefetch_layers=5"})) == 5);
  CHECK(prefetch(resolved({minimal_config, "partitioner: {plugin: zero3, zero3: {prefetch_layers: 3}}"},
                          {"partitioner.prefetch_layers=6"})) == 6);
  CHECK(prefetch(resolved({minimal_config}, {"partitioner.prefetch_layers=7", "partitioner.plugin=zero3"})) == 7);
  CHECK(prefetch(resolved({minimal_config}, {"partitioner=zero3", "partitioner.prefetch_layers=8"})) == 8);
  CHECK(prefetch(resolved({minimal_config, "partitioner: {plugin: zero3, zero3: }"})) == 1);
  CHECK(error("partitioner: {plugin: zero3, prefetch_layers: 2, zero3: {prefetch_layers: 3}}").find("is given twice") !=
        std::string::npos);
  // Another plugin by --set does not inherit what was meant for the first; its section stays checked.
  const RunConfig other = resolved(
      {minimal_config, "optimizer: {plugin: adamw, betas: [0.9, 0.95], weight_decay: 0.1}"}, {"optimizer.plugin=sgd"});
  CHECK(other.optimizer.name == "sgd");
  CHECK(std::get<double>(other.optimizer.options.value("weight_decay")) == 0.01);
  CHECK(error("optimizer: {plugin: sgd, adamw: {betsa: [1]}}").find("unknown option \"optimizer.adamw.betsa\"") !=
        std::string::npos);
  CHECK(error("optimizer: {plugin: sgd, adamw: {betas: 1}}").find("it must be a list of numbers") != std::string::npos);
}

TEST_CASE("A plugin by its path takes options under its own name") {
  const RunConfig run = resolved({minimal_config, "partitioner: {plugin: /opt/zero3.so, prefetch_layers: 2}"});
  CHECK(run.partitioner.plugin == "/opt/zero3.so");
  CHECK(run.partitioner.name == "zero3");
  CHECK(std::get<std::int64_t>(run.partitioner.options.value("prefetch_layers")) == 2);
  CHECK(row(run, "partitioner.zero3.prefetch_layers").origin == "t.yaml:5");
  // One that only its path leads to.
  const auto depth = [](const std::string& text) {
    return std::get<std::int64_t>(resolved({minimal_config, text}).partitioner.options.value("depth"));
  };
  CHECK(depth("partitioner: {plugin: /opt/outside.so, depth: 2}") == 2);
  CHECK(depth("partitioner: {plugin: /opt/outside.so, outside: {depth: 3}}") == 3);
  CHECK(depth("partitioner: {plugin: /opt/outside.so, outside: }") == 1);
  CHECK(error("partitioner: {plugin: /opt/outside.so, outside: {dept: 3}}").ends_with("did you mean depth?"));
  CHECK(error("partitioner: {plugin: zero3, outside: {depth: 3}}").find("unknown key") != std::string::npos);
}

}  // namespace strata::config
