#include "tools/sample/character_stream.hpp"

#include <utility>

#include "tools/tokenizer/utf8.hpp"

namespace strata::sample {

std::string CharacterStream::add(std::string_view bytes) {
  waiting_ += bytes;
  std::size_t end = 0;
  while (end < waiting_.size()) {
    const tokenizer::Sequence sequence = tokenizer::sequence_at(waiting_, end);
    if (!sequence.valid && end + sequence.bytes == waiting_.size()) break;
    end += sequence.bytes;
  }
  std::string repaired;
  std::string shown(tokenizer::valid_utf8(std::string_view(waiting_).substr(0, end), repaired));
  waiting_.erase(0, end);
  return shown;
}

std::string CharacterStream::finish() {
  std::string repaired;
  return std::string(tokenizer::valid_utf8(std::exchange(waiting_, ""), repaired));
}

}  // namespace strata::sample
