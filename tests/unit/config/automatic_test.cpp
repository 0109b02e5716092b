#include "outcome.hpp"

namespace strata::config {
namespace {

TEST_CASE("auto is resolved by a rule or refused") {
  FakePlugins with_gpu;
  with_gpu.gpu_obstacle = "";
  const Outcome gpu = outcome({minimal_config}, {}, {2, "--nproc", true}, with_gpu);
  CHECK(gpu.run.device.name == "cuda");
  CHECK(gpu.run.communicator.plugin.name == "nccl");
  CHECK(outcome({minimal_config, "device: cpu"}, {}, {2, "--nproc", true}, with_gpu).run.communicator.plugin.name ==
        "shm");
  CHECK(std::get<std::string>(resolved({minimal_config, "communicator: {plugin: gloo, interface: lo}"})
                                  .communicator.plugin.options.value("interface")) == "lo");
  CHECK(error("partitioner: {plugin: auto}") ==
        "t.yaml:5:23: partitioner: auto is not supported here; choose a plugin (ddp, zero3)");
  CHECK(error("automatic: {device: [cuda, tpu]}")
            .ends_with("device: auto finds no usable plugin (cuda: no driver; tpu: there is no such plugin)"));
  CHECK(error("automatic: {communicator: []}").find("communicator: auto finds no usable plugin") != std::string::npos);
  CHECK(error("parallel: {pipeline: auto}").starts_with("t.yaml:5:22: parallel.pipeline: auto is not supported here"));
  CHECK(error("", {"train.steps=auto"}).starts_with("--set: train.steps: auto is not supported here"));
  CHECK(error("", {"data.path=auto"}) != "");
  CHECK(error("partitioner: {plugin: zero3, prefetch_layers: auto}")
            .starts_with("t.yaml:5:47: partitioner.zero3.prefetch_layers: auto is not supported here"));
  CHECK(error("activations: {checkpoint: auto}") != "");
  CHECK(resolved({minimal_config}, {"train.accumulation=auto", "parallel.data='auto'"}).train.accumulation == 1);
}

TEST_CASE("an automatic offload to the host takes the first present plugin") {
  const auto host = [](const std::string& more) {
    const Outcome result = outcome({minimal_config, "offload: {automatic: true}\n" + more});
    return result.error.empty() ? result.run.offload.host->name : result.error;
  };
  CHECK(host("") == "cpu");
  CHECK(host("automatic: {offload: {host: [nvme, cpu]}}") == "nvme");
  CHECK(host("automatic: {offload: {host: [moon, cpu]}}") == "cpu");
  CHECK(host("automatic: {offload: {host: [moon]}}").find("moon: there is no such plugin") != std::string::npos);
}

TEST_CASE("a missing communicator of a device is attributed to the device") {
  FakePlugins without_nccl;
  without_nccl.gpu_obstacle = "";
  without_nccl.remove("communicator/nccl");
  const std::string reason =
      "device: \"cuda\" uses communicator \"nccl\" (automatic.communicator), and no communicator plugin \"nccl\"; "
      "known: gloo, shm";
  CHECK(outcome({minimal_config, "device: cuda\n"}, {}, {2, "--nproc", true}, without_nccl).error ==
        "t.yaml:5:9: " + reason);
  CHECK(outcome({minimal_config}, {"device=cuda"}, {2, "--nproc", true}, without_nccl).error == "--set: " + reason);
}

TEST_CASE("A plugin for one host is chosen, or allowed, where ranks may share one") {
  const auto chosen = [](const World& world) {
    const Outcome result = outcome({minimal_config, "device: cpu\n"}, {}, world);
    INFO(result.error);
    return result.run.communicator.plugin.name;
  };
  CHECK(chosen({1, "one process", {}}) == "shm");
  CHECK(chosen({2, "--nproc", true}) == "shm");
  CHECK(chosen({2, "torchrun", false}) == "gloo");
  CHECK(chosen({2, "Slurm", {}}) == "gloo");
  const auto named = [](const World& world) {
    return outcome({minimal_config, "communicator: {plugin: shm}\n"}, {}, world).error;
  };
  CHECK(named({1, "one process", {}}).empty());
  CHECK(named({2, "--nproc", true}).empty());
  CHECK(named({2, "Slurm", {}}).empty());
  CHECK(named({2, "torchrun", false}) ==
        "t.yaml:5:24: communicator/shm connects ranks of one host only, and this run's 2 ranks (torchrun) are on "
        "several: "
        "ranks on different hosts would have no connection; leave communicator.plugin out, or choose one that connects "
        "hosts, or start all ranks on one host");
  CHECK(outcome({minimal_config, "device: cpu\nautomatic: {communicator: {cpu: [shm]}}\n"}, {}, {2, "torchrun", false})
            .error.ends_with("communicator: auto finds no usable plugin (shm: it connects ranks of one host only)"));
}

}  // namespace
}  // namespace strata::config
