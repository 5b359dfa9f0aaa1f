# syntax=docker/dockerfile:1
# The suite for a robot's computer with an NVIDIA GPU. The CUDA runtime comes with the wheels of
# torch, in the version that torch was built for; the driver is that of the host.
#
#   docker build -f docker/cuda.Dockerfile -t reflex_ros:cuda .
ARG BASE=ros:jazzy-ros-base
FROM ${BASE}

# another index for torch, e.g. that of a Jetson; docs/docker.md
ARG TORCH_INDEX=""
ARG USER_ID=1000
ENV KIND=cuda PREFIX=/opt/reflex
WORKDIR /src

COPY docker/install.sh docker/apt-ros.txt docker/apt-wheels.txt docker/
COPY requirements/ requirements/
RUN docker/install.sh system user python
COPY reflex_msgs/ reflex_msgs/
RUN docker/install.sh messages
COPY . .
RUN docker/install.sh package check

ENV HOME=/var/lib/reflex \
    RMW_IMPLEMENTATION=rmw_fastrtps_cpp \
    FASTRTPS_DEFAULT_PROFILES_FILE=/opt/reflex/fastdds.xml \
    OMP_WAIT_POLICY=PASSIVE \
    HF_HUB_OFFLINE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER ${USER_ID}:${USER_ID}
# relative paths of parameter files: /runs, /checkpoints
WORKDIR /
# the same as Ctrl-C: decelerate, hold, end
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s --timeout=4s --start-period=90s --retries=3 \
    CMD ["/opt/reflex/venv/bin/python", "/opt/reflex/health.py", "/runs"]
ENTRYPOINT ["/opt/reflex/entrypoint.sh"]
CMD ["reflex-ros", "--help"]
