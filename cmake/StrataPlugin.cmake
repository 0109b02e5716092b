# strata_add_plugin(name KIND kind VERSION version DESCRIPTION text AUTHOR name LICENSE id
#                   [CAPABILITIES capability ...] [EQUIVALENCE promise] [EQUIVALENCE_WITH "option=value: promise" ...] [STATE_VERSION number] [OUTPUT_NAME name]
#                   SOURCES file ... [LINK target ...])
# One plugin is one shared library, target strata_<kind>_<name>, that exports its entry function only. The identity given here
# reaches the source as macros and lies, with the options' schema, in the manifest that STRATA_PLUGIN writes into section .strata.
#   KIND          device, communicator, partitioner, precision, scheduler, offload, optimizer, model, data, learning_rate
#   CAPABILITIES  of <strata/capability.hpp>
#   EQUIVALENCE   what results must equal: bitwise (default), reassociation, tolerance(1e-3) or simulated(reference)
#   EQUIVALENCE_WITH  the same where an option, a choice or a switch, has this value: "compress=true: tolerance(1e-2)"
#   STATE_VERSION of what the plugin's save() writes; 1 unless given
#   OUTPUT_NAME   of the file: lib<OUTPUT_NAME>.so; strata_<kind>_<name> unless given, so that plugins of all kinds fit in one folder
#   LINK          libraries in addition to the interface and the toolbox; a static one stays private to the plugin
#
# strata_add_plugin_test(name PLUGIN kind/name SOURCES file ... [LINK target ...])
# After the project's own enable_testing(). A unit test of a plugin that strata_add_plugin made, with Catch2 and strata::fakes; sources include "catch.hpp" and open the library
# PLUGIN_FILE. If the program `strata` lies next to this package, `strata plugins check` of the library is a test too. Without Catch2
# the rest is built and tested, and this test counts as skipped.
#
# strata_vector_code(file ...): loops that the compiler turns into vector code (see <strata/vector_clones.hpp>). No fused
# multiply-add, so that every instruction set gives equal bits. Headers parsed with other options are parsed again.
#
# Used by the source tree and by the installed package alike: nothing here refers to a path outside this folder.
set(STRATA_PLUGIN_EXPORTS ${CMAKE_CURRENT_LIST_DIR}/plugin_exports.map)
set(STRATA_PLUGIN_TESTING ${CMAKE_CURRENT_LIST_DIR}/testing)   # of an installed package only
set(STRATA_PLUGIN_KINDS device communicator partitioner precision scheduler offload optimizer model data learning_rate)

function(strata_vector_code)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off;-Wno-invalid-pch"
    SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# The changes by STRATA_COMPRESSION_OPTIONS of the toolbox, for EQUIVALENCE_WITH of a partitioner that has them.
set(STRATA_COMPRESSION_EQUIVALENCE "weights_on_wire=int8: tolerance(0.02)" "gradients_on_wire=int8: tolerance(0.02)"
  "gradients_on_wire=int4: tolerance(0.5)")

# CAPABILITIES of a model whose layers are the toolbox's decoder blocks.
set(STRATA_DECODER_CAPABILITIES splittable_backward tensor_parallel)

function(strata_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 P "" "KIND;VERSION;DESCRIPTION;AUTHOR;LICENSE;EQUIVALENCE;STATE_VERSION;OUTPUT_NAME"
    "CAPABILITIES;EQUIVALENCE_WITH;SOURCES;LINK")
  foreach(required KIND VERSION DESCRIPTION AUTHOR LICENSE SOURCES)
    if("${P_${required}}" STREQUAL "")
      message(FATAL_ERROR "strata_add_plugin(${name}): ${required} is missing")
    endif()
  endforeach()
  if(P_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "strata_add_plugin(${name}): unknown arguments ${P_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT P_KIND IN_LIST STRATA_PLUGIN_KINDS)
    message(FATAL_ERROR "strata_add_plugin(${name}): KIND is ${P_KIND}, kinds are ${STRATA_PLUGIN_KINDS}")
  endif()
  if(NOT name MATCHES "^[a-z0-9][a-z0-9_]*$")
    message(FATAL_ERROR "strata_add_plugin(${name}): names are made of a-z, 0-9 and _, and do not begin with _")
  endif()
  foreach(text VERSION DESCRIPTION AUTHOR LICENSE)
    if("${P_${text}}" MATCHES "[\"\\\n]")
      message(FATAL_ERROR "strata_add_plugin(${name}): ${text} may hold no double quote, backslash or line break")
    endif()
  endforeach()
  if("${P_EQUIVALENCE}" STREQUAL "")
    set(P_EQUIVALENCE bitwise)
  endif()
  if("${P_STATE_VERSION}" STREQUAL "")
    set(P_STATE_VERSION 1)
  endif()
  set(promise "(bitwise|reassociation|tolerance\\([0-9.e-]+\\)|simulated\\([A-Za-z0-9_ ./-]+\\))$")
  if(NOT P_EQUIVALENCE MATCHES "^${promise}")
    message(FATAL_ERROR "strata_add_plugin(${name}): EQUIVALENCE is ${P_EQUIVALENCE}; it is bitwise, reassociation, "
      "tolerance(bound) or simulated(reference)")
  endif()
  foreach(with IN LISTS P_EQUIVALENCE_WITH)
    if(NOT with MATCHES "^[a-z0-9_]+=[A-Za-z0-9_.-]+: ${promise}")
      message(FATAL_ERROR "strata_add_plugin(${name}): EQUIVALENCE_WITH is '${with}'; it is 'option=value: promise', the "
        "promise as in EQUIVALENCE")
    endif()
    string(APPEND P_EQUIVALENCE ", ${with}")
  endforeach()

  set(target strata_${P_KIND}_${name})
  add_library(${target} MODULE ${P_SOURCES})
  list(JOIN P_CAPABILITIES "," capabilities)
  # A header, not definitions on the command line: texts may hold semicolons, percent signs, apostrophes.
  set(identity ${CMAKE_CURRENT_BINARY_DIR}/${target}_identity.h)
  file(CONFIGURE OUTPUT ${identity} @ONLY CONTENT [[
#define STRATA_PLUGIN_NAME "@name@"
#define STRATA_PLUGIN_KIND "@P_KIND@"
#define STRATA_PLUGIN_VERSION "@P_VERSION@"
#define STRATA_PLUGIN_DESCRIPTION "@P_DESCRIPTION@"
#define STRATA_PLUGIN_AUTHOR "@P_AUTHOR@"
#define STRATA_PLUGIN_LICENSE "@P_LICENSE@"
#define STRATA_PLUGIN_CAPABILITIES "@capabilities@"
#define STRATA_PLUGIN_EQUIVALENCE "@P_EQUIVALENCE@"
#define STRATA_PLUGIN_STATE_VERSION @P_STATE_VERSION@
]])
  target_compile_options(${target} PRIVATE "SHELL:-include ${identity}")
  target_link_libraries(${target} PRIVATE strata::plugin ${P_LINK})
  if(TARGET strata::build)
    target_link_libraries(${target} PRIVATE strata::build)
  endif()
  # --exclude-libs: a static library linked in stays private to the plugin.
  target_link_options(${target} PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL
    -Wl,--version-script=${STRATA_PLUGIN_EXPORTS})
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    PREFIX lib SUFFIX .so INSTALL_RPATH "$ORIGIN/../.." LINK_DEPENDS ${STRATA_PLUGIN_EXPORTS})
  if(P_OUTPUT_NAME)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${P_OUTPUT_NAME})
  endif()
  if(STRATA_PLUGIN_OUTPUT_DIRECTORY)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${STRATA_PLUGIN_OUTPUT_DIRECTORY})
  endif()
  if(STRATA_PLUGIN_INSTALL)
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/strata/plugins COMPONENT runtime)
  endif()
endfunction()

function(strata_add_plugin_test name)
  cmake_parse_arguments(PARSE_ARGV 1 T "" "PLUGIN" "SOURCES;LINK")
  string(REPLACE "/" "_" target "strata_${T_PLUGIN}")
  if(NOT TARGET ${target})
    message(FATAL_ERROR "strata_add_plugin_test(${name}): PLUGIN is '${T_PLUGIN}'; it is the kind/name of a plugin that "
      "strata_add_plugin was called for before")
  endif()
  if("${T_SOURCES}" STREQUAL "" OR T_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "strata_add_plugin_test(${name}): SOURCES must be given, and '${T_UNPARSED_ARGUMENTS}' is no argument")
  endif()
  find_program(STRATA_PROGRAM strata HINTS ${STRATA_PLUGIN_TESTING}/../../../../bin NO_DEFAULT_PATH)
  if(STRATA_PROGRAM)
    add_test(NAME ${name}_conformance COMMAND ${STRATA_PROGRAM} plugins check $<TARGET_FILE:${target}>)
  else()
    message(STATUS "strata is not installed beside its SDK: `strata plugins check` is not among the tests")
  endif()
  find_package(Catch2 2.13 QUIET)
  if(NOT Catch2_FOUND)
    set(reason "Catch2 is not installed (Debian: catch2): ${name} is not built")
    message(STATUS ${reason})
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo ${reason})
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "Catch2 is not installed")
    return()
  endif()
  add_executable(${name} ${T_SOURCES} ${STRATA_PLUGIN_TESTING}/catch_main.cpp)
  target_include_directories(${name} PRIVATE ${STRATA_PLUGIN_TESTING})
  target_compile_definitions(${name} PRIVATE PLUGIN_FILE="$<TARGET_FILE:${target}>")
  target_link_libraries(${name} PRIVATE strata::fakes Catch2::Catch2 ${T_LINK})
  set_target_properties(${name} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  add_dependencies(${name} ${target})
  add_test(NAME ${name} COMMAND ${name})
endfunction()
