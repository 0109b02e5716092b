// What this machine is, in words.
#pragma once
#include <filesystem>
#include <string>

namespace strata::ranks {

// "AMD EPYC 9654 96-Core Processor"; empty where the kernel does not name it. `root` stands for "/".
std::string processor_model(const std::filesystem::path& root = "/");

// "AMD EPYC 9654 96-Core Processor, 16 cores, 126.00 GiB, Linux 6.1.0 x86_64".
std::string machine();

}  // namespace strata::ranks
