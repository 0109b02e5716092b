#include "checkpoint/content.hpp"

#include <strata/split_mix.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace strata::checkpoint {

namespace {

constexpr std::uint64_t sample_block = 4096;

void add_bytes(Checksum& sum, const data::InputFile& file, std::uint64_t begin, std::uint64_t bytes,
               std::vector<char>& buffer) {
  for (std::uint64_t end = begin + bytes; begin < end;) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), end - begin));
    file.read_at(begin, buffer.data(), part);
    sum.add(buffer.data(), part);
    begin += part;
  }
}

void add_text(Checksum& sum, const std::string& text) {
  const std::uint64_t size = text.size();
  sum.add(&size, sizeof size);
  sum.add(text.data(), text.size());
}

}  // namespace

void add_sample(Checksum& sum, const data::InputFile& file, std::uint64_t begin, std::uint64_t bytes,
                const Sample& sample) {
  sum.add(&bytes, sizeof bytes);
  if (bytes <= std::max(sample.whole, sample.blocks * sample_block)) {
    std::vector<char> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 20)));
    return add_bytes(sum, file, begin, bytes, buffer);
  }
  std::vector<char> buffer(sample_block);
  for (std::uint64_t block = 0; block < sample.blocks; ++block)
    add_bytes(sum, file, begin + (block == 0 ? 0 : split_mix(block) % (bytes - sample_block + 1)), sample_block,
              buffer);
}

std::uint64_t content_of(const HuggingFaceFolder& folder) {
  std::map<const SafetensorsFile*, std::vector<std::string>> names;
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : folder.tensors()) {
    names[file].push_back(name);
    const TensorEntry& entry = file->tensors().at(name);
    bytes += bytes_of(TensorSpec{name, entry.dtype, entry.shape});
  }
  constexpr std::uint64_t whole = std::uint64_t{64} << 20, blocks = 1024;
  const Sample sample{bytes <= whole ? whole : 0, 1 + blocks / std::max<std::uint64_t>(folder.tensors().size(), 1)};
  std::map<std::string, std::uint64_t> sums;  // by tensor, however the tensors are spread over files
  for (const auto& [file, held] : names) {
    const data::InputFile opened = file->open();
    for (const std::string& name : held) {
      const TensorEntry& entry = file->tensors().at(name);
      Checksum sum;
      add_text(sum, std::string(c10::toString(entry.dtype)) + " " + format_shape(entry.shape));
      add_sample(sum, opened, entry.offset, bytes_of(TensorSpec{name, entry.dtype, entry.shape}), sample);
      sums[name] = sum.value();
    }
  }
  Checksum all;
  add_text(all, folder.config_text());
  for (const auto& [name, sum] : sums) {
    add_text(all, name);
    all.add(&sum, sizeof sum);
  }
  return all.value();
}

std::uint64_t content_of(const TrainingCheckpoint& checkpoint) {
  return checksum_of(checkpoint.text());
}

}  // namespace strata::checkpoint
