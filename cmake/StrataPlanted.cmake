# strata_planted_libraries(stem KIND kind [CAPABILITIES capability ...] [EQUIVALENCE promise] [STATE_VERSION number] SOURCES file ... DEFECTS defect ...)
# compiles the sources once, asking planted::has("defect") of tests/conformance/planted/planted.hpp where they may go wrong, and links
# the plugin STEM_DEFECT for each defect, and STEM_none without one, each with a generated line that names it.
function(strata_planted_libraries stem)
  cmake_parse_arguments(PARSE_ARGV 1 P "" "KIND;EQUIVALENCE;STATE_VERSION" "CAPABILITIES;SOURCES;DEFECTS")
  if(P_UNPARSED_ARGUMENTS OR NOT P_SOURCES OR NOT P_DEFECTS OR NOT P_KIND)
    message(FATAL_ERROR "strata_planted_libraries(${stem}): KIND, SOURCES and DEFECTS are needed, '${P_UNPARSED_ARGUMENTS}' is unknown")
  endif()
  set(objects planted_${P_KIND}_${stem})
  foreach(defect IN ITEMS none LISTS P_DEFECTS)
    set(name ${stem}_${defect})
    set(line ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    file(CONFIGURE OUTPUT ${line} @ONLY CONTENT
      "namespace strata::planted {\nextern const char* const defect;\nconst char* const defect = \"@defect@\";\n}  // namespace strata::planted\n")
    strata_add_plugin(${name} KIND ${P_KIND} VERSION 1.0.0 DESCRIPTION "Planted" AUTHOR "The Strata tests" LICENSE Apache-2.0
      CAPABILITIES ${P_CAPABILITIES} EQUIVALENCE "${P_EQUIVALENCE}" STATE_VERSION "${P_STATE_VERSION}"
      SOURCES ${line} $<TARGET_OBJECTS:${objects}>)
  endforeach()
  # Files compiled once get the identity of the library without a defect.
  add_library(${objects} OBJECT ${P_SOURCES})
  target_compile_options(${objects} PRIVATE "SHELL:-include ${CMAKE_CURRENT_BINARY_DIR}/strata_${P_KIND}_${stem}_none_identity.h")
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/sdk ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${objects} PRIVATE strata::plugin strata::build)
  strata_precompile(${objects} REUSE strata_headers)
endfunction()
