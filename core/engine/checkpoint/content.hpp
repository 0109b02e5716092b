// Fingerprints of file contents, which detect that ranks on several hosts read different files.
#pragma once
#include <cstdint>

#include "checkpoint/checksum.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "data/file.hpp"

namespace strata::checkpoint {

// Sample of a range of bytes: all bytes up to `whole`, in a longer range `blocks` drawn blocks of 4 KiB, including the
// first.
struct Sample {
  std::uint64_t whole = std::uint64_t{64} << 20;
  std::uint64_t blocks = 256;
};
// Adds the length of bytes [begin, begin + bytes) and a sample of them. Blocks. Throws EnvironmentError.
void add_sample(Checksum& sum, const data::InputFile& file, std::uint64_t begin, std::uint64_t bytes,
                const Sample& sample);

// Returns the fingerprint of config.json and of every tensor's name, dtype, shape and a sample of its bytes: all bytes
// if the folder holds at most 64 MiB. Blocks. Throws EnvironmentError. [any thread]
std::uint64_t content_of(const HuggingFaceFolder& folder);
// Returns the fingerprint of checkpoint.json, which holds the checksums of the other files.
std::uint64_t content_of(const TrainingCheckpoint& checkpoint);

}  // namespace strata::checkpoint
