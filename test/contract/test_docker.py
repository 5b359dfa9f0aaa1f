"""The images: linted, without rights, made by one script, started so that nobody is hurt.

No image is built here; what their steps do is shown by running the steps themselves (the long ones
behind the marker ``soak``) and by reading the files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / 'docker'
FILES = ('cpu.Dockerfile', 'cuda.Dockerfile')
HADOLINT = shutil.which('hadolint', path=f'{Path(sys.executable).parent}:{os.environ["PATH"]}')
APT_NAMES = MappingProxyType({'reflex_msgs': ''})
"""Dependencies of package.xml that no Debian package delivers."""


def read(name):
    return (ROOT / name).read_text(encoding='utf-8')


def dockerfile(name):
    return read(f'docker/{name}')


def instructions(text):
    """Return (instruction, arguments) of a Dockerfile, continued lines joined, comments gone."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith('#')]
    joined = '\n'.join(lines).replace('\\\n', ' ')
    found = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(first, ' '.join(rest).strip()) for first, *rest in found]


def values(text, name):
    return [arguments for instruction, arguments in instructions(text) if instruction == name]


# ---- Dockerfiles -------------------------------------------------------------------------------


def lint(text):
    """Return hadolint's findings, of any level."""
    answer = subprocess.run([HADOLINT, '--no-color', '--format', 'json', '-'], input=text,
                            capture_output=True, text=True, check=False)
    return [f"{one['line']}: {one['code']} {one['message']}" for one in json.loads(answer.stdout)]


@pytest.mark.skipif(HADOLINT is None, reason='hadolint is missing: make setup')
@pytest.mark.parametrize('name', FILES)
def test_the_linter_finds_nothing(name):
    assert lint(dockerfile(name)) == []


@pytest.mark.skipif(HADOLINT is None, reason='hadolint is missing: make setup')
def test_the_linter_can_fail():
    planted = dockerfile('cpu.Dockerfile').replace('ubuntu:24.04', 'ubuntu').replace(
        'RUN docker/install.sh messages', 'RUN cd /src && pip install torch')
    assert {'DL3003', 'DL3013'} <= set(re.findall(r'DL\d+', ' '.join(lint(planted))))


def faults(text):
    """Yield what is wrong with a Dockerfile beyond what a linter knows."""
    base = dict(line.split('=', 1) for line in values(text, 'ARG') if '=' in line).get('BASE', '')
    if not re.fullmatch(r'[\w./-]+:[\w.-]+', base) or base.endswith(':latest'):
        yield f'base image {base!r} has no tag that stays'
    user = (values(text, 'USER') or ['root'])[-1]
    number = dict(line.split('=', 1) for line in values(text, 'ARG') if '=' in line).get('USER_ID')
    if user != '${USER_ID}:${USER_ID}' or number in (None, '0'):
        yield f'the last user is {user} with id {number}'
    if values(text, 'STOPSIGNAL') != ['SIGINT']:
        yield 'docker stop is not Ctrl-C'
    for source in copied(text):
        if not (ROOT / source).exists():
            yield f'{source} is copied and does not exist'
    for name in ('HEALTHCHECK', 'ENTRYPOINT'):
        for path in re.findall(r'/opt/reflex/([\w.]+)"', ' '.join(values(text, name))):
            if not (DOCKER / path).exists():
                yield f'{name} names {path}, which docker/ does not have'
        if not values(text, name):
            yield f'no {name}'
    ran = [step for line in values(text, 'RUN') for step in line.split()[1:]]
    if ran != steps():
        yield f'the steps are {ran}, those of install.sh {steps()}'
    if any(not line.startswith('docker/install.sh ') for line in values(text, 'RUN')):
        yield 'something is installed past install.sh'


def copied(text):
    return [source for line in values(text, 'COPY') for source in line.split()[:-1]]


def steps():
    """Return the steps of the install script, in their order."""
    found = re.search(r'^steps=\((.*?)\)', read('docker/install.sh'), re.MULTILINE)
    return found[1].split()


@pytest.mark.parametrize('name', FILES)
def test_an_image_has_no_rights_and_is_made_by_the_script(name):
    assert list(faults(dockerfile(name))) == []


@pytest.mark.parametrize(('old', 'new', 'expected'), [
    ('BASE=ubuntu:24.04', 'BASE=ubuntu:latest', 'base image'),
    ('USER ${USER_ID}:${USER_ID}', 'USER root', 'last user'),
    ('ARG USER_ID=1000', 'ARG USER_ID=0', 'last user'),
    ('STOPSIGNAL SIGINT', 'STOPSIGNAL SIGKILL', 'Ctrl-C'),
    ('health.py"', 'healthy.py"', 'healthy.py'),
    ('HEALTHCHECK', '#', 'no HEALTHCHECK'),
    ('COPY cmake/', 'COPY nothing/', 'nothing/'),
    ('install.sh messages', 'install.sh check', 'the steps are'),
    ('RUN docker/install.sh messages', 'RUN make setup', 'past install.sh'),
])
def test_rights_and_script_can_fail(old, new, expected):
    text = dockerfile('cpu.Dockerfile')
    assert old in text
    planted = re.sub(rf'^{re.escape(old)}.*$', new, text, flags=re.MULTILINE) if new == '#' \
        else text.replace(old, new)
    if new == '#':
        planted = planted.replace('    CMD ["/opt/reflex/venv/bin/python"', '# ["')
    assert expected in '\n'.join(faults(planted))


def test_what_is_copied_is_not_ignored():
    allowed = {line[1:] for line in read('.dockerignore').splitlines() if line.startswith('!')}
    tops = {source.split('/')[0] for name in FILES for source in copied(dockerfile(name))}
    assert tops - {'.'} <= allowed
    assert {'reflex_ros', 'launch', 'config', 'setup.py', 'setup.cfg', 'README.md'} <= allowed


# ---- packages ----------------------------------------------------------------------------------


def apt(name):
    lines = read(f'docker/apt-{name}.txt').splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith('#')}


def apt_name(dependency):
    if dependency.startswith('python3-'):
        return dependency
    return APT_NAMES.get(dependency, f'ros-jazzy-{dependency.replace("_", "-")}')


def missing(package_xml, packages):
    needed = [element.text for element in ElementTree.fromstring(package_xml)
              if element.tag in ('depend', 'exec_depend', 'build_depend')]
    assert len(needed) > 10
    return {apt_name(name) for name in needed} - {''} - packages


def test_the_robot_image_has_every_dependency_of_the_package():
    assert missing(read('package.xml'), apt('ros')) == set()


def test_a_missing_dependency_can_fail():
    assert missing(read('package.xml'), apt('ros') - {'ros-jazzy-cv-bridge'}) == {
        'ros-jazzy-cv-bridge'}


def test_packages_are_pinned_one_by_one():
    pins = read('requirements/constraints.txt').splitlines()
    known = {line.split('==')[0].lower() for line in pins if '==' in line}
    for name in ('robot', 'runtime', 'kernels', 'gpu', 'sim', 'build-msgs', 'dev', 'ros'):
        for line in read(f'requirements/{name}.txt').splitlines():
            if line and not line.startswith(('#', '-')):
                assert re.fullmatch(r'[\w.-]+(\[\w+\])?==[\w.]+', line), f'{name}: {line}'
                assert re.split(r'[\[=]', line)[0].lower() in known, f'{name}: {line}'


# ---- compose -----------------------------------------------------------------------------------


@pytest.fixture
def services():
    return yaml.safe_load(read('docker/compose.yaml'))['services']


def service_faults(name, service):
    """Yield what could hurt somebody, or what would not work, in one service."""
    rules = (
        (service.get('restart') == 'no', 'is restarted by itself'),
        (service.get('init') is True, 'does not pass signals on'),
        (service.get('network_mode') == 'host', 'has no CAN and no ring'),
        (service.get('ipc') == 'host', 'has no shared memory'),
        (not service.get('privileged'), 'is privileged'),
        (service.get('cap_drop') == ['ALL'], 'keeps capabilities'),
        ((service.get('ulimits') or {}) == {'rtprio': 98, 'memlock': -1}, 'has no real time'),
        (not str(service.get('user', '0')).startswith(('0', 'root')), 'runs as root'),
        (int(service.get('stop_grace_period', '10s')[:-1]) >= 20, 'is killed while it stops'),
        ((ROOT / 'docker' / service['build']['context']
          / service['build']['dockerfile']).is_file(), 'has no Dockerfile'),
        (service['image'] == f"reflex_ros:{Path(service['build']['dockerfile']).stem}",
         'has the image of another file'),
        ('/run/reflex' in str(service.get('volumes')) or 'healthcheck' in service,
         'does not see the locks of the host'),
        (service.get('profiles'), 'starts unasked'),
    )
    yield from (f'{name} {text}' for is_right, text in rules if not is_right)


def test_no_service_can_hurt(services):
    assert {'robot', 'robot-cpu', 'demo', 'doctor'} <= set(services)
    assert [fault for item in services.items() for fault in service_faults(*item)] == []


@pytest.mark.parametrize('edit', [
    {'restart': 'always'}, {'init': False}, {'network_mode': 'bridge'}, {'ipc': 'private'},
    {'privileged': True}, {'cap_drop': []}, {'ulimits': {}}, {'user': '0:0'}, {'volumes': []},
    {'stop_grace_period': '10s'}, {'image': 'reflex_ros:cpu'}, {'profiles': []},
    {'build': {'context': '..', 'dockerfile': 'docker/gpu.Dockerfile'}},
])
def test_a_service_can_fail(services, edit):
    assert list(service_faults('robot', services['robot'] | edit))


def test_the_robot_has_a_gpu_and_the_cameras_a_device(services):
    device = services['robot']['deploy']['resources']['reservations']['devices'][0]
    assert device['driver'] == 'nvidia' and device['capabilities'] == ['gpu']
    assert 'deploy' not in services['robot-cpu']
    for name in ('camera-front', 'camera-wrist'):
        assert services[name]['devices'][0].endswith(':/dev/video0')
        assert f'__ns:=/camera/{name[7:]}' in services[name]['command']


def test_commands_of_services_are_commands_of_the_program(services):
    from reflex_ros.cli.main import commands

    named = [one['command'][1] for one in services.values() if one['command'][0] == 'reflex-ros']
    assert len(named) == 4 and set(named) <= set(commands())


def test_the_page_names_every_service_variable_and_step(services):
    page = read('docs/docker.md')
    compose = read('docker/compose.yaml')
    variables = set(re.findall(r'\$\{(\w+)', compose))
    assert variables >= {'ROBOT_YAML', 'CHECKPOINTS', 'ROS_DOMAIN_ID'}
    for name in [*services, *variables, *steps()]:
        assert f'`{name}`' in page, name


# ---- scripts -----------------------------------------------------------------------------------


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, **environment})


@pytest.mark.parametrize('name', ['install.sh', 'entrypoint.sh'])
def test_a_script_is_executable_and_parses(name):
    assert os.access(DOCKER / name, os.X_OK)
    assert run('bash', '-n', str(DOCKER / name)).returncode == 0


@pytest.mark.parametrize(('arguments', 'environment', 'expected'), [
    ([], {}, 'no step'),
    (['system', 'paint'], {}, 'unknown step: got paint'),
    (['python'], {'KIND': 'tpu'}, 'unknown KIND: got tpu'),
])
def test_a_wrong_step_is_refused_before_any_is_run(arguments, environment, expected):
    answer = run('docker/install.sh', *arguments, **environment)
    assert answer.returncode == 2 and expected in answer.stderr and not answer.stdout


def test_the_step_user_makes_folders_for_any_user(tmp_path):
    answer = run('docker/install.sh', 'user', USER_ID=str(os.getuid()),
                 HOME_DIR=str(tmp_path / 'home'), RUNS_DIR=str(tmp_path / 'runs'))
    assert answer.returncode == 0, answer.stderr
    assert {(tmp_path / name).stat().st_mode & 0o7777 for name in ('home', 'runs')} == {0o1777}


def test_the_entry_point_becomes_the_command_in_its_environment(tmp_path):
    (tmp_path / 'messages').mkdir()
    (tmp_path / 'messages' / 'local_setup.bash').write_text('export MESSAGES=sourced\n')
    script = 'echo $MESSAGES; echo $AMENT_PREFIX_PATH; echo ${PATH%%:*}; echo $PPID'
    answer = run('docker/entrypoint.sh', 'bash', '-c', script, PREFIX=str(tmp_path),
                 ROS_SETUP='/nowhere', AMENT_PREFIX_PATH='/other')
    assert answer.stdout.splitlines() == [
        'sourced', f'{tmp_path}/venv:/other', f'{tmp_path}/venv/bin', str(os.getpid())]


@pytest.mark.soak
def test_the_steps_of_the_image_give_a_working_installation(tmp_path):
    prefix = tmp_path / 'reflex'
    answer = run('docker/install.sh', 'user', 'python', 'messages', 'package', 'check',
                 PREFIX=str(prefix), KIND='cuda', ROS_SETUP='/nowhere', USER_ID=str(os.getuid()),
                 HOME_DIR=str(tmp_path / 'home'), RUNS_DIR=str(tmp_path / 'runs'))
    assert answer.returncode == 0, answer.stderr
    started = run('docker/entrypoint.sh', 'reflex-ros', 'demo', '--policy', 'oracle',
                  '--duration', '5', '--runs', str(tmp_path / 'runs'), PREFIX=str(prefix),
                  ROS_SETUP='/nowhere')
    assert started.returncode == 0, started.stdout + started.stderr
    health = run(str(prefix / 'venv/bin/python'), str(prefix / 'health.py'),
                 str(tmp_path / 'runs'))
    assert health.returncode == 1 and 'last tick' in health.stdout
