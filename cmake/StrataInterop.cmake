# STRATA_INTEROP_PYTHON: the Python that has transformers, made by `cmake/bootstrap.sh --for interop`. With STRATA_INTEROP on the
# tests that compare with it are registered and its absence is an error; with it off they are left out.
option(STRATA_INTEROP "Register the tests that compare with Python's transformers" OFF)
if(STRATA_INTEROP)
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(_strata_cache $ENV{XDG_CACHE_HOME}/strata)
  else()
    set(_strata_cache $ENV{HOME}/.cache/strata)
  endif()
  set(STRATA_INTEROP_PYTHON ${_strata_cache}/interop/bin/python CACHE FILEPATH "A Python with torch and transformers")
  if(NOT EXISTS ${STRATA_INTEROP_PYTHON})
    message(FATAL_ERROR "STRATA_INTEROP is on and there is no ${STRATA_INTEROP_PYTHON}. Run cmake/bootstrap.sh --for interop, set "
      "STRATA_INTEROP_PYTHON to a Python with torch and transformers, or turn STRATA_INTEROP off.")
  endif()
endif()
