# Writes HEADER, which defines STRATA_COMMIT: the commit that SOURCE is at, "-changed" appended where files differ from it; empty
# where SOURCE is no checkout. The file changes only with its content.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --dirty=-changed --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define STRATA_COMMIT \"${commit}\"\n")
