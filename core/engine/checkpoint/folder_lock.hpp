// Who writes to a folder of checkpoints: a lock that holds across hosts, and owners in the names of temporaries.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace strata::checkpoint {

// A process, as the names of its temporaries tell it.
struct Owner {
  std::uint32_t place = 0;    // host and process namespace
  std::uint32_t process = 0;  // its number there
  std::uint64_t nonce = 0;    // of this object alone
  bool operator==(const Owner&) const = default;
};
Owner new_owner();
std::string format_owner(const Owner& owner);  // 32 hexadecimal digits
std::optional<Owner> parse_owner(const std::string& text);
bool is_of_this_host(const Owner& owner);  // and of this container
// True if the owner's process has ended, as far as this host can tell: not for one of another host or container.
bool is_gone(const Owner& owner);

// An exclusive lock on the file `.lock` of a folder. It is a record lock of the open file (fcntl), which NFS and Lustre
// take to their server, so that it holds across hosts; the kernel drops it when its process ends. The file tells who
// holds it, and goes when the lock is given back. [one thread]
class FolderLock {
 public:
  enum class Taken { Yes, ByAnother, NotSupported /* by the file system */ };

  // Takes the lock if it is free. Throws UserError when the file cannot be made, EnvironmentError when the disk fails.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Call after the folder was renamed to `folder`.
  void follow(const std::filesystem::path& folder) { path_ = folder / ".lock"; }

  Taken taken() const { return taken_; }
  // ByAnother: what the file tells of it, "host NAME, process 7, run NAME". NotSupported: the system's reason.
  const std::string& text() const { return text_; }
  // Seconds since a file of the folder was changed, by the clock that stamps files there.
  double age_s(const std::filesystem::path& path) const;

 private:
  std::filesystem::path path_;
  int handle_ = -1;
  Taken taken_ = Taken::ByAnother;
  std::string text_;
};

}  // namespace strata::checkpoint
