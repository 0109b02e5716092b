#include "plugins/manifest.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "catch.hpp"
#include "error_of.hpp"
#include "little_library.hpp"
#include "little_options.hpp"
#include "plugins/elf_section.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::plugins;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::string write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string damage(const std::string& path) {
  return error_of<DamagedFile>([&] { read_elf_section(path, ".strata"); });
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  Manifest manifest;
  return error_of<DamagedFile>([&] { parse_manifest(text, manifest); });
}

}  // namespace

TEST_CASE("the manifest equals strata_add_plugin and the macro list") {
  Manifest manifest;
  parse_manifest(read_elf_section(little, ".strata"), manifest);
  CHECK(manifest.kind == PluginKind::Scheduler);
  CHECK(manifest.name == "little");
  CHECK(full_name(manifest) == "scheduler/little");
  CHECK(manifest.version == "1.2.3");
  CHECK(manifest.description == "A little plugin; it's 100% for tests, with 'quotes' & signs");
  CHECK(manifest.author == "The tests' author");
  CHECK(manifest.license == "Apache-2.0");
  CHECK(manifest.capabilities == std::vector<Capability>{Capability::SplitsBackward});
  CHECK(manifest.equivalence.kind == Equivalence::Kind::Tolerance);
  CHECK(manifest.equivalence.bound == 1e-3);
  CHECK(manifest.state_version == 3);
  CHECK(to_string(manifest.abi) == STRATA_ABI_TEXT);
  CHECK(manifest.fingerprint.libtorch == host_fingerprint().libtorch);
  const std::vector<OptionSpec> specs = LittleOptions::specs();
  REQUIRE(manifest.options.size() == specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    CHECK(manifest.options[i].name == specs[i].name);
    CHECK(manifest.options[i].type == specs[i].type);
    CHECK(manifest.options[i].default_text == specs[i].default_text);
    CHECK(manifest.options[i].minimum == specs[i].minimum);
    CHECK(manifest.options[i].maximum == specs[i].maximum);
    CHECK(manifest.options[i].choices == specs[i].choices);
    CHECK(manifest.options[i].unit == specs[i].unit);
    CHECK(manifest.options[i].documentation == specs[i].documentation);
  }
}

TEST_CASE("a file that is no plugin says so") {
  const TemporaryFolder folder;
  const std::string good = bytes_of(little);
  REQUIRE(good.size() > 4096);
  CHECK_THAT(damage(folder / "missing.so"), Contains("cannot be opened"));
  CHECK(damage(folder.path().string()) == "is a folder, not a shared library");
  CHECK(damage(write(folder / "empty.so", "")) == "is empty");
  CHECK(damage(write(folder / "short.so",
                     "\x7f"
                     "E")) == "is not an ELF shared library");
  CHECK(damage(write(folder / "text.so", "#!/bin/sh\necho hello\n")) == "is not an ELF shared library");
  CHECK_THAT(damage(write(folder / "header.so", good.substr(0, 40))), Contains("is truncated: its ELF header"));
  CHECK_THAT(damage(write(folder / "half.so", good.substr(0, good.size() / 2))), Contains("is truncated"));
  CHECK(damage("/proc/self/exe") != "");
  CHECK(damage(INTERFACE_LIBRARY) == "is not a Strata plugin (it has no section .strata)");
  REQUIRE(::mkfifo((folder / "pipe.so").c_str(), 0600) == 0);
  CHECK(damage(folder / "pipe.so") == "is not a regular file");

  const auto patched = [&](std::size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return write(folder / "patched.so", bytes);
  };
  CHECK(damage(patched(4, 1)) == "is not a 64-bit little-endian ELF library");
  CHECK(damage(patched(5, 2)) == "is not a 64-bit little-endian ELF library");
  CHECK(damage(patched(16, 1)) == "is an ELF file, but not a shared library");
  CHECK_THAT(damage(patched(18, 8)), Contains("was built for ELF machine 8, this host is machine"));
  CHECK(damage(patched(58, 0x20)) == "has a damaged section table");
  CHECK(damage(patched(62, '\xff')) == "has a damaged section table");
  std::string no_table = good;
  no_table.replace(40, 8, std::string(8, '\0'));
  no_table.replace(60, 4, std::string(4, '\0'));
  CHECK(damage(write(folder / "no_table.so", no_table)) == "has no section table (it was stripped)");
}

TEST_CASE("a file that may not be read says so") {
  const TemporaryFolder folder;
  const std::string path = write(folder / "secret.so", bytes_of(little));
  fs::permissions(path, fs::perms::none);
  fs::permissions(folder.path(), fs::perms::all);
  const bool is_root = ::geteuid() == 0;  // who may read everything
  if (is_root) REQUIRE(::seteuid(65534) == 0);
  const std::string message = damage(path);
  if (is_root) REQUIRE(::seteuid(0) == 0);
  CHECK(message == "cannot be opened: Permission denied");
}

TEST_CASE("each field of a manifest is checked") {
  const std::string good = read_elf_section(little, ".strata");
  Manifest manifest;
  CHECK_NOTHROW(parse_manifest(good, manifest));
  CHECK_NOTHROW(parse_manifest(with(good, "{", "{\"from_the_future\":[1],"), manifest));
  CHECK_THAT(refusal(""),
             StartsWith("has a manifest that cannot be read: it is not valid JSON: unexpected end of input") &&
                 EndsWith("at its byte 0"));
  CHECK(refusal("[]") == "has a manifest that cannot be read: it is []; an object { ... } is expected");
  const std::size_t half = good.find("\"state_version\"");
  CHECK_THAT(refusal(good.substr(0, half)),
             StartsWith("has a manifest that cannot be read: it is not valid JSON: unexpected end of input") &&
                 EndsWith("at its byte " + std::to_string(half)));
  const std::size_t text = good.find("little plugin");
  std::string latin = good;
  latin[text + 2] = '\xe9';
  CHECK_THAT(refusal(latin), Contains("it is not valid JSON: invalid string: ill-formed UTF-8 byte") &&
                                 EndsWith("at its byte " + std::to_string(text + 3)));
  for (const char* character : {"\\u001b[2J", "\\u007f", "\\u009b2J", "\\n"})
    CHECK_THAT(refusal(with(good, "little plugin", character)),
               Contains("field 'description' holds a control character"));
  CHECK_NOTHROW(parse_manifest(with(good, "little plugin", "gr\u00f6\u00dfere \u4e2d"), manifest));
  CHECK(refusal(with(good, "\"license\":", "\"license\":\"MIT\",\"license\":")) ==
        "has a manifest that cannot be read: the key 'license' occurs twice");
  CHECK_THAT(refusal(with(good, "\"unit\":", "\"unit\":\"\",\"unit\":")), Contains("the key 'unit' occurs twice"));
  CHECK_THAT(refusal(with(good, "\"format\":1", "\"format\":2")), Contains("format 2, this Strata reads format 1"));
  CHECK_THAT(refusal(with(good, "\"kind\":\"scheduler\"", "\"kind\":\"schedule\"")),
             Contains("unknown kind 'schedule': did you mean scheduler?"));
  CHECK_THAT(refusal(with(good, "\"name\":\"little\"", "\"name\":\"../little\"")),
             Contains("has the name '../little'"));
  CHECK_THAT(refusal(with(good, "\"abi\":\"" STRATA_ABI_TEXT "\"", "\"abi\":\"1\"")), Contains("field 'abi' is '1'"));
  CHECK_THAT(refusal(with(good, "\"sanitizer\":\"", "\"sanitizer\":\"thread and ")),
             Contains("was built with sanitizer"));
  CHECK_THAT(refusal(with(good, "\"cxx11_abi\":\"", "\"cxx11_abi\":\"not ")), Contains("_GLIBCXX_USE_CXX11_ABI not "));
  CHECK_THAT(refusal(with(good, "\"standard_library\":\"", "\"standard_library\":\"other ")),
             Contains("was built with the standard library other "));
  CHECK_THAT(refusal(with(good, "tolerance(1e-3)", "tolerance(2)")), Contains("the equivalence 'tolerance(2)'"));
  CHECK_THAT(refusal(with(good, "tolerance(1e-3)", "exact")), Contains("the equivalence 'exact'"));
  CHECK_THAT(refusal(with(good, "\"state_version\":3", "\"state_version\":-3")), Contains("'state_version'"));
  CHECK_THAT(refusal(with(good, "splits_backward", "tensor_parallel")),
             Contains("is a scheduler but declares 'tensor_parallel', a capability of a model"));
  CHECK_THAT(refusal(with(good, "\"name\":\"ratio\"", "\"name\":\"depth\"")), Contains("the option 'depth' twice"));
  CHECK_THAT(refusal(with(good, "\"options\":[", "\"options\":[7,")), Contains("an option that is not an object"));
  for (const char* field :
       {"format", "kind", "name", "version", "description", "author", "license", "capabilities", "equivalence",
        "state_version", "abi", "libtorch", "standard_library", "cxx11_abi", "sanitizer", "compiler", "options"}) {
    CHECK(refusal(with(good, std::string("\"") + field + "\":", "\"other\":")) ==
          "has a manifest without the field '" + std::string(field) + "'");
  }
  for (const char* field : {"type", "default", "limits", "unit", "documentation"}) {
    CHECK_THAT(refusal(with(good, std::string("\"") + field + "\":", "\"other\":")), Contains("without the field"));
  }
}

TEST_CASE("equivalences are read and written") {
  const std::string good = read_elf_section(little, ".strata");
  for (const char* text : {"bitwise", "reassociation", "tolerance(0.25)", "simulated(fp8 on CPU)"}) {
    Manifest manifest;
    parse_manifest(with(good, "tolerance(1e-3)", text), manifest);
    CHECK(to_string(manifest.equivalence) == text);
  }
}

TEST_CASE("an option's value may weaken the equivalence") {
  const std::string good = read_elf_section(little, ".strata");
  Manifest manifest;
  parse_manifest(with(good, "tolerance(1e-3)",
                      "reassociation, order=reverse: tolerance(0.1), eager=false: tolerance(0.2), eager=true: bitwise"),
                 manifest);
  CHECK(equivalences(manifest) ==
        "reassociation; tolerance(0.1) with order=reverse; tolerance(0.2) with eager=false; bitwise with eager=true");
  const auto promise = [&](const std::string& order, bool eager) {
    OptionValues options = default_options(manifest.options);
    options.set("order", order);
    options.set("eager", eager);
    return to_string(equivalence_of(manifest, options));
  };
  CHECK(promise("forward", true) == "reassociation");
  CHECK(promise("reverse", true) == "tolerance(0.1)");
  CHECK(promise("forward", false) == "tolerance(0.2)");
  CHECK(promise("reverse", false) == "tolerance(0.2)");
  for (const char* wrong : {"bitwise, order=sideways: reassociation", "bitwise, other=1: reassociation",
                            "bitwise, depth=7: reassociation", "bitwise, eager=yes: reassociation"})
    CHECK_THAT(refusal(with(good, "tolerance(1e-3)", wrong)), Contains("it has no such choice or switch"));
  for (const char* wrong : {"bitwise, order", "bitwise, order=reverse", "bitwise, order: bitwise", "bitwise, "})
    CHECK_THAT(refusal(with(good, "tolerance(1e-3)", wrong)), Contains("OPTION=VALUE: PROMISE"));
}

TEST_CASE("no bytes at all make the reader crash") {
  const std::string good = bytes_of(little);
  const int descriptor = ::memfd_create("mutated", MFD_CLOEXEC);
  REQUIRE(descriptor >= 0);
  std::mt19937 random(20261120);
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
  };
  std::size_t table_at = 0;
  good.copy(reinterpret_cast<char*>(&table_at), 8, 40);
  const std::size_t manifest_at = good.find("{\"format\"");
  REQUIRE(table_at < good.size());
  REQUIRE(manifest_at < good.size());

  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string bytes = good;
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) {
      const std::size_t regions[]{below(64), table_at + below(good.size() - table_at), manifest_at + below(1500),
                                  below(good.size())};
      static constexpr char favourites[]{0, 1, 0x7f, '\x80', '\xff'};
      bytes[std::min(regions[below(4)], bytes.size() - 1)] =
          below(2) == 0 ? favourites[below(sizeof favourites)] : static_cast<char>(below(256));
    }
    if (below(8) == 0) bytes.resize(below(bytes.size() + 1));
    REQUIRE(::ftruncate(descriptor, 0) == 0);
    REQUIRE(::pwrite(descriptor, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    try {
      Manifest manifest;
      parse_manifest(read_elf_section("/proc/self/fd/" + std::to_string(descriptor), ".strata"), manifest);
      ++accepted;
    } catch (const DamagedFile& error) {
      ++refused;
      if (std::string(error.what()).empty()) FAIL("a refusal without a reason");
    }
  }
  ::close(descriptor);
  CHECK(accepted > 100);
  CHECK(refused > 1000);
}

TEST_CASE("a plugin of any other ABI is refused, of an older minor too") {
  CHECK(abi_obstacle({2, 1}, {2, 1}).empty());
  CHECK(abi_obstacle({2, 0}, {2, 1}) ==
        "was built for plugin ABI 2.0, this Strata has 2.1; the two must be equal: rebuild the plugin");
  CHECK(abi_obstacle({1, 7}, {2, 1}) ==
        "was built for plugin ABI 1.7, this Strata has 2.1; the two must be equal: rebuild the plugin");
  for (const AbiVersion newer : {AbiVersion{2, 2}, AbiVersion{3, 0}})
    CHECK_THAT(abi_obstacle(newer, {2, 1}), Contains("update Strata or rebuild the plugin"));
}
