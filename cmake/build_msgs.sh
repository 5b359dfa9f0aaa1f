#!/usr/bin/env bash
# Build ROS 2 interface packages against the ROS wheels of a virtual environment.
#
#   build_msgs.sh VENV PACKAGE_DIR...
#
# The result is installed into VENV, where the wheels' bootstrapper finds the libraries, so that
# `VENV/bin/python -c 'import reflex_msgs.msg'` works with no environment set up. A package whose
# sources, Python and wheels have not changed is left alone. On a robot with ROS use colcon.
set -euo pipefail

fail() { printf 'build_msgs: %s\n' "$*" >&2; exit 2; }
say() { printf '  %s\n' "$*"; }

[ $# -ge 2 ] || fail 'usage: build_msgs.sh VENV PACKAGE_DIR...'
[ -x "$1/bin/python" ] || fail "no virtual environment at $1: run 'make setup'."
venv=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$venv/bin/python
export PATH=$venv/bin:$PATH
# The generators are child processes of cmake; a sourced ROS or another venv must not leak in.
unset PYTHONPATH PYTHONHOME CMAKE_PREFIX_PATH COLCON_PREFIX_PATH _ROS_WHEELS_BOOTSTRAP_COMPLETE
export AMENT_PREFIX_PATH=$venv

need_compiler() {
  local compiler=${CXX:-c++}
  command -v "${compiler%% *}" >/dev/null && return
  fail "no C++ compiler ('$compiler') for the message packages: install one
  (Debian, Ubuntu: sudo apt-get install build-essential) or name it in CXX, then repeat."
}

need_tools() {
  local tool
  for tool in cmake ninja; do
    [ -x "$venv/bin/$tool" ] ||
      fail "no $tool in $venv: pip install -r requirements/build-msgs.txt, then repeat."
  done
}

package_name() {
  "$python" -c 'import sys, xml.etree.ElementTree as et
print(et.parse(sys.argv[1]).findtext("name").strip())' "$1/package.xml"
}

fingerprint() {
  {
    (cd "$1" && find . -type f \( -name '*.msg' -o -name '*.srv' -o -name '*.action' \
      -o -name CMakeLists.txt -o -name package.xml \) -print0 | sort -z | xargs -0 sha256sum)
    "$python" -c 'import sys; print(sys.version)'
    "$python" -c 'import importlib.metadata as m
for name in sorted({d.name + "==" + d.version for d in m.distributions()}):
    if name.startswith("ros-"): print(name)'
    cat "$here/wheel_includes.cmake"
  } | sha256sum | cut -d' ' -f1
}

is_current() {  # NAME FINGERPRINT
  local stamp=$venv/share/$1/.fingerprint
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$2" ] &&
    compgen -G "$venv/lib/python3.*/site-packages/$1/__init__.py" >/dev/null
}

remove_previous() {  # NAME
  local manifest=$venv/share/$1/.install_manifest.txt
  [ ! -f "$manifest" ] || tr '\n' '\0' <"$manifest" | xargs -0 rm -f
  rm -rf "$venv"/lib/python3.*/site-packages/"$1"
}

run_logged() {  # LOG COMMAND...
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { tail -n 40 "$log" >&2; fail "'$1 $2' failed (log above: $log)."; }
}

compile() {  # BUILD: ninja's own progress on a terminal, a line at each quarter elsewhere
  if [ -t 1 ]; then
    NINJA_STATUS='  compile [%f/%t, %es] ' cmake --build "$1" && return
  else
    NINJA_STATUS='[%f/%t] ' cmake --build "$1" 2>&1 | tee "$1/build.log" |
      awk -F'[][/]' '/^\[[0-9]+\/[0-9]+\]/ {
        quarter = int(4 * $2 / $3)
        if (quarter > last) { last = quarter; printf "  compile %d of %d\n", $2, $3; fflush() } }' &&
      return
    grep -v '^\[' "$1/build.log" | tail -n 40 >&2
  fi
  fail "compiling failed (build folder: $1)."
}

build() {  # SOURCE NAME FINGERPRINT
  local work
  work=$(mktemp -d "${TMPDIR:-/tmp}/build-$2.XXXXXX")
  say "$2: configure"
  run_logged "$work/configure.log" cmake -S "$1" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$venv" -DCMAKE_INSTALL_PREFIX="$venv" -DCMAKE_INSTALL_LIBDIR=lib \
    -DPython3_EXECUTABLE="$python" -DPython3_FIND_VIRTUALENV=ONLY -DBUILD_TESTING=OFF \
    -DCMAKE_PROJECT_INCLUDE="$here/wheel_includes.cmake"
  compile "$work"
  remove_previous "$2"
  run_logged "$work/install.log" cmake --install "$work"
  { cat "$work/install_manifest.txt"; echo; } >"$venv/share/$2/.install_manifest.txt"
  "$python" -c "import $2.msg" || fail "$2 was built but cannot be imported from $venv."
  echo "$3" >"$venv/share/$2/.fingerprint"
  rm -rf "$work"
  say "$2: installed in $venv"
}

for source in "$@"; do
  [ -f "$source/package.xml" ] || fail "$source holds no package.xml: name a ROS package folder."
  source=$(cd "$source" && pwd)
  name=$(package_name "$source")
  sum=$(fingerprint "$source")
  if is_current "$name" "$sum"; then
    say "$name: up to date"
    continue
  fi
  need_compiler
  need_tools
  build "$source" "$name" "$sum"
done
