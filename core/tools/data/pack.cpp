#include "tools/data/pack.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "text/counted.hpp"
#include "tools/data/jsonl.hpp"
#include "tools/data/pack_tokens.hpp"
#include "tools/data/text_files.hpp"

namespace strata::cli {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;

// Widens bytes to tokens and writes them by the block.
template <typename Token>
class Packer {
 public:
  Packer(const TextFiles& list, data::OutputFile& output, const PackOptions& options,
         const std::function<void(std::int64_t, std::int64_t)>& progress)
      : list_(list), output_(output), options_(options), progress_(progress) {
    tokens_.reserve(block_bytes);
  }

  PackResult pack() {
    for (const TextFile& one : list_.files()) {
      const InputFile file(one.path);
      one.lines ? pack_jsonl(file) : pack_bytes(file);
      read_ += file.size();
    }
    if (read_ != static_cast<std::uint64_t>(list_.bytes())) {
      throw EnvironmentError("the inputs changed while they were packed; try again");
    }
    flush();
    return {std::ssize(list_.files()), documents_, static_cast<std::int64_t>(written_), list_.skipped()};
  }

 private:
  void add(const unsigned char* bytes, std::size_t count) {
    while (count > 0) {
      const std::size_t part = std::min(count, block_bytes - tokens_.size());
      tokens_.insert(tokens_.end(), bytes, bytes + part);
      if (tokens_.size() == block_bytes) flush();
      bytes += part;
      count -= part;
    }
  }

  void flush() {
    output_.write_at(written_ * sizeof(Token), tokens_.data(), tokens_.size() * sizeof(Token));
    written_ += tokens_.size();
    tokens_.clear();
  }

  void end_document(std::optional<std::uint32_t> end, std::uint64_t read) {
    ++documents_;
    if (end) tokens_.push_back(static_cast<Token>(*end));
    if (tokens_.size() == block_bytes) flush();
    tell(read);
  }

  void tell(std::uint64_t read) const {
    if (progress_) progress_(static_cast<std::int64_t>(read_ + read), list_.bytes());
  }

  void pack_bytes(const InputFile& file) {
    std::vector<unsigned char> bytes(block_bytes);
    for (std::uint64_t at = 0; at < file.size();) {
      const std::size_t count = std::min<std::uint64_t>(block_bytes, file.size() - at);
      file.read_at(at, bytes.data(), count);
      add(bytes.data(), count);
      at += count;
      tell(at);
    }
    if (file.size() > 0) end_document(options_.file_end, file.size());
  }

  void pack_jsonl(const InputFile& file) {
    std::string rest;  // the bytes read of an unfinished line
    std::int64_t number = 1;
    for (std::uint64_t at = 0; at < file.size();) {
      const std::size_t before = rest.size();
      rest.resize(before + std::min<std::uint64_t>(block_bytes, file.size() - at));
      file.read_at(at, rest.data() + before, rest.size() - before);
      at += rest.size() - before;
      if (at == file.size() && rest.back() != '\n') rest += '\n';  // the last line needs none
      std::size_t begin = 0;
      for (std::size_t end = rest.find('\n', before); end != std::string::npos; end = rest.find('\n', begin)) {
        pack_line(std::string_view(rest).substr(begin, end - begin), file, number++, at - (rest.size() - end) + 1);
        begin = end + 1;
      }
      rest.erase(0, begin);
      check_line(rest.size(), file.path(), number);
    }
  }

  // `read`: the file's bytes up to the next line.
  void pack_line(std::string_view line, const InputFile& file, std::int64_t number, std::uint64_t read) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    const std::string text = jsonl_text(line, options_.jsonl_key, file.path(), number);
    add(reinterpret_cast<const unsigned char*>(text.data()), text.size());
    end_document(options_.line_end, std::min(read, file.size()));
  }

  const TextFiles& list_;
  data::OutputFile& output_;
  const PackOptions& options_;
  const std::function<void(std::int64_t, std::int64_t)>& progress_;
  std::vector<Token> tokens_;
  std::uint64_t written_ = 0;  // tokens
  std::uint64_t read_ = 0;     // bytes of the files that are done
  std::int64_t documents_ = 0;
};

void check_ids(const PackOptions& options, std::uint32_t largest_end) {
  const std::uint32_t size = options.tokenizer->vocabulary_size();
  if (largest_end >= size) {
    throw UserError("--document-end is {}, and the tokenizer's ids are 0 to {}; give one of these", largest_end,
                    size - 1);
  }
  if (options.token_bytes == 4 || size <= UINT16_MAX + 1) return;
  throw UserError(
      "the tokenizer's ids are 0 to {}, and u16 tokens end at 65535; use u32 tokens: name the output *.u32.bin",
      size - 1);
}

void check(const PackOptions& options) {
  strata_check(options.token_bytes == 2 || options.token_bytes == 4, "pack_text: tokens of 2 or 4 bytes");
  const std::uint32_t largest = std::max(options.line_end.value_or(0), options.file_end.value_or(0));
  if (options.tokenizer) check_ids(options, largest);
  if (options.token_bytes == 4 || largest <= UINT16_MAX) return;
  throw UserError("--document-end is {}, and u16 tokens end at 65535; give a smaller id, or --width u32", largest);
}

}  // namespace

PackResult pack_text(const std::vector<std::string>& inputs, const std::string& output, const PackOptions& options,
                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(options);
  const TextFiles list(inputs, output, options.reading);
  if (list.bytes() == 0) {
    throw UserError("nothing to pack: found {}, all empty; skipped {}; give files or folders with text",
                    text::counted(static_cast<std::int64_t>(list.files().size()), "text file"),
                    text::counted(list.skipped(), "other file"));
  }
  data::OutputFile file(output, options.existing);
  if (options.tokenizer) {
    const PackResult result = pack_tokens(list, file, options, progress);
    file.finish();
    return result;
  }
  // The size of JSON lines as tokens is unknown until they are read.
  if (std::ranges::none_of(list.files(), &TextFile::lines)) {
    const std::int64_t ends = options.file_end ? std::ssize(list.files()) - list.empty() : 0;
    file.reserve(static_cast<std::uint64_t>(list.bytes() + ends) * static_cast<std::uint64_t>(options.token_bytes));
  }
  const PackResult result = options.token_bytes == 2 ? Packer<std::uint16_t>(list, file, options, progress).pack()
                                                     : Packer<std::uint32_t>(list, file, options, progress).pack();
  if (result.tokens == 0) throw UserError("nothing to pack: no line of the inputs holds text");
  file.finish();
  return result;
}

}  // namespace strata::cli
