# Read by cpack for each format it makes: one .deb a component, one tarball of all of them below a folder of its own.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  # The first line of a component's own description is its package's summary; any other than this would be put before it.
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${CPACK_DEFAULT_PACKAGE_DESCRIPTION_SUMMARY})
else()
  set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
