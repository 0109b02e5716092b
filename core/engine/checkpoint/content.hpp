// Fingerprints of what files hold, by which ranks of several hosts find out that they read different ones.
#pragma once
#include <cstdint>

#include "checkpoint/checksum.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "data/file.hpp"

namespace strata::checkpoint {

// How much is read of a range of bytes: all of at most `whole`, of a longer one `blocks` drawn blocks of 4 KiB, the
// first among them.
struct Sample {
  std::uint64_t whole = std::uint64_t{64} << 20;
  std::uint64_t blocks = 256;
};
// Adds the length of bytes [begin, begin + bytes) and a sample of them. Blocks. Throws EnvironmentError.
void add_sample(Checksum& sum, const data::InputFile& file, std::uint64_t begin, std::uint64_t bytes,
                const Sample& sample);

// Of config.json, and of every tensor its name, dtype, shape and a sample of its bytes: all, where the folder holds at
// most 64 MiB. Blocks. Throws EnvironmentError. [any thread]
std::uint64_t content_of(const HuggingFaceFolder& folder);
// Of checkpoint.json, which holds the checksums of the other files.
std::uint64_t content_of(const TrainingCheckpoint& checkpoint);

}  // namespace strata::checkpoint
