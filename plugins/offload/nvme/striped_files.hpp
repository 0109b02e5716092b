// Files without a name, one in each folder, that together are one range of addresses: block k lies in file k modulo
// their number. They are gone when the process ends, however it ends.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "blocks.hpp"

namespace strata::offload_nvme {

class StripedFiles {
 public:
  // `warn` gets a line for each folder where transfers are slower or dearer than they look. Throws UserError for a
  // folder that is not there, EnvironmentError where no file can be made in it.
  StripedFiles(const std::vector<std::string>& folders, std::size_t block,
               const std::function<void(const std::string&)>& warn);
  ~StripedFiles();
  StripedFiles(const StripedFiles&) = delete;
  StripedFiles& operator=(const StripedFiles&) = delete;

  // Allocates disk space for this many bytes at once, filled with zeros; returns their first address. An address is
  // never given twice. Throws EnvironmentError with the bytes needed and available.
  std::uint64_t reserve(std::size_t bytes);
  void free(std::uint64_t address, std::size_t bytes);

  // The blocks of [address, address + bytes): visit(file, its offset there, first byte of the range, bytes).
  template <class Visit>
  void for_each_block(std::uint64_t address, std::size_t bytes, Visit&& visit) const {
    for (std::size_t begin = 0; begin < bytes;) {
      const std::uint64_t number = (address + begin) / block_, inside = (address + begin) % block_;
      const std::size_t part = std::min<std::size_t>(bytes - begin, block_ - inside);
      visit(files_[number % files_.size()], number / files_.size() * block_ + inside, begin, part);
      begin += part;
    }
  }

 private:
  // Of each file the range that holds [address, address + bytes).
  struct Part {
    File* file;
    std::uint64_t begin = 0, end = 0;
  };
  std::vector<Part> parts(std::uint64_t address, std::size_t bytes);

  std::size_t block_;
  std::vector<File> files_;
  std::uint64_t next_ = 0;  // address
};

}  // namespace strata::offload_nvme
