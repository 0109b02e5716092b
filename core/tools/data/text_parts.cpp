#include "tools/data/text_parts.hpp"

#include <algorithm>

#include "tools/data/jsonl.hpp"

namespace strata::cli {
namespace {

constexpr std::size_t part_bytes = std::size_t{1} << 20;

}  // namespace

TextParts::TextParts(const TextFiles& files, const tokenizer::Tokenizer& tokenizer)
    : files_(files), tokenizer_(tokenizer) {}

std::optional<TextPart> TextParts::next() {
  if (!file_ && !open_next()) return std::nullopt;
  std::size_t end = 0;
  while (end == 0 && position_ < file_->size()) {
    const std::size_t searched = rest_.size();
    const std::size_t count = std::min<std::uint64_t>(part_bytes, file_->size() - position_);
    rest_.resize(searched + count);
    file_->read_at(position_, rest_.data() + searched, count);
    position_ += count;
    end = end_of_part(searched);
    if (lines_ && end == 0) check_line(rest_.size(), file_->path(), line_);
  }
  TextPart part{.path = file_->path(), .lines = lines_, .first_line = line_, .begins = begins_};
  part.ends = position_ == file_->size();
  if (part.ends) end = rest_.size();
  part.text = rest_.substr(0, end);
  rest_.erase(0, end);
  read_ += static_cast<std::int64_t>(end);
  part.read = read_;
  if (lines_) line_ += std::count(part.text.begin(), part.text.end(), '\n');
  begins_ = false;
  if (part.ends) file_.reset();
  return part;
}

// Skips empty files, which are no documents.
bool TextParts::open_next() {
  while (opened_ < files_.files().size()) {
    const TextFile& next = files_.files()[opened_++];
    file_.emplace(next.path);
    lines_ = next.lines;
    if (file_->size() == 0) continue;
    position_ = 0;
    rest_.clear();
    line_ = 1;
    begins_ = true;
    return true;
  }
  file_.reset();
  return false;
}

std::size_t TextParts::end_of_part(std::size_t searched) const {
  if (lines_) {
    const std::size_t line_break = std::string_view(rest_).substr(searched).rfind('\n');
    return line_break == std::string_view::npos ? 0 : searched + line_break + 1;
  }
  // The characters around a cut may have been there already.
  const std::size_t from = searched < 8 ? 0 : searched - 8;
  const std::size_t cut = tokenizer_.last_cut(std::string_view(rest_).substr(from));
  return cut == 0 ? 0 : from + cut;
}

}  // namespace strata::cli
