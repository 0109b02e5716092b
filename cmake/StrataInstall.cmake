# `cmake --install` makes a tree that can be moved as a whole and that plugins are built against.
#   bin/strata  libexec/strata/strata  lib/libstrata*.so  lib/strata/plugins/*.so  share/strata/configs  include/strata  lib/cmake/Strata
# Every library finds its neighbours by $ORIGIN, and in lib/strata lie those that a machine to run on need not have (Boost, yaml-cpp,
# spdlog, fmt, toml++). No file holds a path of the build machine but share/strata/torch_dir, the folder of libtorch there:
# bin/strata, which starts libexec/strata/strata, and StrataConfig.cmake look there after STRATA_TORCH_DIR and before bootstrap's places.
# Components:
#   runtime  what runs: programs, libraries, plugins, configs, and bootstrap.sh, which brings libtorch
#   sdk      what plugins and programs are built with: headers, archives, the CMake package
#   site     share/strata/torch_dir: not in packages (StrataPackage)
#   tests    when it is asked for only: what tests/gpu.sh runs on a machine that has nothing but this tree
option(STRATA_INSTALL_PRIVATE_LIBRARIES "Install copies of the shared libraries that Strata is linked to, but libtorch and the system's own" ON)
include(CMakePackageConfigHelpers)
set(STRATA_PACKAGE_DIR lib/cmake/Strata)

set(_strata_sdk strata_interface strata_plugin strata_core strata_engine strata_deepspeed)
foreach(_target strata_toolbox strata_fakes)
  if(TARGET ${_target})
    list(APPEND _strata_sdk ${_target})
  endif()
endforeach()
foreach(_target IN LISTS _strata_sdk)
  string(REPLACE strata_ "" _name ${_target})
  set_target_properties(${_target} PROPERTIES EXPORT_NAME ${_name})
endforeach()
install(TARGETS ${_strata_sdk} EXPORT StrataTargets LIBRARY DESTINATION lib COMPONENT runtime ARCHIVE DESTINATION lib COMPONENT sdk)
install(TARGETS strata_core RUNTIME_DEPENDENCY_SET strata_private LIBRARY DESTINATION lib COMPONENT runtime)
install(TARGETS strata_program RUNTIME_DEPENDENCY_SET strata_private RUNTIME DESTINATION libexec/strata COMPONENT runtime)
get_property(_runtime_programs GLOBAL PROPERTY strata_runtime_programs)
get_property(_sdk_programs GLOBAL PROPERTY strata_sdk_programs)
install(TARGETS ${_runtime_programs} RUNTIME DESTINATION libexec/strata COMPONENT runtime)
install(TARGETS strata_launcher RUNTIME DESTINATION bin COMPONENT runtime)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/cmake/bootstrap.sh DESTINATION libexec/strata COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/torch_version DESTINATION libexec/strata COMPONENT runtime)
install(TARGETS strata_conformance ${_sdk_programs} RUNTIME DESTINATION libexec/strata COMPONENT sdk)
if(STRATA_INSTALL_PRIVATE_LIBRARIES)
  # libstrata.so itself needs every one of them, so its RUNPATH serves those that need each other.
  install(RUNTIME_DEPENDENCY_SET strata_private PRE_INCLUDE_REGEXES "^lib(boost_|yaml-cpp|spdlog|fmt|tomlplusplus)" PRE_EXCLUDE_REGEXES ".*"
    LIBRARY DESTINATION lib/strata COMPONENT runtime)
endif()

foreach(_folder core/interface core/engine/run core/tools/deepspeed sdk/toolbox sdk/fakes)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${_folder}/include)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${_folder}/include/strata DESTINATION include COMPONENT sdk FILES_MATCHING PATTERN "*.hpp")
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION share/strata COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/strata COMPONENT runtime)
# The start of plugins: `strata plugins new` copies the templates, strata_add_plugin_test compiles what is in testing.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/template/ DESTINATION share/strata/templates COMPONENT sdk)
install(FILES ${PROJECT_SOURCE_DIR}/sdk/README.md DESTINATION share/strata/sdk COMPONENT sdk)
install(FILES ${PROJECT_SOURCE_DIR}/tests/catch.hpp ${PROJECT_SOURCE_DIR}/tests/catch_main.cpp DESTINATION ${STRATA_PACKAGE_DIR}/testing COMPONENT sdk)
install(FILES ${PROJECT_BINARY_DIR}/share/strata/torch_dir DESTINATION share/strata COMPONENT site)

configure_package_config_file(${PROJECT_SOURCE_DIR}/sdk/cmake/StrataConfig.cmake.in ${PROJECT_BINARY_DIR}/package/StrataConfig.cmake
  INSTALL_DESTINATION ${STRATA_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface (see strata/fingerprint.hpp for what the loader checks).
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/StrataConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT StrataTargets NAMESPACE strata:: DESTINATION ${STRATA_PACKAGE_DIR} COMPONENT sdk)
install(FILES ${PROJECT_BINARY_DIR}/package/StrataConfig.cmake ${PROJECT_BINARY_DIR}/package/StrataConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/StrataTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/torch_version ${PROJECT_SOURCE_DIR}/cmake/StrataPlugin.cmake
  ${PROJECT_SOURCE_DIR}/cmake/plugin_exports.map DESTINATION ${STRATA_PACKAGE_DIR} COMPONENT sdk)
