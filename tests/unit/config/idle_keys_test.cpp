#include "catch.hpp"
#include "outcome.hpp"

namespace strata::config {

TEST_CASE("Keys that do nothing beside the others are refused") {
  const auto refused = [](const std::string& text, const std::string& said, const std::vector<std::string>& more = {}) {
    CAPTURE(text);
    CHECK(error(text, more) == "t.yaml:5:" + said);
  };
  for (const auto& [key, value] : {std::pair("steps", "50"), std::pair("rate", "0.7"), std::pair("momentum", "0.9"),
                                   std::pair("fragments", "1")}) {
    const std::string name = std::string("local.") + key;
    refused(std::string("local: {") + key + ": " + value + "}",
            std::to_string(11 + std::string(key).size()) + ": " + name + " is " + value +
                ", which has no effect: step_policy is plain, without local steps; set step_policy: local, or leave " +
                name + " out");
  }
  refused("local: {steps: 4}\nstep_policy: delayed",
          "16: local.steps is 4, which has no effect: step_policy is delayed, without local steps; set step_policy: "
          "local, or leave local.steps out");
  refused("offload: {updates_at_end: 0.5}",
          "27: offload.updates_at_end is 0.5, which has no effect: offload.optimizer is none, so all updates are made "
          "at the end of the step; set offload.optimizer, or leave offload.updates_at_end out");
  refused("offload: {updates_at_end: 0.5, optimizer: nvme}\nstep_policy: delayed",
          "27: offload.updates_at_end is 0.5, which has no effect: step_policy is delayed, and only plain can defer "
          "updates to the next step; set step_policy: plain, or leave offload.updates_at_end out");
  refused("offload: {read_ahead: 1MiB}",
          "23: offload.read_ahead is 1MiB, which has no effect: nothing is offloaded; set offload.parameters, "
          "offload.optimizer or offload.activations, or leave offload.read_ahead out");
  refused("offload: {disk: nvme}",
          "17: offload.disk is nvme, which has no effect: offload.automatic is false, so no tier is chosen "
          "automatically; set offload.automatic: true, or leave offload.disk out");
  refused("offload: {host: cpu, optimizer: cpu}",
          "17: offload.host is cpu, which has no effect: offload.automatic is false, so no tier is chosen "
          "automatically; set offload.automatic: true, or leave offload.host out");
  refused("offload: {update_elements: 10}",
          "28: offload.update_elements is 10, which has no effect: offload.optimizer is none, so no optimizer state is "
          "offloaded; set offload.optimizer, or leave offload.update_elements out");
  const std::string packed = ".documents is packed, which does not separate documents; set ";
  CHECK(error("", {"data.document_end=3"}) == "--set: data.document_end is 3, which has no effect: data" + packed +
                                                  "data.documents: separate, or leave data.document_end out");
  CHECK(error("validation: {path: v}", {"validation.document_end=3"}) ==
        "--set: validation.document_end is 3, which has no effect: validation" + packed +
            "validation.documents: separate, or leave validation.document_end out");
  CHECK(error("", {"validation.plugin=megatron"}).find("validation.plugin is megatron, which has no effect") !=
        std::string::npos);
  for (const auto& [key, value] : {std::pair("every", "5"), std::pair("keep", "2")})
    refused(std::string("checkpoint: {") + key + ": " + value + "}",
            std::to_string(16 + std::string(key).size()) + ": checkpoint." + key + " is " + value +
                ", which has no effect: checkpoint.path is empty, so nothing is saved; set checkpoint.path, or leave "
                "checkpoint." +
                key + " out");
  for (const auto& [key, value] : {std::pair("every", "5"), std::pair("samples", "8"), std::pair("documents", "packed"),
                                   std::pair("document_end", "3")})
    refused(std::string("validation: {") + key + ": " + value + "}",
            std::to_string(16 + std::string(key).size()) + ": validation." + key + " is " + value +
                ", which has no effect: validation.path is empty; set validation.path, or leave validation." + key +
                " out");
}

TEST_CASE("Keys that something makes use of, or that a later choice leaves idle, are not") {
  const auto taken = [](const std::string& text, const std::vector<std::string>& settings = {}) {
    CAPTURE(text);
    CHECK(error(text, settings) == "");
  };
  taken("local: {steps: 4}\nstep_policy: local");
  taken("local: {steps: 4}", {"step_policy=local"});
  taken("local: {steps: 4}\nstep_policy: local", {"step_policy=plain"});
  taken("offload: {updates_at_end: 0.5, optimizer: nvme}");
  taken("offload: {updates_at_end: 0.5, read_ahead: 1MiB, disk: nvme, automatic: true}");
  taken("offload: {updates_at_end: 0.5, read_ahead: 1MiB, optimizer: nvme}", {"step_policy=delayed"});
  taken("offload: {updates_at_end: 0}");
  taken("offload: {read_ahead: 1MiB, activations: nvme}\nactivations: {checkpoint: all}");
  taken("offload: {disk: none, host: none}");
  taken("checkpoint: {every: 5, keep: 2}", {"checkpoint.path=saved"});
  taken("checkpoint: {every: 5, path: saved}", {"checkpoint.path=''"});
  taken("checkpoint: {every: 0}");
  taken("validation: {every: 5, samples: 8, path: v}", {"validation.path=''"});
  taken("validation: {samples: auto, documents: auto}");
}

}  // namespace strata::config
