#include "group/launch_place.hpp"

#include <strata/error.hpp>

#include <map>

#include "catch.hpp"
#include "group/address.hpp"

using Catch::Matchers::Contains;
using strata::UserError;
using strata::group::first_host;
using strata::group::Launcher;
using strata::group::LaunchPlace;

namespace {
using Variables = std::map<std::string, std::string>;

LaunchPlace read(const Variables& variables) {
  return strata::group::read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string refusal(const Variables& variables) {
  try {
    read(variables);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

const Variables torchrun{{"RANK", "1"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "localhost"},
                         {"MASTER_PORT", "29501"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"TORCHELASTIC_RUN_ID", "job"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
const Variables slurm{{"SLURM_JOB_ID", "41003"},     {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"},
                      {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NUM_NODES", "1"}};

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}
Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
}  // namespace

TEST_CASE("no launcher: one process") {
  const LaunchPlace place = read({{"MASTER_ADDR", "somewhere"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
  CHECK(place.launcher == Launcher::None);
  CHECK(place.size == 1);
  CHECK(place.rank == 0);
  CHECK(place.interface_address == "127.0.0.1");
}

TEST_CASE("torchrun") {
  const LaunchPlace place = read(torchrun);
  CHECK(place.launcher == Launcher::Torchrun);
  CHECK(place.rank == 1);
  CHECK(place.size == 4);
  CHECK(place.local_rank == 1);
  CHECK(place.store_address == "localhost");
  CHECK(place.store_port == 29501);
  CHECK(place.store_served);
  CHECK(place.run_name == "job/2");
  CHECK(place.interface_address == "127.0.0.1");
  CHECK_FALSE(read(without(torchrun, "TORCHELASTIC_USE_AGENT_STORE")).store_served);
}

TEST_CASE("the rank and the number of ranks are enough where all of them are on this host") {
  for (const char* address : {"localhost", "127.0.0.1", "::1"}) {
    const LaunchPlace place =
        read({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", address}, {"MASTER_PORT", "29501"}});
    CHECK(place.rank == 1);
    CHECK(place.local_rank == 1);
    CHECK(place.local_size == 4);
    CHECK(place.interface_address == "127.0.0.1");
  }
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).local_size == 1);
}

TEST_CASE("incomplete and wrong variables are named") {
  const Variables reachable = with(torchrun, "MASTER_ADDR", "10.0.0.1");
  CHECK_THAT(refusal(without(reachable, "LOCAL_RANK")), Contains("LOCAL_RANK is not set") && Contains("RANK is set"));
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    CHECK_THAT(refusal(without(torchrun, name)),
               Contains(std::string(name) + " is not set") && Contains("RANK is set"));
  CHECK_THAT(refusal(without(torchrun, "RANK")), Contains("RANK is not set") && Contains("WORLD_SIZE is set"));
  CHECK_THAT(refusal(with(torchrun, "RANK", "4")), Contains("RANK is '4'") && Contains("from 0 to 3"));
  CHECK_THAT(refusal(with(torchrun, "RANK", "-1")), Contains("RANK is '-1'"));
  CHECK_THAT(refusal(with(torchrun, "WORLD_SIZE", "two")), Contains("WORLD_SIZE is 'two'"));
  CHECK_THAT(refusal(with(torchrun, "WORLD_SIZE", "0")), Contains("WORLD_SIZE is '0'"));
  CHECK_THAT(refusal(with(torchrun, "MASTER_PORT", "70000")), Contains("MASTER_PORT is '70000'"));
  CHECK_THAT(refusal(with(torchrun, "MASTER_PORT", "29500x")), Contains("MASTER_PORT is '29500x'"));
  CHECK_THAT(refusal(without(open_mpi, "OMPI_COMM_WORLD_SIZE")), Contains("OMPI_COMM_WORLD_SIZE is not set"));
  CHECK_THAT(refusal(without(slurm, "SLURM_PROCID")), Contains("SLURM_PROCID is not set"));
}

TEST_CASE("a run over several hosts cannot meet at a loopback address") {
  CHECK_THAT(refusal(with(torchrun, "LOCAL_WORLD_SIZE", "2")),
             Contains("MASTER_ADDR 'localhost' is a loopback address"));
  CHECK(read(without(torchrun, "LOCAL_WORLD_SIZE")).interface_address.substr(0, 4) != "");
  const Variables two_nodes = with(with(slurm, "SLURM_STEP_NUM_NODES", "2"), "SLURM_STEP_NODELIST", "localhost,other");
  CHECK_THAT(refusal(two_nodes),
             Contains("MASTER_ADDR 'localhost' is a loopback address") && Contains("not all ranks"));
}

TEST_CASE("Open MPI") {
  const LaunchPlace place = read(open_mpi);
  CHECK(place.launcher == Launcher::OpenMpi);
  CHECK(place.rank == 2);
  CHECK(place.local_rank == 2);
  CHECK(place.store_address == "127.0.0.1");
  CHECK_FALSE(place.store_served);
  CHECK_THAT(refusal(with(open_mpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1")), Contains("MASTER_ADDR is not set"));
}

TEST_CASE("Slurm") {
  const LaunchPlace place = read(slurm);
  CHECK(place.launcher == Launcher::Slurm);
  CHECK(place.rank == 3);
  CHECK(place.size == 4);
  CHECK(place.local_rank == 1);
  CHECK(place.store_address == "127.0.0.1");
  CHECK(place.store_port == 20000 + 41003 % 20000);
  CHECK(place.run_name == "41003.0");
  CHECK(read(with(slurm, "SLURM_STEP_ID", "1")).store_port != place.store_port);
  CHECK(read(with(slurm, "MASTER_PORT", "4000")).store_port == 4000);
  CHECK(read(with(slurm, "SLURM_STEP_NUM_TASKS", "4")).launcher == Launcher::Slurm);
  // torchrun within a Slurm job: its own variables count
  Variables both = torchrun;
  both.insert(slurm.begin(), slurm.end());
  CHECK(read(both).launcher == Launcher::Torchrun);
}

TEST_CASE("the first host of a Slurm list") {
  CHECK(first_host("node7") == "node7");
  CHECK(first_host("node7,node8") == "node7");
  CHECK(first_host("node[07-09,12],login1") == "node07");
  CHECK(first_host("node[3,5]") == "node3");
  CHECK(first_host("rack1-n[1-2].cluster") == "rack1-n1.cluster");
  CHECK_THROWS_AS(first_host(""), UserError);
  CHECK_THROWS_AS(first_host("node[1"), UserError);
}

TEST_CASE("local addresses") {
  CHECK(strata::group::address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(strata::group::address_towards("no-such-host.invalid") == "");  // it may be known later
  strata::group::ListeningSocket first("127.0.0.1", 0);
  CHECK(first.port() > 0);
  CHECK_THROWS_WITH(strata::group::ListeningSocket("127.0.0.1", first.port()), Contains("already in use"));
}
