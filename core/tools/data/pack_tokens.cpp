#include "tools/data/pack_tokens.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <memory>
#include <string_view>

#include "tools/data/in_order.hpp"
#include "tools/data/jsonl.hpp"
#include "tools/data/text_parts.hpp"

namespace strata::cli {
namespace {

struct PackedPart {
  std::vector<std::uint32_t> tokens;
  std::int64_t documents = 0;
  std::int64_t left_out = 0;
  std::int64_t read = 0;  // as TextPart's
};

// One thread's.
class PartPacker {
 public:
  explicit PartPacker(const PackOptions& options)
      : options_(options), encoder_(std::make_unique<tokenizer::Encoder>(*options.tokenizer)) {}

  PackedPart pack(const TextPart& part) {
    PackedPart packed;
    packed.read = part.read;
    packed.tokens.reserve(part.text.size() / 3);
    const std::uint64_t left_out = encoder_->left_out();
    part.lines ? add_lines(part, packed) : add(part.text, part.begins, part.ends, options_.file_end, packed);
    packed.left_out = static_cast<std::int64_t>(encoder_->left_out() - left_out);
    return packed;
  }

 private:
  void add(std::string_view text, bool begins, bool ends, std::optional<std::uint32_t> end, PackedPart& packed) {
    const auto put = [&](const std::vector<std::uint32_t>& ids) {
      packed.tokens.insert(packed.tokens.end(), ids.begin(), ids.end());
    };
    if (begins) put(options_.tokenizer->before());
    encoder_->encode(text, packed.tokens);
    if (!ends) return;
    put(options_.tokenizer->behind());
    if (end) packed.tokens.push_back(*end);
    ++packed.documents;
  }

  void add_lines(const TextPart& part, PackedPart& packed) {
    std::int64_t number = part.first_line;
    for (std::size_t begin = 0; begin < part.text.size(); ++number) {
      const std::size_t end = std::min(part.text.find('\n', begin), part.text.size());
      const std::string_view line = std::string_view(part.text).substr(begin, end - begin);
      begin = end + 1;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      add(jsonl_text(line, options_.jsonl_key, part.path, number), true, true, options_.line_end, packed);
    }
  }

  const PackOptions& options_;
  std::unique_ptr<tokenizer::Encoder> encoder_;
};

class Writer {
 public:
  Writer(data::OutputFile& output, int token_bytes) : output_(output), token_bytes_(token_bytes) {}

  void write(const std::vector<std::uint32_t>& tokens) {
    if (token_bytes_ == 4) {
      output_.write_at(4 * written_, tokens.data(), 4 * tokens.size());
    } else {
      narrow_.resize(tokens.size());
      std::transform(tokens.begin(), tokens.end(), narrow_.begin(),
                     [](std::uint32_t token) { return static_cast<std::uint16_t>(token); });
      output_.write_at(2 * written_, narrow_.data(), 2 * narrow_.size());
    }
    written_ += tokens.size();
  }
  std::int64_t written() const { return static_cast<std::int64_t>(written_); }

 private:
  data::OutputFile& output_;
  int token_bytes_;
  std::vector<std::uint16_t> narrow_;
  std::uint64_t written_ = 0;
};

}  // namespace

PackResult pack_tokens(const TextFiles& files, data::OutputFile& output, const PackOptions& options,
                       const std::function<void(std::int64_t, std::int64_t)>& progress) {
  TextParts parts(files, *options.tokenizer);
  InOrder<TextPart, PackedPart> work(options.threads, [&] {
    return [packer = std::make_shared<PartPacker>(options)](const TextPart& part) { return packer->pack(part); };
  });
  PackResult result{.files = std::ssize(files.files()), .skipped = files.skipped()};
  Writer writer(output, options.token_bytes);
  std::int64_t read = 0;
  std::optional<TextPart> part = parts.next();
  while (part || !work.empty()) {
    while (part && !work.full()) {
      work.put(std::move(*part));
      part = parts.next();
    }
    const PackedPart packed = work.take();
    writer.write(packed.tokens);
    result.documents += packed.documents;
    result.left_out += packed.left_out;
    read = packed.read;
    if (progress) progress(read, files.bytes());
  }
  if (read != files.bytes()) throw EnvironmentError("the inputs changed while they were packed; try again");
  result.tokens = writer.written();
  if (result.tokens == 0) throw UserError("nothing to pack: no line of the inputs holds text");
  return result;
}

}  // namespace strata::cli
