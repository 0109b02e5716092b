#include "checkpoint/checksum.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL  // nothing to link, and nothing to find at run time
#include <xxhash.h>

namespace strata::checkpoint {

struct Checksum::State {
  XXH3_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->hash);
}
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;

void Checksum::add(const void* bytes, std::size_t count) {
  XXH3_64bits_update(&state_->hash, bytes, count);
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(&state_->hash);
}

std::uint64_t checksum_of(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string format_checksum(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

}  // namespace strata::checkpoint
