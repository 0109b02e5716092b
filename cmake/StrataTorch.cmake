# Imported targets for libtorch, taken from the folder of an unpacked wheel or of a libtorch archive.
#   strata::torch_cpu   libtorch_cpu + libc10: all that the core and most plugins need
#   strata::torch_cuda  the same and libtorch_cuda: CUDA plugins only
# [Note: not find_package(Torch)] Its targets link libtorch_cuda into everything, and a machine without a GPU has none of the
# libraries that one needs. [Note: -idirafter] The wheel carries a newer fmt than the one Debian's spdlog was compiled with;
# searched after the system's folders it is never the one that spdlog finds.
# The file torch_version next to this one, and to bootstrap.sh, holds the version of libtorch.
# It is looked for as bin/strata looks for it (core/tools/launcher): STRATA_TORCH_DIR, here also as a CMake variable; in an installed tree the
# folder that `cmake --install` wrote down, STRATA_TORCH_RECORDED; where cmake/bootstrap.sh unpacks it, for the user or for all users.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/torch_version _strata_wanted LIMIT_COUNT 1)
if(NOT STRATA_TORCH_DIR)
  if(NOT "$ENV{STRATA_TORCH_DIR}" STREQUAL "")
    set(_strata_places "$ENV{STRATA_TORCH_DIR}")
  else()
    set(_strata_cache "$ENV{XDG_CACHE_HOME}")
    if(_strata_cache STREQUAL "")
      set(_strata_cache "$ENV{HOME}/.cache")
    endif()
    set(_strata_places ${STRATA_TORCH_RECORDED} ${_strata_cache}/strata/torch-${_strata_wanted}/torch /opt/strata/torch-${_strata_wanted}/torch)
  endif()
  foreach(_place IN LISTS _strata_places)
    if(NOT STRATA_TORCH_DIR AND EXISTS ${_place}/lib/libtorch_cpu.so)
      set(STRATA_TORCH_DIR ${_place})
    endif()
  endforeach()
else()
  set(_strata_places ${STRATA_TORCH_DIR})
endif()
if(NOT STRATA_TORCH_DIR OR NOT EXISTS ${STRATA_TORCH_DIR}/lib/libtorch_cpu.so)
  if(NOT STRATA_TORCH_COMMAND)
    set(STRATA_TORCH_COMMAND cmake/bootstrap.sh)
  endif()
  list(JOIN _strata_places ", " _strata_places)
  message(FATAL_ERROR "No libtorch ${_strata_wanted} (lib/libtorch_cpu.so) in: ${_strata_places}. Run ${STRATA_TORCH_COMMAND}, which unpacks it into "
    "the cache folder, or set STRATA_TORCH_DIR to the folder of an existing one.")
endif()
set(STRATA_TORCH_DIR ${STRATA_TORCH_DIR} CACHE PATH "The folder that holds libtorch's lib and include")
file(STRINGS ${STRATA_TORCH_DIR}/include/torch/headeronly/version.h _strata_torch_lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" STRATA_TORCH_VERSION "${_strata_torch_lines}")

add_library(strata::torch_cpu INTERFACE IMPORTED GLOBAL)
foreach(_dir include include/torch/csrc/api/include)
  target_compile_options(strata::torch_cpu INTERFACE "SHELL:-idirafter ${STRATA_TORCH_DIR}/${_dir}")
endforeach()
get_filename_component(_strata_wheel ${STRATA_TORCH_DIR} DIRECTORY)
file(GLOB STRATA_CUDA_RUNTIME_DIR LIST_DIRECTORIES true ${_strata_wheel}/nvidia/cu13/lib)
# libtorch_cpu's operators register from static initialisers: without --no-as-needed the linker drops it.
target_link_options(strata::torch_cpu INTERFACE -L${STRATA_TORCH_DIR}/lib "SHELL:-Wl,--push-state,--no-as-needed -ltorch_cpu -lc10 -Wl,--pop-state"
  -Wl,-rpath-link,${STRATA_TORCH_DIR}/lib)
if(STRATA_CUDA_RUNTIME_DIR)
  target_link_options(strata::torch_cpu INTERFACE -Wl,-rpath-link,${STRATA_CUDA_RUNTIME_DIR})
endif()
set(STRATA_TORCH_RPATH ${STRATA_TORCH_DIR}/lib ${STRATA_CUDA_RUNTIME_DIR})   # where what is linked to it finds it when it runs

# libtorch_cuda's own needs (cuBLAS, cuDNN, NCCL, ...) may be absent where we build: they are the run's business.
if(EXISTS ${STRATA_TORCH_DIR}/lib/libtorch_cuda.so)
  add_library(strata_torch_cuda INTERFACE)
  add_library(strata::torch_cuda ALIAS strata_torch_cuda)
  target_link_libraries(strata_torch_cuda INTERFACE strata::torch_cpu)
  target_link_options(strata_torch_cuda INTERFACE "SHELL:-Wl,--push-state,--no-as-needed -ltorch_cuda -lc10_cuda -Wl,--pop-state"
    -Wl,--unresolved-symbols=ignore-in-shared-libs)
endif()
