// Description of this machine.
#pragma once
#include <filesystem>
#include <string>

namespace strata::ranks {

// Returns "AMD EPYC 9654 96-Core Processor"; empty if the kernel does not report it. `root` replaces "/".
std::string processor_model(const std::filesystem::path& root = "/");

// Returns "AMD EPYC 9654 96-Core Processor, 16 cores, 126.00 GiB, Linux 6.1.0 x86_64".
std::string machine();

}  // namespace strata::ranks
