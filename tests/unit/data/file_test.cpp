#include "data/file.hpp"

#include <sys/resource.h>
#include <strata/error.hpp>

#include <csignal>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"

using namespace strata::data;
using strata::EnvironmentError;
using strata::UserError;

TEST_CASE("an output file appears whole or not at all") {
  const TemporaryFolder folder;
  {
    OutputFile dropped(folder / "a");
    dropped.write_at(0, "abc", 3);
    CHECK_FALSE(std::filesystem::exists(folder / "a"));
  }
  CHECK(folder.names() == 0);
  OutputFile kept(folder / "a");
  kept.write_at(3, "def", 3);
  kept.write_at(0, "abc", 3);
  kept.finish();
  CHECK(read_file(folder / "a") == "abcdef");
  CHECK(folder.names() == 1);
  CHECK_THAT(error_of<UserError>([&] { OutputFile again(folder / "a"); }), Contains("exists already"));
  OutputFile replacing(folder / "a", Existing::Replace);
  replacing.write_at(0, "x", 1);
  CHECK(read_file(folder / "a") == "abcdef");
  replacing.finish();
  CHECK(read_file(folder / "a") == "x");
  CHECK_THAT(error_of<UserError>([&] { OutputFile there(folder / "none/a"); }), Contains("does not exist"));
  CHECK_THAT(error_of<UserError>([&] { OutputFile there(folder.path().string(), Existing::Replace); }),
             Contains("is a folder"));
  OutputFile late(folder / "b");
  write_file(folder / "b", "theirs");
  CHECK_THAT(error_of<UserError>([&] { late.finish(); }), Contains("created by another process"));
  CHECK(read_file(folder / "b") == "theirs");
}

TEST_CASE("a file that may not grow is an error that leaves nothing behind") {
  const TemporaryFolder folder;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};  // the kernel refuses what goes past it
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string reserving, writing;
  try {
    OutputFile file(folder / "a");
    file.reserve(1 << 20);
  } catch (const EnvironmentError& error) {
    reserving = error.what();
  }
  try {
    OutputFile file(folder / "a");
    const std::string much(1 << 20, 'x');
    file.write_at(0, much.data(), much.size());
  } catch (const EnvironmentError& error) {
    writing = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(reserving, Contains("reserving 1.00 MiB failed") && Contains("ulimit -f"));
  CHECK_THAT(writing, Contains("writing") && Contains("ulimit -f"));
  CHECK(folder.names() == 0);
}
