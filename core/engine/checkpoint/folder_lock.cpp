#include "checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/checksum.hpp"
#include "group/process_identity.hpp"
#include "interface/src/system_error.hpp"
#include "text/printable.hpp"

namespace strata::checkpoint {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// As the launcher calls it, for a person who looks for the run. The names of --nproc are secrets, see
// group/store_server.hpp.
std::string run_name() {
  for (const char* const key : {"SLURM_JOB_ID", "PMIX_NAMESPACE"})
    if (const char* const name = std::getenv(key)) return text::one_line(name);
  return "";
}

std::string own_description() {
  const std::string run = run_name();
  return fmt::format("host {}, process {}{}", text::one_line(host_name()), ::getpid(),
                     run.empty() ? "" : ", run " + run);
}

std::uint32_t own_place() {
  static const std::uint64_t place = checksum_of(group::own_identity().host);
  return static_cast<std::uint32_t>(place);
}

// The text that the holder wrote; possibly unfinished.
std::string read_description(int handle) {
  std::array<char, 512> text{};
  const ssize_t got = ::pread(handle, text.data(), text.size(), 0);
  std::string line(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  line.resize(std::min(line.find('\n'), line.size()));
  return line.empty() ? "an unknown process" : text::one_line(line);
}

// True if the file is still the one of that name, and not one that its holder has removed meanwhile.
bool is_current(int handle, const std::filesystem::path& path) {
  struct stat mine {
  }, named{};
  return ::fstat(handle, &mine) == 0 && mine.st_nlink > 0 && ::stat(path.c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

std::optional<std::uint64_t> parse_hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Owner new_owner() {
  Owner owner{own_place(), static_cast<std::uint32_t>(::getpid()), 0};
  if (::getrandom(&owner.nonce, sizeof owner.nonce, 0) != sizeof owner.nonce)
    throw EnvironmentError("the system provides no random numbers: {}", describe_errno(errno));
  return owner;
}

std::string format_owner(const Owner& owner) {
  return fmt::format("{:08x}{:08x}{:016x}", owner.place, owner.process, owner.nonce);
}

std::optional<Owner> parse_owner(const std::string& text) {
  if (text.size() != 32) return std::nullopt;
  const auto first = parse_hexadecimal(std::string_view(text).substr(0, 16));
  const auto nonce = parse_hexadecimal(std::string_view(text).substr(16));
  if (!first || !nonce) return std::nullopt;
  const Owner owner{static_cast<std::uint32_t>(*first >> 32U), static_cast<std::uint32_t>(*first), *nonce};
  return format_owner(owner) == text ? std::optional(owner) : std::nullopt;
}

bool is_of_this_host(const Owner& owner) {
  return !group::own_identity().host.empty() && owner.place == own_place();
}

bool is_gone(const Owner& owner) {
  if (!is_of_this_host(owner)) return false;
  std::error_code error;
  return !std::filesystem::exists("/proc/" + std::to_string(owner.process), error) && !error;
}

FolderLock::FolderLock(const std::filesystem::path& folder) : path_(folder / ".lock") {
  for (;;) {
    handle_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (handle_ < 0) throw_cannot_open(path_.string(), "cannot be made", errno);
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(handle_, F_OFD_SETLK, &whole) != 0) {
      const int error = errno;
      const bool by_another = error == EAGAIN || error == EACCES;
      const bool unknown_here = error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
      if (!by_another && !unknown_here) {
        ::close(std::exchange(handle_, -1));
        throw EnvironmentError("{}: cannot be locked: {}", path_.string(), describe_errno(error));
      }
      taken_ = by_another ? Taken::ByAnother : Taken::NotSupported;
      text_ = taken_ == Taken::ByAnother ? read_description(handle_) : describe_errno(error);
      break;
    }
    if (is_current(handle_, path_)) {
      taken_ = Taken::Yes;
      break;
    }
    ::close(std::exchange(handle_, -1));
  }
  if (taken_ == Taken::ByAnother) return;
  const std::string text = own_description() + "\n";
  if (::ftruncate(handle_, 0) != 0 || ::pwrite(handle_, text.data(), text.size(), 0) != std::ssize(text)) {
    const int error = errno;
    if (error != ENOSPC && error != EDQUOT)  // a full disk is reported by the first save
      throw EnvironmentError("{}: cannot be written: {}", path_.string(), describe_errno(error));
  }
}

FolderLock::~FolderLock() {
  if (handle_ < 0) return;
  if (taken_ != Taken::ByAnother) ::unlink(path_.c_str());
  ::close(handle_);
}

double FolderLock::age_s(const std::filesystem::path& path) const {
  struct stat now {
  }, then{};
  if (::fstat(handle_, &now) != 0 || ::stat(path.c_str(), &then) != 0) return 0.0;
  return std::difftime(now.st_mtime, then.st_mtime);
}

}  // namespace strata::checkpoint
