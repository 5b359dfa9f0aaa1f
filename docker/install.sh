#!/usr/bin/env bash
# Install reflex_ros below one folder; the images of docker/ are made by these steps and no others.
#
#   [PREFIX=/opt/reflex] [KIND=cpu|cuda] [TORCH_INDEX=URL] docker/install.sh STEP...
#
#   system     Debian packages (root)
#   user       a user without rights, its home and the folder of the runs (root)
#   python     virtual environment and pinned packages
#   messages   reflex_msgs
#   package    reflex_ros, its launch and configuration files, DDS profile, health check
#   check      imports and commands of the result
#
# Where ROS 2 Jazzy is installed, it is used; elsewhere it comes as wheels (x86_64).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
PREFIX=${PREFIX:-/opt/reflex}
KIND=${KIND:-cpu}
TORCH_INDEX=${TORCH_INDEX:-}
USER_ID=${USER_ID:-1000}
HOME_DIR=${HOME_DIR:-/var/lib/reflex}
RUNS_DIR=${RUNS_DIR:-/runs}
ros_setup=${ROS_SETUP:-/opt/ros/jazzy/setup.bash}
venv=$PREFIX/venv
steps=(system user python messages package check)

fail() { printf 'install: %s\n' "$*" >&2; exit 2; }
say() { printf '== %s\n' "$*"; }
has_ros() { [ -f "$ros_setup" ]; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

source_ros() {
  set +u  # its files read variables that may be unset
  # shellcheck disable=SC1090
  . "$ros_setup"
  set -u
}

apt_packages() { sed 's/#.*//' "docker/apt-$(has_ros && echo ros || echo wheels).txt"; }

requirement_files() {
  if has_ros; then echo robot; else printf '%s\n' ros build-msgs runtime sim; fi
  [ "$KIND" = cpu ] || printf '%s\n' kernels gpu
}

# cv_bridge of Ubuntu is compiled for NumPy 1; the wheels of everything else take both.
constraints() {
  if has_ros; then
    grep -v '^numpy==' requirements/constraints.txt
    grep '^numpy==' requirements/numpy1.txt
  else
    cat requirements/constraints.txt
  fi
}

step_system() {
  local packages
  mapfile -t packages < <(apt_packages | xargs -n1)
  apt-get update
  env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
  rm -rf /var/lib/apt/lists/*
}

# Any user id may be given to a container, so home and runs belong to nobody in particular.
step_user() {
  getent passwd "$USER_ID" >/dev/null || useradd --no-create-home --uid "$USER_ID" reflex
  mkdir -p "$HOME_DIR" "$RUNS_DIR"
  chmod 1777 "$HOME_DIR" "$RUNS_DIR"
}

step_python() {
  local file arguments=() options=() pins
  mkdir -p "$PREFIX"
  ! has_ros || options=(--system-site-packages)
  [ -x "$venv/bin/python" ] || python3 -m venv "${options[@]}" "$venv" ||
    fail "cannot make a virtual environment in $venv. Debian, Ubuntu: python3-venv"
  for file in $(requirement_files); do arguments+=(-r "requirements/$file.txt"); done
  [ -z "$TORCH_INDEX" ] || arguments+=(--extra-index-url "$TORCH_INDEX")
  pins=$(mktemp)
  constraints >"$pins"
  pip install --no-cache-dir -c "$pins" "${arguments[@]}"
  rm "$pins"
}

step_messages() {
  if ! has_ros; then
    cmake/build_msgs.sh "$venv" reflex_msgs
    return
  fi
  source_ros
  local work
  work=$(mktemp -d)
  colcon --log-base "$work/log" build --base-paths reflex_msgs --merge-install \
    --build-base "$work/build" --install-base "$PREFIX/messages" \
    --cmake-args -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF
  rm -rf "$work"
}

step_package() {
  local name share=$venv/share/reflex_ros
  pip install --no-deps --no-build-isolation --force-reinstall .
  # ros2 run and ros2 launch look for executables here
  mkdir -p "$venv/lib/reflex_ros"
  for name in reflex-ros vision_encoder policy inference controller_bridge recorder simulator; do
    ln -sfn "../../bin/$name" "$venv/lib/reflex_ros/$name"
  done
  ln -sfn "$share/config" "$PREFIX/config"
  install -m 755 docker/entrypoint.sh docker/health.py "$PREFIX/"
  install -m 644 reflex_ros/data/dds/fastdds.xml "$PREFIX/fastdds.xml"
}

step_check() {
  local modules=rclpy,reflex_msgs.msg,reflex_ros,torch,piper_sdk,safetensors,tokenizers,mcap
  [ "$KIND" = cpu ] || modules+=,triton
  (cd / && env PREFIX="$PREFIX" "$PREFIX/entrypoint.sh" python -c "import $modules") ||
    fail "the installation in $PREFIX cannot be imported (output above)."
  (cd / && env PREFIX="$PREFIX" "$PREFIX/entrypoint.sh" reflex-ros params \
    "$PREFIX/config/robots/piper.yaml" "$PREFIX/config/robot.yaml" >/dev/null) ||
    fail "reflex-ros of $PREFIX does not accept its own configuration (output above)."
}

[ $# -gt 0 ] || fail "no step: got none, expected some of ${steps[*]}."
for step in "$@"; do
  case " ${steps[*]} " in
    *" $step "*) ;;
    *) fail "unknown step: got $step, expected one of ${steps[*]}." ;;
  esac
done
case $KIND in cpu | cuda) ;; *) fail "unknown KIND: got $KIND, expected cpu or cuda." ;; esac
for step in "$@"; do
  say "$step ($KIND, ROS $(has_ros && echo installed || echo as wheels))"
  "step_$step"
done
