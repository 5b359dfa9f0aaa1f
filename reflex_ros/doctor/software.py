"""What is installed: ROS, messages, packages, the GPU, and the checkpoint."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.doctor.model import Finding, fail, from_error, ok, skip, warn

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Context

PYTHONS = ((3, 11), (3, 12))
DISTRO = 'jazzy'
MIDDLEWARE = 'rmw_fastrtps_cpp'
PINS = MappingProxyType({
    'mcap': '1.6.0', 'numpy': '2.4.6', 'piper_sdk': '0.6.2', 'python-can': '4.6.1',
    'PyYAML': '6.0.4', 'rosbags': '0.11.9', 'ruckig': '0.19.4', 'safetensors': '0.8.0',
    'tokenizers': '0.23.3', 'torch': '2.13.0',
})
"""Versions that everything was tested with; those of ``requirements``."""
ALSO = MappingProxyType({'numpy': ('1.26.4',)})
EXACT = ('piper_sdk',)
"""Packages of which another version is refused by the suite itself."""
MOST_DOMAIN = 232
INSTALL = 'make setup   # with a ROS installation: pip install -r requirements/robot.txt'


@dataclass(frozen=True, slots=True)
class Cuda:
    """What torch says of the GPU.

    Attributes:
        build: CUDA version that torch was built for, '' for the CPU build.
        is_usable: Whether a kernel could be launched.
        name, free_bytes, total_bytes: Of device 0.
        error: What torch said instead.
    """

    build: str = ''
    is_usable: bool = False
    name: str = ''
    free_bytes: int = 0
    total_bytes: int = 0
    error: str = ''


def ros(context: Context) -> Iterable[Finding]:
    """Judge distribution, middleware, domain and discovery range."""
    environ, wheel = context.host.environ, context.probes.version('ros-jazzy-rclpy')
    distro = environ.get('ROS_DISTRO') or (DISTRO if wheel else '')
    if not distro and not context.probes.version('rclpy'):
        return [fail('no ROS: neither ROS_DISTRO nor rclpy', 'source /opt/ros/jazzy/setup.bash, '
                     'or make setup and . .venv/bin/activate')]
    about = {'distro': distro, 'rclpy_wheel': wheel,
             'rmw': environ.get('RMW_IMPLEMENTATION') or MIDDLEWARE,
             'domain': environ.get('ROS_DOMAIN_ID') or '0',
             'range': environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') or 'SUBNET'}
    text = (f'{distro or "unknown"}{" (wheels)" if wheel else ""}, {about["rmw"]}, domain '
            f'{about["domain"]}, discovery {about["range"]}')
    domain = str(about['domain'])
    if not (domain.isdecimal() and int(domain) <= MOST_DOMAIN):
        todo = f'export ROS_DOMAIN_ID=0   # a number up to {MOST_DOMAIN}'
        return [fail(text, todo, about=about)]
    return [_ros_line(text, about, environ)]


def _ros_line(
    text: str, about: Mapping[str, object], environ: Mapping[str, str]
) -> Finding:
    if about['distro'] != DISTRO:
        return warn(f'{text}; tested with {DISTRO}', f'source /opt/ros/{DISTRO}/setup.bash',
                    about=about)
    if about['rmw'] != MIDDLEWARE:
        return warn(f'{text}; tested with {MIDDLEWARE}', f'export RMW_IMPLEMENTATION={MIDDLEWARE}',
                    about=about)
    if environ.get('ROS_LOCALHOST_ONLY'):
        return warn(f'{text}; ROS_LOCALHOST_ONLY is obsolete and wins over the range',
                    'unset ROS_LOCALHOST_ONLY; export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST',
                    about=about)
    if about['range'] == 'SUBNET' and about['domain'] == '0':
        return warn(f'{text}: every machine of the network can reach these nodes',
                    'export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST, or a ROS_DOMAIN_ID of your '
                    'own', about=about)
    return ok(text, about=about)


def messages(context: Context) -> Iterable[Finding]:
    """Judge whether the messages were built for this Python."""
    try:
        count = context.probes.messages()
    except Exception as error:  # whatever a half-built package raises
        text = f'{type(error).__name__}: {error}'.splitlines()[0]
        return [fail(f'cannot be used: {text}', 'make setup; in a workspace: colcon build '
                     '--packages-select reflex_msgs && . install/setup.bash')]
    return [ok(f'{count} types', types=count)]


def packages(context: Context) -> Iterable[Finding]:
    """Judge the versions of Python and of the packages."""
    version, found = sys.version_info[:2], {n: context.probes.version(n) for n in PINS}
    about: dict[str, object] = {'python': platform.python_version(), **found}
    missing = [name for name, got in found.items() if got is None]
    other = [f'{name} {got} (tested: {PINS[name]})' for name, got in found.items()
             if got and not _is_tested(name, got)]
    if version not in PYTHONS:
        return [fail(f'Python {about["python"]}', 'make setup PYTHON=/usr/bin/python3.12',
                     about=about)]
    if missing:
        return [fail(f'missing: {", ".join(missing)}', INSTALL, about=about)]
    if any(text.startswith(EXACT) for text in other):
        return [fail(', '.join(other), INSTALL, about=about)]
    if other:
        return [warn(', '.join(other), INSTALL, about=about)]
    shown = ', '.join(f'{name} {found[name]}' for name in ('torch', 'numpy', 'piper_sdk'))
    return [ok(f'Python {about["python"]}, {shown}, {len(PINS)} as tested', about=about)]


def _is_tested(name: str, got: str) -> bool:
    # torch tells its build behind a plus sign
    return got.partition('+')[0] in (PINS[name], *ALSO.get(name, ()))


def gpu(context: Context) -> Iterable[Finding]:
    """Judge whether torch can use the GPU that is there."""
    device, tegra = gpu_device(context)
    cuda = context.probes.cuda()
    about = {'device': device, 'cuda_build': cuda.build, 'usable': cuda.is_usable}
    try:
        where, way = model_runs(context)
    except ConfigError as error:
        return [from_error(error, about=about)]
    about |= {'model_device': where, 'acceleration': way}
    if cuda.is_usable:
        free = f'{cuda.free_bytes / 2**30:.1f} of {cuda.total_bytes / 2**30:.1f} GiB free'
        place = 'GPU' if where == 'cuda' else 'CPU'
        return [ok(f'{cuda.name}, CUDA {cuda.build}, {free}; the policy runs on the {place} '
                   f'({way})', about=about, free_bytes=cuda.free_bytes)]
    if not device:
        return [skip('no NVIDIA GPU: inference runs on the CPU')]
    why = cuda.error or ('torch is a CPU build' if not cuda.build else 'torch finds no device')
    todo = ('Install the wheel of torch that NVIDIA provides for this JetPack' if tegra else
            f'pip install --force-reinstall torch=={PINS["torch"]}   # a CUDA build; then: '
            'nvidia-smi')
    return [warn(f'{device}: {why}', todo, about=about)]


def model_runs(context: Context) -> tuple[str, str]:
    """Return device and acceleration that the nodes would choose with these parameters.

    Raises:
        ConfigError: One was asked for by name and cannot be had.
    """
    from reflex_ros.stages.assemble import SNAPSHOT_FAMILIES

    params, cuda = context.choices.params, context.probes.cuda()
    if params['policy.name'] not in SNAPSHOT_FAMILIES:
        return 'cpu', 'traced'
    try:
        from reflex_ros.infer.device import choose_acceleration, choose_device
    except ImportError:  # told by the probe already
        return 'cpu', 'none'
    why = '' if cuda.is_usable else cuda.error or (
        'no GPU that torch can use' if cuda.build else 'torch is a CPU build')
    device = choose_device(str(params['policy.device']), why_not=lambda: why)
    return device, choose_acceleration(str(params['policy.acceleration']), device).kind


def gpu_device(context: Context) -> tuple[str, str]:
    """Return the GPU as the driver or the board names it, '' without one, and a Jetson's text."""
    query = 'name,driver_version,memory.total'
    answer = context.host.answer('nvidia-smi', f'--query-gpu={query}', '--format=csv,noheader')
    card = answer.strip().splitlines()[0] if answer.strip() else ''
    tegra = context.host.read('/etc/nv_tegra_release') or ''
    return card or tegra.splitlines()[0][:60] if card or tegra else '', tegra


def checkpoint(context: Context) -> Iterable[Finding]:
    """Judge the checkpoint by opening it as the nodes do."""
    chosen = context.choices.checkpoint
    context.measuring('opening the checkpoint', 0.0)
    try:
        found = context.probes.checkpoint(context.choices)
    except ImportError as error:
        return [skip(f'cannot be opened here: {error}', INSTALL)]
    except (ReflexError, OSError) as error:
        return [from_error(error, subject=str(chosen or ''))]
    text = f'{found["family"]}, {found["files"]} files, model {str(found["model_id"])[:12]}'
    subject = str(found['folder'])
    if not found['manifest']:
        return [warn(f'{text}; no manifest.json: damage to a file is not noticed',
                     f'python -c "from pathlib import Path; from reflex_ros.infer.checkpoint.'
                     f'manifest import write_manifest; write_manifest(Path({subject!r}))"',
                     subject=subject, about=found)]
    return [ok(f'{text}, manifest verified', subject=subject, about=found)]


def open_checkpoint(params: dict[str, object], folder: Path | None) -> dict[str, object]:
    """Return what a checkpoint is, after every check that the nodes make.

    Args:
        params: Parameters of all nodes.
        folder: Checkpoint; None = that of the parameters.

    Raises:
        ReflexError: It is refused. ImportError: torch is missing.
    """
    from reflex_ros.infer.checkpoint.config import read_json
    from reflex_ros.infer.checkpoint.manifest import MANIFEST, model_id, verify_manifest
    from reflex_ros.stages.build import checkpoint_folder

    named = {**params, 'policy.checkpoint': str(folder)} if folder else params
    place = checkpoint_folder(named)  # type: ignore[arg-type]
    has_manifest = (place / MANIFEST).is_file()
    family = read_json(place / 'config.json').get('type')
    if family == 'tiny':
        from reflex_ros.infer.families.tiny import TinyPolicy

        TinyPolicy.load(place)
        hashes = verify_manifest(place)
        identity = model_id(hashes)
    else:
        from reflex_ros.infer.checkpoint.pretrained import open_pretrained

        opened = open_pretrained(
            place, state_text=str(params['policy.state_text']))
        hashes, identity = dict(opened.hashes), opened.model_id
    return {'family': family, 'folder': str(place), 'files': len(hashes), 'model_id': identity,
            'manifest': has_manifest}
