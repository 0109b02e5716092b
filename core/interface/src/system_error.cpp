#include "system_error.hpp"

#include <cerrno>
#include <system_error>

namespace strata {
namespace {

const char* remedy(int error) {
  switch (error) {
    case EAGAIN:
      return "; the limit of processes and threads is reached: raise `ulimit -u` or the container's limit of them, or "
             "use fewer ranks";
    case EMFILE:
      return "; this process has reached its limit of open files: raise `ulimit -n`";
    case ENFILE:
      return "; this machine has reached its limit of open files";
    case ENOSPC:
    case EDQUOT:
      return "; the disk, or its table of files, is full: free some space or use another disk";
    case EFBIG:
      return "; the file exceeds `ulimit -f` or the maximum size of its file system: raise the limit or use another "
             "disk";
    case ENOMEM:
      return "; this machine is out of memory";
    default:
      return "";
  }
}

}  // namespace

std::string describe_errno(int error) {
  return std::generic_category().message(error) + remedy(error);
}

bool is_of_the_machine(int error) {
  switch (error) {
    case EACCES:
    case EBUSY:
    case EEXIST:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case EMLINK:
    case ENAMETOOLONG:
    case ENODEV:
    case ENOENT:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENXIO:
    case EOPNOTSUPP:
    case EOVERFLOW:
    case EPERM:
    case EROFS:
    case ETXTBSY:
    case EXDEV:
      return false;
    default:
      return true;
  }
}

}  // namespace strata
