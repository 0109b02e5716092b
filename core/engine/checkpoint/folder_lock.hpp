// Exclusive writing to a folder of checkpoints: a lock that works across hosts, and owners in the names of temporaries.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace strata::checkpoint {

// A process, as encoded in the names of its temporaries.
struct Owner {
  std::uint32_t place = 0;    // host and process namespace
  std::uint32_t process = 0;  // process id there
  std::uint64_t nonce = 0;    // unique to this object
  bool operator==(const Owner&) const = default;
};
Owner new_owner();
std::string format_owner(const Owner& owner);  // 32 hexadecimal digits
std::optional<Owner> parse_owner(const std::string& text);
bool is_of_this_host(const Owner& owner);  // true also requires this container
// True if the owner's process is known to have ended; false for a process of another host or container.
bool is_gone(const Owner& owner);

// An exclusive lock on the file `.lock` of a folder. It is a record lock of the open file (fcntl), which NFS and Lustre
// take to their server, so that it works across hosts; the kernel drops it when its process ends. The file names the
// holder, and is removed when the lock is released. [one thread]
class FolderLock {
 public:
  enum class Taken { Yes, ByAnother, NotSupported /* by the file system */ };

  // Takes the lock if it is free. Throws UserError when the file cannot be made, EnvironmentError when the disk fails.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Updates the path after the folder was renamed to `folder`.
  void follow(const std::filesystem::path& folder) { path_ = folder / ".lock"; }

  Taken taken() const { return taken_; }
  // Returns the holder, "host NAME, process 7, run NAME" (ByAnother), or the system's reason (NotSupported).
  const std::string& text() const { return text_; }
  // Returns the seconds since a file of the folder was changed, by the clock that stamps files there.
  double age_s(const std::filesystem::path& path) const;

 private:
  std::filesystem::path path_;
  int handle_ = -1;
  Taken taken_ = Taken::ByAnother;
  std::string text_;
};

}  // namespace strata::checkpoint
