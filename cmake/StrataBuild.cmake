# Language level, warnings and sanitizers of everything built here.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

# libtorch's tensor header takes longer to parse than most of our files to compile.
option(STRATA_PRECOMPILE "Parse libtorch's headers once a library" ON)
# strata_precompile(target header ... EXCEPT file ...): the target's sources, but for those after EXCEPT, see the headers parsed once.
# What includes none of them is better left out: to load them takes as long as to compile a small file.
function(strata_precompile target)
  cmake_parse_arguments(PARSE_ARGV 1 P "" "" "EXCEPT")
  if(STRATA_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${P_UNPARSED_ARGUMENTS})
    set_source_files_properties(${P_EXCEPT} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(STRATA_CCACHE ccache)
  if(STRATA_CCACHE)
    # What ccache's manual asks for where headers are precompiled; one word, so that it can be handed on in a variable.
    set(_strata_launcher ${PROJECT_BINARY_DIR}/compile_with_ccache)
    file(CONFIGURE OUTPUT ${_strata_launcher} CONTENT "#!/bin/sh\nCCACHE_SLOPPINESS=pch_defines,time_macros exec ${STRATA_CCACHE} \"$@\"\n" @ONLY)
    file(CHMOD ${_strata_launcher} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${_strata_launcher})
  endif()
endif()

find_package(Threads REQUIRED)
find_program(STRATA_MOLD mold)
if(STRATA_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Warnings are errors in our own code; libtorch's headers come in as system headers (see StrataTorch).
add_library(strata_build INTERFACE)
add_library(strata::build ALIAS strata_build)
target_compile_options(strata_build INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  -Woverloaded-virtual -Werror -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow>)  # g++ 12 reports std::string concatenation wrongly
if(STRATA_SANITIZE)
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
