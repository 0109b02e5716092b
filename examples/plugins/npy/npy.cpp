// Token ids in a .npy file, as numpy.save writes a one-dimensional array of integers.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/toolbox/token_files.hpp>

#include <algorithm>
#include <charconv>

namespace {

using namespace strata;
using namespace strata::toolbox;

STRATA_NO_OPTIONS(NpyOptions)

constexpr std::string_view magic("\x93NUMPY\1\0", 8);  // version 1; two bytes with the length of the header follow
constexpr std::string_view shape_key = "'shape': (";
constexpr std::pair<std::string_view, TokenType> types[] = {
    {"'<u2'", TokenType::U16}, {"'<i4'", TokenType::I32}, {"'<u4'", TokenType::U32}, {"'<i8'", TokenType::I64}};

TokenFile open_npy(InputFile file) {
  const auto refuse = [&](const std::string& why) { throw UserError(Place{file.path()}, why); };
  char start[10] = {};
  if (file.size() >= sizeof start) file.read_at(0, start, sizeof start);
  if (!std::string_view(start, sizeof start).starts_with(magic)) refuse("is not a .npy file of version 1");
  std::string header(static_cast<unsigned char>(start[8]) + 256U * static_cast<unsigned char>(start[9]), ' ');
  if (sizeof start + header.size() > file.size()) refuse("ends within its header; it may be truncated");
  file.read_at(sizeof start, header.data(), header.size());
  const auto* type = std::find_if(std::begin(types), std::end(types),
                                  [&](const auto& one) { return header.find(one.first) != std::string::npos; });
  if (type == std::end(types)) refuse("its array is not of uint16, int32, uint32 or int64");
  const std::size_t at = header.find(shape_key);
  std::uint64_t count = 0;
  const char* end = header.data() + header.size();
  if (at != std::string::npos) end = std::from_chars(header.data() + at + shape_key.size(), end, count).ptr;
  if (at == std::string::npos || !std::string_view(end).starts_with(",)")) refuse("its array must have one dimension");
  if ((file.size() - sizeof start - header.size()) / bytes_of(type->second) != count)
    refuse("does not hold the " + std::to_string(count) + " ids of its header; it may be truncated");
  return {std::move(file), type->second, sizeof start + header.size()};
}

class Npy final : public DataSource {
 public:
  Npy(PluginContext& /*context*/, const NpyOptions& /*options*/) {}
  std::unique_ptr<DataSet> open(const std::string& path) const override {
    return std::make_unique<TokenFiles>(open_files(path, open_npy));
  }
  bool recognizes(const std::string& path) const override { return path.ends_with(".npy"); }
  void write(const std::string& path, const std::vector<std::int64_t>& tokens) const override {
    std::string header =
        "{'descr': '<i8', 'fortran_order': False, 'shape': (" + std::to_string(tokens.size()) + ",), }";
    header.resize(117, ' ');
    write_token_file(path, TokenType::I64, tokens, std::string(magic) + "\x76" + '\0' + header + "\n");
  }
};

}  // namespace

STRATA_PLUGIN(Npy, NpyOptions)
