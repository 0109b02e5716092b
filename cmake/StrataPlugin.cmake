# strata_add_plugin(name KIND kind VERSION version DESCRIPTION text AUTHOR name LICENSE id
#                   [CAPABILITIES capability ...] SOURCES file ... [LINK target ...])
# One plugin is one shared library, libstrata_<kind>_<name>.so, that exports its entry function only. The identity given here
# reaches the source as macros and lies, with the options' schema, in the manifest that STRATA_PLUGIN writes into section .strata.
function(strata_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 P "" "KIND;VERSION;DESCRIPTION;AUTHOR;LICENSE" "CAPABILITIES;SOURCES;LINK")
  foreach(required KIND VERSION DESCRIPTION AUTHOR LICENSE SOURCES)
    if(NOT P_${required})
      message(FATAL_ERROR "strata_add_plugin(${name}): ${required} is missing")
    endif()
  endforeach()
  set(target strata_${P_KIND}_${name})
  add_library(${target} MODULE ${P_SOURCES})
  list(JOIN P_CAPABILITIES "," capabilities)
  target_compile_definitions(${target} PRIVATE
    STRATA_PLUGIN_NAME="${name}" STRATA_PLUGIN_KIND="${P_KIND}" STRATA_PLUGIN_VERSION="${P_VERSION}"
    STRATA_PLUGIN_DESCRIPTION="${P_DESCRIPTION}" STRATA_PLUGIN_AUTHOR="${P_AUTHOR}" STRATA_PLUGIN_LICENSE="${P_LICENSE}"
    STRATA_PLUGIN_CAPABILITIES="${capabilities}")
  target_link_libraries(${target} PRIVATE strata::plugin ${P_LINK})
  if(TARGET strata::build)
    target_link_libraries(${target} PRIVATE strata::build)
  endif()
  target_link_options(${target} PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL
    -Wl,--version-script=${STRATA_PLUGIN_EXPORTS})
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${STRATA_PLUGIN_OUTPUT_DIRECTORY} INSTALL_RPATH "$ORIGIN/../.." LINK_DEPENDS ${STRATA_PLUGIN_EXPORTS})
  if(STRATA_PLUGIN_INSTALL)
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/strata/plugins)
  endif()
endfunction()
set(STRATA_PLUGIN_EXPORTS ${CMAKE_CURRENT_LIST_DIR}/plugin_exports.map)
