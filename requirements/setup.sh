#!/usr/bin/env bash
# Make this checkout ready to run: virtual environment, packages, messages, entry points.
#
#   requirements/setup.sh [VENV]        (default .venv; `make setup` calls this)
#
# PYTHON names the interpreter (3.11 or 3.12). Each step is skipped when nothing changed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=${1:-.venv}
steps=(ros build-msgs runtime kernels gpu sim dev)
started=$SECONDS

fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }
say() { printf '[%3d s] %s\n' $((SECONDS - started)) "$*"; }

# A sourced ROS or another venv must not leak into the environment that is being made.
unset PYTHONPATH PYTHONHOME _ROS_WHEELS_BOOTSTRAP_COMPLETE

is_supported() {
  local answer
  answer=$("$1" -c 'import sys; print((3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null) &&
    [ "$answer" = True ]
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.12 python3.11}; do
    if command -v "$candidate" >/dev/null && is_supported "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  fail "no suitable Python: got ${PYTHON:-$(python3 --version 2>&1)}, expected 3.11 or 3.12.
  Install one (Ubuntu 24.04, Debian 12: python3) or name it: make setup PYTHON=/path/to/python3.12"
}

check_machine() {
  [ "$(uname -sm)" = 'Linux x86_64' ] ||
    fail "no ROS wheels for this machine: got $(uname -sm), expected Linux x86_64.
  Use a ROS 2 Jazzy installation and colcon instead; colcon_defaults.yaml says how."
}

check_compiler() {
  local compiler=${CXX:-c++}
  command -v "${compiler%% *}" >/dev/null ||
    fail "no C++ compiler ('$compiler'); the message packages are compiled once.
  Debian, Ubuntu: sudo apt-get install build-essential"
}

check_rendering() {
  "$1" - <<'PY' && return
import ctypes, sys
for library in ('libEGL.so.1', 'libOSMesa.so.8', 'libOSMesa.so.6'):
    try:
        ctypes.CDLL(library)
        sys.exit(0)
    except OSError:
        pass
sys.exit(1)
PY
  say 'WARNING no off-screen OpenGL (neither EGL nor OSMesa): simulated cameras will not work.'
  say '        Debian, Ubuntu: sudo apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri'
}

make_venv() {
  [ -x "$venv/bin/python" ] && is_supported "$venv/bin/python" && return
  local python
  python=$(find_python)
  say "virtual environment $venv ($("$python" --version))"
  rm -rf "$venv/bin" "$venv/lib" "$venv/pyvenv.cfg"
  "$python" -m venv "$venv" || fail "cannot make a virtual environment with $python.
  Debian, Ubuntu: sudo apt-get install python3-venv"
  # colcon would otherwise take the wheels in it for packages of the workspace.
  touch "$venv/COLCON_IGNORE"
}

fingerprint() { cat requirements/*.txt "$venv/pyvenv.cfg" | sha256sum | cut -d' ' -f1; }

install_packages() {
  local stamp=$venv/.requirements.sha256 step
  if [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint)" ]; then
    say 'packages: up to date'
    return
  fi
  for step in "${steps[@]}"; do
    say "packages of requirements/$step.txt"
    "$venv/bin/python" -m pip install --disable-pip-version-check -r "requirements/$step.txt" |
      { grep --line-buffered -E '^ *(Downloading|Installing collected|ERROR)' |
        cut -c1-110 || true; }
  done
  fingerprint >"$stamp"
}

install_messages() {
  say 'messages'
  cmake/build_msgs.sh "$venv" reflex_msgs
}

install_package() {
  local stamp=$venv/.package.sha256 sum
  # The two folders are links, so only whether they exist matters.
  sum=$({ cat setup.py setup.cfg package.xml; pwd; ls -d launch config 2>/dev/null || true; } |
    sha256sum | cut -d' ' -f1)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$sum" ] && [ -x "$venv/bin/reflex-ros" ]; then
    say 'reflex_ros: up to date'
    return
  fi
  say 'reflex_ros (editable)'
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps \
    --no-build-isolation -e . || fail 'installing reflex_ros failed (output above).'
  link_ament
  echo "$sum" >"$stamp"
}

# An editable install puts neither data files nor lib/reflex_ros/<exe> in place; launch, ros2 run
# and the ament index look there.
link_ament() {
  local share=$venv/share/reflex_ros exe
  local marker=$venv/share/ament_index/resource_index/packages
  rm -rf "$share" "$venv/lib/reflex_ros"
  mkdir -p "$share" "$marker" "$venv/lib/reflex_ros"
  for exe in package.xml launch config; do
    [ ! -e "$exe" ] || ln -s "$root/$exe" "$share/$exe"
  done
  cp resource/reflex_ros "$marker/reflex_ros"
  for exe in reflex-ros vision_encoder policy inference controller_bridge recorder simulator; do
    ln -s "../../bin/$exe" "$venv/lib/reflex_ros/$exe"
  done
}

check_result() {
  (cd / && "$root/${venv#"$root"/}/bin/python" -c '
import rclpy
from reflex_msgs.msg import ControlTick
import reflex_ros') || fail "the environment does not work: remove $venv and run setup again."
}

check_machine
check_compiler
make_venv
check_rendering "$venv/bin/python"
install_packages
install_messages
install_package
check_result
say "ready: source $venv/bin/activate, or run make demo"
