# syntax=docker/dockerfile:1
# The suite without a GPU: demo, replay, a bridge of its own. ROS 2 Jazzy comes as wheels (x86_64),
# the very packages that `make test` runs with.
#
#   docker build -f docker/cpu.Dockerfile -t reflex_ros:cpu .
ARG BASE=ubuntu:24.04
FROM ${BASE}

# another index for torch, to have it without CUDA; docs/docker.md
ARG TORCH_INDEX=""
ARG USER_ID=1000
ENV KIND=cpu PREFIX=/opt/reflex
WORKDIR /src

COPY docker/install.sh docker/apt-ros.txt docker/apt-wheels.txt docker/
COPY requirements/ requirements/
RUN docker/install.sh system user python
COPY cmake/ cmake/
COPY reflex_msgs/ reflex_msgs/
RUN docker/install.sh messages
COPY . .
RUN docker/install.sh package check

ENV HOME=/var/lib/reflex \
    RMW_IMPLEMENTATION=rmw_fastrtps_cpp \
    FASTRTPS_DEFAULT_PROFILES_FILE=/opt/reflex/fastdds.xml \
    OMP_WAIT_POLICY=PASSIVE \
    HF_HUB_OFFLINE=1
USER ${USER_ID}:${USER_ID}
# relative paths of parameter files: /runs, /checkpoints
WORKDIR /
# the same as Ctrl-C: decelerate, hold, end
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s --timeout=4s --start-period=90s --retries=3 \
    CMD ["/opt/reflex/venv/bin/python", "/opt/reflex/health.py", "/runs"]
ENTRYPOINT ["/opt/reflex/entrypoint.sh"]
CMD ["reflex-ros", "--help"]
