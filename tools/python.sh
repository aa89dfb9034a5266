#!/usr/bin/env bash
# Finds the Pythons that Holdfast supports: `tools/python.sh oldest|newest|3.12` prints the path of one.
set -euo pipefail

supported="3.11 3.12 3.13 3.14"

runs() { "$1" -c "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (${2/./, }))" >/dev/null 2>&1; }

find_python() {
  local version=$1 candidate
  for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python $(type -ap "python$version" || true); do
    if [ -x "$candidate" ] && runs "$candidate" "$version"; then echo "$candidate"; return; fi
  done
  return 1
}

case "${1:?oldest, newest or a version}" in
  oldest) wanted=$supported ;;
  newest) wanted=$(tr ' ' '\n' <<<"$supported" | tac) ;;
  *) wanted=$1 ;;
esac
for version in $wanted; do
  if find_python "$version"; then exit; fi
done
echo "no Python found for: $1 (supported: $supported, with venv)" >&2
exit 1
