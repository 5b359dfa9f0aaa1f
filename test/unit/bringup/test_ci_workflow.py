"""The CI workflow: parsed and linted here, run by the host of the repository alone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from reflex_ros.cli.main import commands

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / '.github' / 'workflows' / 'ci.yml'
PINNED = re.compile(r'[\w-]+/[\w./-]+@v\d+(\.\d+)*')


def load(text):
    """Return the document; YAML 1.1 reads the key ``on`` as a truth value."""
    document = yaml.safe_load(text)
    if True in document:
        document['on'] = document.pop(True)
    return document


def lint(document):
    """Return what is wrong with a workflow."""
    found = [f'no {key}' for key in ('name', 'on', 'jobs') if not document.get(key)]
    for name, job in document.get('jobs', {}).items():
        found += [f'{name}: no {key}' for key in ('runs-on', 'timeout-minutes', 'steps')
                  if key not in job]
        for needed in [job.get('needs', [])] if isinstance(job.get('needs'), str) else job.get(
                'needs', []):
            if needed not in document['jobs']:
                found.append(f'{name}: needs {needed}, which is no job')
        for step in job.get('steps', []):
            found += lint_step(name, step)
    return found


def lint_step(job, step):
    """Return what is wrong with one step."""
    if ('run' in step) == ('uses' in step):
        return [f'{job}: a step has both or neither of run and uses: {step}']
    if 'uses' in step:
        return [] if PINNED.fullmatch(step['uses']) else [f'{job}: {step["uses"]} has no version']
    found = []
    for line in step['run'].replace('\\\n', ' ').splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            return [f'{job}: {line}: {error}']
        for index, word in enumerate(words):
            if word.endswith('reflex-ros') and index + 1 < len(words):
                command = words[index + 1]
                if not command.startswith('-') and command not in commands():
                    found.append(f'{job}: no command {command}')
            named = word.removeprefix('src/reflex_ros/')
            if named.startswith(('test/', 'config/', 'requirements/', '.ci/')) and (
                    not (ROOT / named).exists()):
                found.append(f'{job}: no file {named}')
    return found


@pytest.fixture(scope='module')
def workflow():
    return load(WORKFLOW.read_text(encoding='utf-8'))


def test_the_workflow_is_sound(workflow):
    assert lint(workflow) == []


@pytest.mark.parametrize(('text', 'fault'), [
    ('on: push\njobs: {a: {runs-on: x, timeout-minutes: 1, steps: [{run: a}]}}', 'no name'),
    ('name: a\non: push\njobs: {a: {runs-on: x, steps: [{run: a}]}}', 'no timeout-minutes'),
    ('name: a\non: push\njobs: {a: {runs-on: x, timeout-minutes: 1, steps: [{uses: a/b}]}}',
     'no version'),
    ('name: a\non: push\njobs: {a: {runs-on: x, timeout-minutes: 1, needs: b, '
     'steps: [{run: a}]}}', 'no job'),
    ('name: a\non: push\njobs: {a: {runs-on: x, timeout-minutes: 1, '
     'steps: [{run: reflex-ros fly}]}}', 'no command fly'),
    ('name: a\non: push\njobs: {a: {runs-on: x, timeout-minutes: 1, '
     'steps: [{run: cat test/nothing}]}}', 'no file test/nothing'),
    ('name: a\non: push\njobs: {a: {runs-on: x, timeout-minutes: 1, '
     'steps: [{run: "echo \'a"}]}}', 'quotation'),
])
def test_the_lint_can_fail(text, fault):
    assert any(fault in found for found in lint(load(text)))


def test_jazzy_builds_and_tests_with_colcon(workflow):
    job = workflow['jobs']['jazzy']
    said = '\n'.join(step.get('run', '') for step in job['steps'])
    assert 'jazzy' in job['container']
    assert 'colcon build' in said and 'colcon test ' in said and 'colcon test-result' in said


def test_the_wheel_job_replays_and_judges_with_the_installed_wheel(workflow):
    said = '\n'.join(step.get('run', '') for step in workflow['jobs']['wheel']['steps'])
    assert 'pip wheel' in said and 'replay test/data/replay --virtual' in said
    assert '--budgets test/data/replay/budgets.yaml' in said and '--badge' in said
