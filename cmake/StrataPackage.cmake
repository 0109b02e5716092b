# `cpack` makes in the build folder two Debian packages and a tarball of both that can be unpacked anywhere.
#   strata_VERSION_ARCH.deb      component runtime
#   strata-sdk_VERSION_ARCH.deb  component sdk: building plugins and programs against the first
#   strata-VERSION-Linux-ARCH.tar.gz
# libtorch is in none of them, because no Debian package is as new and its wheel is ten times their size: bootstrap.sh, which the first
# carries, brings it. The copies of Boost, yaml-cpp, spdlog, fmt and toml++ in lib/strata are Debian's own.
set(CPACK_PACKAGE_NAME strata)
set(CPACK_PACKAGE_VENDOR "Strata")
set(CPACK_PACKAGE_CONTACT "The Strata authors")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME strata-${PROJECT_VERSION}-Linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_COMPONENTS_ALL runtime sdk)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/StrataPackageFormat.cmake)   # what differs between the two formats

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME strata)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
# By hand: dpkg-shlibdeps needs a package of libtorch. Debian 12's versions: programs compiled there need them. tests/package checks them.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.36), libgcc-s1 (>= 12), libgomp1 (>= 12), libstdc++6 (>= 12)")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "python3-pip")   # for bootstrap.sh
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Trains large transformer models; every strategy is a plugin that the config names
libtorch is not in this package: /usr/libexec/strata/bootstrap.sh --for run
brings it.")
set(CPACK_DEBIAN_SDK_PACKAGE_NAME strata-sdk)
set(CPACK_DEBIAN_SDK_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_SDK_PACKAGE_DEPENDS "strata (= ${PROJECT_VERSION}), cmake (>= 3.25), g++ (>= 4:12), make")
set(CPACK_DEBIAN_SDK_PACKAGE_RECOMMENDS "catch2")   # the unit tests of `strata plugins new`
set(CPACK_COMPONENT_SDK_DESCRIPTION "What plugins of Strata, and programs that train with it, are built with
Headers, the toolbox, fakes for unit tests, and the CMake package Strata.")

# The licences of what lies in lib/strata or is compiled in, as Debian has them.
foreach(_library libboost1.74-dev libboost-dev libcli11-dev libfmt-dev libspdlog-dev libtomlplusplus-dev liburing-dev libutf8proc-dev libxxhash-dev
    libyaml-cpp-dev nlohmann-json3-dev)
  if(EXISTS /usr/share/doc/${_library}/copyright)
    install(FILES /usr/share/doc/${_library}/copyright DESTINATION share/doc/strata/licenses RENAME ${_library} COMPONENT runtime)
  endif()
endforeach()
include(CPack)
