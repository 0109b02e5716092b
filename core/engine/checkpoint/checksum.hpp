// Checksums by XXH3 in 64 bits: they detect damage, not forgery.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace strata::checkpoint {

// Checksum of bytes that come in parts. [one thread]
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();
  void add(const void* bytes, std::size_t count);
  std::uint64_t value() const;  // checksum of all bytes added

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::string_view bytes);
// Returns 16 lower-case hexadecimal digits, the only spelling of a checksum.
std::string format_checksum(std::uint64_t checksum);

}  // namespace strata::checkpoint
