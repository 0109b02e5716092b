#include "interface/src/system_error.hpp"

#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <cerrno>
#include <map>

#include "error_of.hpp"

using namespace strata;

namespace {

enum class Type { Users, Machines };

// Errno -> type of the error, and a part of the words about what to do.
const std::map<int, std::pair<Type, std::string>> expected{
    {EACCES, {Type::Users, ""}},
    {EEXIST, {Type::Users, ""}},
    {EISDIR, {Type::Users, ""}},
    {ELOOP, {Type::Users, ""}},
    {ENAMETOOLONG, {Type::Users, ""}},
    {ENOENT, {Type::Users, ""}},
    {ENOTDIR, {Type::Users, ""}},
    {ENOTEMPTY, {Type::Users, ""}},
    {EPERM, {Type::Users, ""}},
    {EROFS, {Type::Users, ""}},
    {EAGAIN, {Type::Machines, "ulimit -u"}},
    {EDQUOT, {Type::Machines, "free some space"}},
    {EFBIG, {Type::Machines, "ulimit -f"}},
    {EINTR, {Type::Machines, ""}},
    {EIO, {Type::Machines, ""}},
    {EMFILE, {Type::Machines, "ulimit -n"}},
    {ENFILE, {Type::Machines, "limit of open files"}},
    {ENOLCK, {Type::Machines, ""}},
    {ENOMEM, {Type::Machines, "out of memory"}},
    {ENOSPC, {Type::Machines, "free some space"}},
    {ESTALE, {Type::Machines, ""}},
    {ETIMEDOUT, {Type::Machines, ""}},
};

}  // namespace

TEST_CASE("each errno becomes one type of error, with the system's words") {
  for (int error = 1; error < 134; ++error) {
    CAPTURE(error);
    const auto open = [&] { throw_cannot_open("a path", "cannot be opened", error); };
    const bool machines = is_of_the_machine(error);
    const std::string text = machines ? error_of<EnvironmentError>(open) : error_of<UserError>(open);
    CHECK(text == "a path: cannot be opened: " + describe_errno(error));
    if (const auto found = expected.find(error); found != expected.end()) {
      CHECK(machines == (found->second.first == Type::Machines));
      CHECK_THAT(text, Contains(found->second.second));
    }
  }
}

TEST_CASE("only a full disk is told to be full") {
  for (int error = 1; error < 134; ++error)
    CHECK((describe_errno(error).find("is full") != std::string::npos) == (error == ENOSPC || error == EDQUOT));
}
