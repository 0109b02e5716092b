#!/usr/bin/env bash
# run.sh PYTHON SCRIPT ARGUMENT...: one of the scripts beside this one, or why it cannot run.
if [ ! -x "$1" ]; then
  echo "FAILED: there is no $1. Run cmake/bootstrap.sh --for interop, which makes it"
  exit 1
fi
exec "$1" -B "$(dirname "$0")/$2" "${@:3}"
