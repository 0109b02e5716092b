// The bytes of small token files with headers, to be written as they are or damaged first.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "temporary_folder.hpp"

template <typename Token>
std::string raw(const std::vector<Token>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Token)};
}

template <typename Token>
std::string llmc_bytes(std::uint32_t magic, std::uint32_t version, const std::vector<Token>& tokens) {
  std::vector<std::uint32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::uint32_t>(tokens.size());
  return raw(header) + raw(tokens);
}

// Every part of an .idx file, free to be changed; three sequences of u16 tokens in two documents to begin with.
struct MegatronBytes {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths{3, 0, 5};
  std::vector<std::int64_t> offsets{0, 6, 6};
  std::vector<std::int64_t> boundaries{0, 2, 3};
  std::string modes;
  std::string tokens = raw<std::uint16_t>({10, 11, 12, 20, 21, 22, 23, 24});
  std::uint64_t sequences = 3;
  std::uint64_t boundary_count = 3;

  std::string index() const {
    return magic + raw<std::uint64_t>({version}) + raw<std::uint8_t>({code}) +
           raw<std::uint64_t>({sequences, boundary_count}) + raw(lengths) + raw(offsets) + raw(boundaries) + modes;
  }
  void write(const std::string& prefix) const {
    write_file(prefix + ".idx", index());
    write_file(prefix + ".bin", tokens);
  }
};
