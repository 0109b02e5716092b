#include "group/launch_place.hpp"

#include <strata/error.hpp>

#include <charconv>
#include <cstdlib>

#include "group/address.hpp"

namespace strata::group {

namespace {

constexpr int default_port = 29500;
constexpr int largest_size = 1 << 20;

// Reads one launcher's variables; errors name the launcher and the variable that identified it.
class Reader {
 public:
  Reader(const Environment& environment, std::string launcher, std::string sign)
      : environment_(environment), launcher_(std::move(launcher)), sign_(std::move(sign)) {}

  std::string text(const std::string& name, const std::string& advice) const {
    if (const auto value = environment_(name)) return *value;
    throw UserError("{} is set, so this process is a rank started by {}, but {} is not set; {}", sign_, launcher_, name,
                    advice);
  }

  int number(const std::string& name, int low, int high, const std::string& advice) const {
    const std::string value = text(name, advice);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < low || number > high)
      throw UserError("environment variable {} is '{}'; it must be a whole number from {} to {}", name, value, low,
                      high);
    return number;
  }

  int number_or(const std::string& name, int low, int high, int otherwise) const {
    return !name.empty() && environment_(name) ? number(name, low, high, "") : otherwise;
  }

  // Reads rank, size, local rank and local size from these variables; the last name may be empty. If all ranks are on
  // one host, the first two suffice.
  LaunchPlace ranks(const std::string& rank, const std::string& size, const std::string& local_rank,
                    const std::string& local_size, bool one_host = false) const {
    const std::string advice = "start all ranks with one launcher, or unset " + sign_ + " to run a single process";
    LaunchPlace place;
    place.size = number(size, 1, largest_size, advice);
    place.rank = number(rank, 0, place.size - 1, advice);
    if ((one_host || place.size == 1) && !environment_(local_rank)) {
      place.local_rank = place.rank;
      place.local_size = place.size;
      return place;
    }
    place.local_rank = number(local_rank, 0, place.size - 1, "set it to this process's number on its host, from 0");
    place.local_size = place.size == 1 ? 1 : number_or(local_size, 1, place.size, 0);
    return place;
  }

 private:
  const Environment& environment_;
  std::string launcher_;
  std::string sign_;
};

bool all_on_one_host(const LaunchPlace& place) {
  return place.local_size == place.size;
}

void read_torchrun(const Environment& environment, const std::string& sign, LaunchPlace& place) {
  const Reader reader(environment, "torchrun or a similar launcher", sign);
  place = reader.ranks("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                       is_loopback(environment("MASTER_ADDR").value_or("")));
  place.launcher = Launcher::Torchrun;
  place.run_name = environment("TORCHELASTIC_RUN_ID").value_or("run") + "/" +
                   environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  if (place.size == 1) return;
  const std::string advice = "set it to the address (or port) of rank 0, equal on all ranks";
  place.store_address = reader.text("MASTER_ADDR", advice);
  place.store_port = reader.number("MASTER_PORT", 1, 65535, advice);
  place.store_served = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("False") == "True";
}

// Open MPI gives ranks but not the host of rank 0; with several hosts the user must set MASTER_ADDR.
void read_open_mpi(const Environment& environment, LaunchPlace& place) {
  const Reader reader(environment, name_of(Launcher::OpenMpi), "OMPI_COMM_WORLD_RANK");
  place = reader.ranks("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                       "OMPI_COMM_WORLD_LOCAL_SIZE");
  place.launcher = Launcher::OpenMpi;
  place.run_name = environment("PMIX_NAMESPACE").value_or("run");
  if (place.size == 1) return;
  const std::string advice = "ranks are on several hosts; pass the host of rank 0 with mpirun -x MASTER_ADDR=...";
  place.store_address =
      all_on_one_host(place) ? environment("MASTER_ADDR").value_or("127.0.0.1") : reader.text("MASTER_ADDR", advice);
  place.store_port = reader.number_or("MASTER_PORT", 1, 65535, default_port);
}

// Uses the step's size, not the job's: a job script outside srun also has SLURM_PROCID but is a single process.
void read_slurm(const Environment& environment, LaunchPlace& place) {
  const Reader reader(environment, "Slurm's srun", "SLURM_STEP_ID");
  place = reader.ranks("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "");
  place.launcher = Launcher::Slurm;
  const int job = reader.number("SLURM_JOB_ID", 0, 2147483647, "srun sets it");
  place.run_name = format("{}.{}", job, reader.text("SLURM_STEP_ID", "srun sets it"));
  if (place.size == 1) return;
  const int nodes = reader.number("SLURM_STEP_NUM_NODES", 1, largest_size, "srun sets it");
  place.local_size = nodes == 1 ? place.size : 0;
  place.several_hosts = nodes > 1;
  if (const auto address = environment("MASTER_ADDR"))
    place.store_address = *address;
  else
    place.store_address = nodes == 1 ? "127.0.0.1" : first_host(reader.text("SLURM_STEP_NODELIST", "srun sets it"));
  // Different ports for two jobs on a node, and for two steps of a job. Slurm's own steps have numbers beyond int.
  constexpr long steps_apart = 97;
  const long step = std::strtol(environment("SLURM_STEP_ID").value_or("0").c_str(), nullptr, 10) % 20000;
  place.store_port =
      reader.number_or("MASTER_PORT", 1, 65535, 20000 + static_cast<int>((job + steps_apart * step) % 20000));
}

}  // namespace

const char* name_of(Launcher launcher) {
  constexpr const char* names[] = {"one process", "torchrun", "Open MPI", "Slurm"};
  return names[static_cast<std::size_t>(launcher)];
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string first_host(const std::string& host_list) {
  const std::size_t end = host_list.find_first_of(",[");
  std::string host = host_list.substr(0, end);
  if (end != std::string::npos && host_list[end] == '[') {
    const std::size_t stop = host_list.find_first_of(",-]", end);
    const std::size_t close = host_list.find(']', end);
    if (close == std::string::npos)
      throw UserError("Slurm's host list '{}' has no closing bracket; set MASTER_ADDR", host_list);
    host += host_list.substr(end + 1, stop - end - 1);
    const std::size_t next = host_list.find(',', close);
    host += host_list.substr(close + 1, next == std::string::npos ? next : next - close - 1);
  }
  if (host.empty())
    throw UserError("Slurm's host list '{}' names no host; set MASTER_ADDR to the host of rank 0", host_list);
  return host;
}

LaunchPlace read_environment(const Environment& environment) {
  LaunchPlace place;
  if (environment("RANK"))
    read_torchrun(environment, "RANK", place);
  else if (environment("WORLD_SIZE"))
    read_torchrun(environment, "WORLD_SIZE", place);
  else if (environment("OMPI_COMM_WORLD_RANK"))
    read_open_mpi(environment, place);
  else if (environment("SLURM_STEP_ID"))
    read_slurm(environment, place);
  place.several_hosts = place.several_hosts || (place.local_size > 0 && !all_on_one_host(place));
  place.interface_address = all_on_one_host(place) ? "127.0.0.1" : address_towards(place.store_address);
  check_reachable(place, place.interface_address);
  return place;
}

void check_reachable(const LaunchPlace& place, const std::string& interface_address) {
  if (!place.several_hosts || !is_loopback(interface_address)) return;
  const std::string here = place.local_size == 0 ? "not all ranks are here"
                                                 : "only " + std::to_string(place.local_size) + " of " +
                                                       std::to_string(place.size) + " ranks are here";
  throw UserError(
      "MASTER_ADDR '{}' is a loopback address on this host, but {}; set it to an address of rank 0's host that the "
      "other hosts can reach",
      place.store_address, here);
}

}  // namespace strata::group
