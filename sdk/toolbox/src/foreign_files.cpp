#include <strata/toolbox/foreign_files.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <strata/error.hpp>

namespace strata::toolbox {
namespace {

using namespace std::string_view_literals;

constexpr const char* unpack = "unpack it first";
constexpr const char* extract = "extract what it holds, and give the files";
constexpr const char* numbers =
    "write the tokens it holds without a header, with NumPy: array.astype('uint16').tofile('tokens.bin'), or "
    "array.astype('uint32').tofile('tokens.u32.bin') where ids are above 65535";
constexpr const char* table =
    "write its texts as JSON lines for `strata data pack`, or its tokens with NumPy's tofile()";
constexpr const char* other = "give a file of tokens, or of text for `strata data pack`";

struct Beginning {
  std::string_view bytes;
  std::size_t at;
  const char* what;
  const char* remedy;
};

const Beginning beginnings[] = {
    {"\x93NUMPY"sv, 0, "is an array of NumPy (.npy)", numbers},
    {"PK\x03\x04"sv, 0, "is a ZIP archive, as .npz files and PyTorch's .pt files are", numbers},
    {"PK\x05\x06"sv, 0, "is an empty ZIP archive", other},
    {"\x89HDF\r\n\x1a\n"sv, 0, "is an HDF5 file", numbers},
    {"PAR1"sv, 0, "is a Parquet file", table},
    {"ARROW1\0\0"sv, 0, "is an Arrow file", table},
    {"GGUF"sv, 0, "is a GGUF file of weights", other},
    {"\x80\x02\x8a\x0al\xfc\x9c"sv, 0, "is a file of PyTorch's torch.save()", numbers},
    {"MMIDIDX\0"sv, 0, "is the index of a data set of Megatron-LM", "use the data plugin megatron and the PREFIX"},
    {"TNTIDX\0\0"sv, 0, "is the index of an old data set of fairseq", "convert it with Megatron-LM's tools"},
    {"SQLite format 3\0"sv, 0, "is a database of SQLite", table},
    {"BZh"sv, 0, "is compressed by bzip2", unpack},
    {"\xfd"
     "7zXZ\0"sv,
     0, "is compressed by xz", unpack},
    {"\x28\xb5\x2f\xfd"sv, 0, "is compressed by zstd", unpack},
    {"\x04\x22\x4d\x18"sv, 0, "is compressed by lz4", unpack},
    {"7z\xbc\xaf\x27\x1c"sv, 0, "is an archive of 7-Zip", extract},
    {"ustar"sv, 257, "is an archive of tar", extract},
    {"%PDF-"sv, 0, "is a PDF document", "extract its text"},
    {"\x7f"
     "ELF"sv,
     0, "is a program or a library", other},
    {"\x89PNG\r\n\x1a\n"sv, 0, "is a picture", other},
    {"\xff\xd8\xff\xe0"sv, 0, "is a picture", other},
    {"GIF8"sv, 0, "is a picture", other},
    {"WAVEfmt "sv, 8, "is a recording of sound", other},
    {"Obj\x01"sv, 0, "is an Avro file", table},
    {"FEA1"sv, 0, "is a Feather file", table}};

std::string first_bytes(const InputFile& file, std::size_t most) {
  std::string bytes(std::min<std::uint64_t>(file.size(), most), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

std::uint64_t number_at(std::string_view bytes, std::size_t at) {
  std::uint64_t number = 0;
  if (at + sizeof number <= bytes.size()) std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

char byte_at(const InputFile& file, std::uint64_t at) {
  char byte = 0;
  file.read_at(at, &byte, 1);
  return byte;
}

bool is_gzip(std::string_view head) {
  return head.size() >= 18 && head.starts_with("\x1f\x8b\x08"sv) && static_cast<unsigned char>(head[3]) < 32;
}

bool is_bzip2(std::string_view head) {
  return head.size() >= 14 && head[3] >= '1' && head[3] <= '9' &&
         (head.substr(4, 6) == "1AY&SY"sv || head.substr(4, 6) == "\x17rE8P\x90"sv);
}

// The length of the header, and the header, which is JSON.
bool is_safetensors(const InputFile& file, std::string_view head) {
  const std::uint64_t length = number_at(head, 0);
  if (head.size() < 10 || length < 2 || length > file.size() - 8 || head[8] != '{') return false;
  if (head[9] != '"' && head[9] != '}' && head[9] != ' ') return false;
  const char last = byte_at(file, 8 + length - 1);
  return last == '}' || last == ' ';
}

// Python's pickles from protocol 4 on begin with the length of their first frame, older ones show their last opcode.
bool is_pickle(const InputFile& file, std::string_view head) {
  if (head.size() < 12 || head[0] != '\x80') return false;
  if (head[1] == '\x04' || head[1] == '\x05') return head[2] == '\x95' && number_at(head, 3) <= file.size() - 11;
  const bool begins = "]}(cK"sv.find(head[2]) != std::string_view::npos;
  return (head[1] == '\x02' || head[1] == '\x03') && begins && byte_at(file, file.size() - 1) == '.';
}

// Arrow's stream format, in which datasets keeps its tables.
bool is_arrow_stream(std::string_view head) {
  return head.size() >= 12 && head.starts_with("\xff\xff\xff\xff"sv) && head[6] == 0 && head[7] == 0 &&
         head.substr(8, 4) == "\x10\0\0\0"sv;
}

// The bytes of the character of UTF-8 at `position`; 0 where there is none, or a control character not found in text.
std::size_t text_character(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t index) {
    return position + index < text.size() ? static_cast<unsigned char>(text[position + index]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) {
    const bool control =
        (first < 0x20 && first != '\t' && first != '\n' && first != '\r' && first != '\f') || first == 0x7f;
    return control ? 0 : 1;
  }
  const std::size_t wanted = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (std::size_t index = 1; index < wanted; ++index) {
    if ((byte(index) & 0xc0) != 0x80) return 0;
  }
  return wanted;
}

// Bytes of text in an encoding such as Latin-1 or Shift JIS: without control characters, and mostly ASCII.
bool is_text_of_bytes(std::string_view head) {
  constexpr std::size_t fewest = 128;  // of u16 tokens that all lack such bytes one file in five million is made
  std::size_t ascii = 0;
  for (const char byte : head) {
    if (static_cast<unsigned char>(byte) >= 0x80) continue;
    if (text_character(std::string_view(&byte, 1), 0) == 0) return false;
    ++ascii;
  }
  return head.size() >= fewest && 2 * ascii >= head.size();
}

bool is_utf16_text(std::string_view head, bool little_endian) {
  std::size_t ascii = 0, all = 0;
  for (std::size_t at = 2; at + 2 <= head.size(); at += 2, ++all) {
    const auto low = static_cast<unsigned char>(head[little_endian ? at : at + 1]);
    const auto high = static_cast<unsigned char>(head[little_endian ? at + 1 : at]);
    if (high == 0 && low < 0x20 && low != '\t' && low != '\n' && low != '\r') return false;
    if (high == 0 && low < 0x80) ++ascii;
  }
  return all >= 5 && 2 * ascii >= all;
}

}  // namespace

std::optional<ForeignFile> foreign_file(const InputFile& file) {
  const std::string head = first_bytes(file, 512);
  if (is_gzip(head)) return ForeignFile{"is compressed by gzip", unpack};
  if (is_safetensors(file, head)) return ForeignFile{"is a safetensors file", numbers};
  if (is_pickle(file, head)) return ForeignFile{"is a pickle of Python", numbers};
  if (is_arrow_stream(head)) return ForeignFile{"is an Arrow stream", table};
  for (const Beginning& one : beginnings) {
    if (one.at >= head.size() || !std::string_view(head).substr(one.at).starts_with(one.bytes)) continue;
    if (one.bytes == "BZh"sv && !is_bzip2(head)) continue;
    return ForeignFile{one.what, one.remedy};
  }
  return std::nullopt;
}

void refuse_foreign_file(const InputFile& file) {
  if (const std::optional<ForeignFile> foreign = foreign_file(file))
    throw UserError(Place{file.path()}, "{}; {}", foreign->what, foreign->remedy);
}

std::string other_encoding(const InputFile& file) {
  const std::string head = first_bytes(file, 4096);
  if (head.starts_with("\xff\xfe\0\0"sv) || head.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  const bool little_endian = head.starts_with("\xff\xfe"sv);
  if ((little_endian || head.starts_with("\xfe\xff"sv)) && is_utf16_text(head, little_endian)) return "UTF-16";
  return "";
}

bool is_text(const InputFile& file) {
  constexpr std::size_t fewest = 12, most = 4096;
  if (file.size() < fewest) return false;
  if (other_encoding(file) == "UTF-16") return true;
  const std::string head = first_bytes(file, most);
  if (is_text_of_bytes(head)) return true;
  // The last character may be cut off.
  const std::size_t end = head.size() < file.size() ? head.size() - 4 : head.size();
  for (std::size_t position = 0; position < end;) {
    const std::size_t bytes = text_character(head, position);
    if (bytes == 0) return false;
    position += bytes;
  }
  return true;
}

}  // namespace strata::toolbox
