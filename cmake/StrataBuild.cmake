# Language level, warnings and sanitizers of everything built here.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# A project that Strata is a part of (add_subdirectory) chooses its own build type, linker and compiler launcher.
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
endif()
# -O3 helps in loops over elements, which request it (strata_vector_code, the toolbox); elsewhere it takes an eighth to a
# quarter more of the compile time.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

# [Note: Headers parsed once] To parse libtorch's, nlohmann's and the standard library's headers takes longer than to compile most of
# our files. So they are precompiled, and the files of a folder, up to ten of them, are compiled as one (CMake's unity build): from
# nothing that takes less than half the time. Turn STRATA_UNITY off to work on one file; the preset debug does, so that each file
# is known to compile separately. Headers are shared between targets that differ in definitions, which clang refuses to do.
set(_strata_gnu OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(_strata_gnu ON)
endif()
option(STRATA_PRECOMPILE "Parse the largest headers once (g++)" ${_strata_gnu})
option(STRATA_UNITY "Compile the files of a folder together" ON)
set(STRATA_PARSED_HEADERS <ATen/core/Tensor.h> <nlohmann/json.hpp> <algorithm> <array> <chrono> <cmath> <condition_variable>
  <cstdint> <cstring> <filesystem> <fstream> <functional> <iostream> <limits> <map> <memory> <mutex> <numeric> <optional> <random>
  <set> <sstream> <stdexcept> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>)
add_compile_options(-pthread)   # headers can be shared only by targets that agree in it

# strata_parsed_headers(target [header ...] [OPTIONS option ...]): STRATA_PARSED_HEADERS and those named, parsed once, with these options.
function(strata_parsed_headers target)
  cmake_parse_arguments(PARSE_ARGV 1 P "" "" "OPTIONS")
  set(nothing ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  file(CONFIGURE OUTPUT ${nothing} CONTENT "// Headers are precompiled with this file.\n")
  if(NOT STRATA_PRECOMPILE)
    return()
  endif()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${nothing})
  target_link_libraries(${target} PRIVATE strata::torch_cpu strata::build nlohmann_json::nlohmann_json)
  target_compile_options(${target} PRIVATE ${P_OPTIONS})
  target_precompile_headers(${target} PRIVATE ${STRATA_PARSED_HEADERS} ${P_UNPARSED_ARGUMENTS})
endfunction()

# strata_precompile(target [header ...] [REUSE target] [EXCEPT file ...]): the target's sources see the headers that another target's
# strata_parsed_headers parsed; without REUSE it parses them for itself, and those named. Whoever reuses must have the same options of
# code generation. What strata_add_plugin made has an -include of its own, before which g++ must see the headers: CMake's way puts them
# after it, and g++ would parse them once more.
function(strata_precompile target)
  cmake_parse_arguments(PARSE_ARGV 1 P "" "REUSE" "EXCEPT")
  if(NOT STRATA_PRECOMPILE)
    return()
  endif()
  get_target_property(options ${target} COMPILE_OPTIONS)
  if(P_REUSE AND "${options}" MATCHES "-include ")
    get_target_property(folder ${P_REUSE} BINARY_DIR)
    target_compile_options(${target} BEFORE PRIVATE
      "SHELL:-Winvalid-pch -include ${folder}/CMakeFiles/${P_REUSE}.dir/cmake_pch.hxx")
    add_dependencies(${target} ${P_REUSE})
  elseif(P_REUSE)
    target_precompile_headers(${target} REUSE_FROM ${P_REUSE})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)   # its files would otherwise be compiled with -fPIE, and the headers are not
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
  else()
    target_precompile_headers(${target} PRIVATE ${STRATA_PARSED_HEADERS} ${P_UNPARSED_ARGUMENTS})
  endif()
  set_source_files_properties(${P_EXCEPT} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# strata_unity(target): the target's sources are compiled together, folder by folder; those with compile options of their own stay alone.
function(strata_unity target)
  if(STRATA_UNITY)
    get_target_property(files ${target} SOURCES)
    list(FILTER files EXCLUDE REGEX "^\\$<")
    foreach(file IN LISTS files)
      get_filename_component(folder ${file} DIRECTORY)
      string(MAKE_C_IDENTIFIER "x${folder}" folder)
      math(EXPR batch_${folder} "0${batch_${folder}} + 1")
      math(EXPR batch "${batch_${folder}} / 10")
      set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${folder}_${batch})
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
endfunction()

# A script calls the compiler, through ccache where there is one, so that no command names ccache: ninja builds again whatever has another
# command, and tests/run.sh installs ccache after examples/quickstart.sh has built. CCACHE_SLOPPINESS is what ccache's manual asks for where
# headers are precompiled.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(STRATA_CCACHE ccache)
  set(_strata_call "exec")
  if(STRATA_CCACHE)
    set(_strata_call "CCACHE_SLOPPINESS=pch_defines,time_macros exec ${STRATA_CCACHE}")
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_BINARY_DIR}/call_compiler)
  file(CONFIGURE OUTPUT ${CMAKE_CXX_COMPILER_LAUNCHER} CONTENT "#!/bin/sh\n${_strata_call} \"$@\"\n" @ONLY)
  file(CHMOD ${CMAKE_CXX_COMPILER_LAUNCHER} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endif()

find_package(Threads REQUIRED)
# The compiler's own linker. Of Debian 12's others mold 1.10 never ended linking one plugin and placed relro wrongly, and
# in the libstrata.so that lld 14 linked an exception ended the program. ld takes a quarter of a second for a plugin.

# Warnings are errors in our own code; libtorch's headers come in as system headers (see StrataTorch).
add_library(strata_build INTERFACE)
add_library(strata::build ALIAS strata_build)
target_compile_options(strata_build INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  -Woverloaded-virtual -Werror -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow>)  # g++ 12 reports std::string concatenation wrongly
if(STRATA_SANITIZE)
  target_compile_options(strata_build INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # and std::regex, with a sanitizer
  list(JOIN STRATA_SANITIZE "," _strata_sanitize)
  add_compile_options(-fsanitize=${_strata_sanitize} -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1)
  add_link_options(-fsanitize=${_strata_sanitize})
endif()

# strata_openmp: at::parallel_for is serial in code that is compiled without OpenMP. [Note: One OpenMP] libtorch runs on GCC's run-time
# library. Clang's code would bring a second one, with threads of its own that compete with libtorch's, and every plugin that links the
# toolbox would have to link it, whichever compiler it has. So what clang compiles here is not parallel.
add_library(strata_openmp INTERFACE)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(strata_openmp INTERFACE OpenMP::OpenMP_CXX)
else()
  message(WARNING "Built with ${CMAKE_CXX_COMPILER_ID}, Strata's own loops (the CPU's optimizer step among them) run on one thread: "
    "its OpenMP library is another than libtorch's. Build with g++ for speed.")
endif()
