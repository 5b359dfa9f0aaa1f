#!/usr/bin/env bash
# Give a command the environment of an installation of docker/install.sh, and become that command,
# so that it gets the signals.
set -eo pipefail
PREFIX=${PREFIX:-/opt/reflex}
ros_setup=${ROS_SETUP:-/opt/ros/jazzy/setup.bash}
for setup in "$ros_setup" "$PREFIX/messages/local_setup.bash"; do
  # shellcheck disable=SC1090
  [ ! -f "$setup" ] || . "$setup"
done
export PATH=$PREFIX/venv/bin:$PATH
export AMENT_PREFIX_PATH=$PREFIX/venv${AMENT_PREFIX_PATH:+:$AMENT_PREFIX_PATH}
[ $# -gt 0 ] || set -- reflex-ros --help
exec "$@"
