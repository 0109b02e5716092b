# STRATA_PYTHON: a Python 3 with pytest (Debian's python3-pytest, which cmake/bootstrap.sh --for tests installs). Debian's own Python has it
# where the first python3 of the PATH is another.
if(NOT STRATA_PYTHON)
  foreach(candidate python3 /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import sys, pytest; print(sys.executable)" OUTPUT_VARIABLE _strata_python
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _strata_status)
    if(_strata_status EQUAL 0)
      set(STRATA_PYTHON ${_strata_python} CACHE FILEPATH "A Python 3 with pytest")
      break()
    endif()
  endforeach()
endif()
if(NOT STRATA_PYTHON)
  message(FATAL_ERROR "The tests need a Python 3 with pytest, and neither python3 nor /usr/bin/python3 is one. Run cmake/bootstrap.sh "
    "--for tests, set STRATA_PYTHON, or turn STRATA_BUILD_TESTS off.")
endif()

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/pytest)   # where tests write; they make a folder of their own there
# strata_add_pytest(name FILES file ... TIMEOUT seconds LABELS label ... [OPTIONS option ...] [PROCESSORS n] [COST seconds] [NEEDS fixture]
# [ALONE] [PYTHON interpreter]): the ctest test `name` runs pytest on files of this folder. Skipped tests alone count as skipped (see conftest.py).
# COST: the seconds that it takes, where that is 10 or more, and above 110 where it has PROCESSORS 2: ctest begins with the highest, in a new build folder too.
# PROCESSORS: 2 of a test whose ranks compute all the time; tests/run.sh fills 4 places on 2 processors, so that two of them can run side by side, or one and two others.
function(strata_add_pytest name)
  cmake_parse_arguments(PARSE_ARGV 1 T "ALONE" "TIMEOUT;PROCESSORS;COST;NEEDS;SETUP;PYTHON" "FILES;LABELS;OPTIONS")
  set(python ${STRATA_PYTHON})
  if(T_PYTHON)
    set(python ${T_PYTHON})
  endif()
  list(TRANSFORM T_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_test(NAME ${name} COMMAND ${python} -B -m pytest ${T_FILES} --basetemp=${PROJECT_BINARY_DIR}/pytest/${name} ${T_OPTIONS})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
    ENVIRONMENT "STRATA_BUILD=${PROJECT_BINARY_DIR}")
  if(NOT T_PYTHON)   # that one has what its tests import, so that a skipped one is a failure
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
  foreach(pair PROCESSORS:PROCESSORS COST:COST FIXTURES_REQUIRED:NEEDS FIXTURES_SETUP:SETUP RUN_SERIAL:ALONE)
    string(REGEX MATCH "(.*):(.*)" _ ${pair})
    if(T_${CMAKE_MATCH_2})
      set_tests_properties(${name} PROPERTIES ${CMAKE_MATCH_1} ${T_${CMAKE_MATCH_2}})
    endif()
  endforeach()
endfunction()
