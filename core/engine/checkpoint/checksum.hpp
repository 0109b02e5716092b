// XXH3 in 64 bits: finds damage, does not keep forgers out.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace strata::checkpoint {

// Of bytes that come in parts. [one thread]
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();
  void add(const void* bytes, std::size_t count);
  std::uint64_t value() const;  // of all that was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::string_view bytes);
// 16 hexadecimal digits, lower case: its only spelling.
std::string format_checksum(std::uint64_t checksum);

}  // namespace strata::checkpoint
