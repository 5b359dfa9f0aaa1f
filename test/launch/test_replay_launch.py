"""``replay.launch.py`` under ROS 2 launch: the recorded run again, judged by its budgets."""

from __future__ import annotations

import importlib.util
import tempfile
import unittest
from pathlib import Path

import pytest

REASON = 'needs launch, launch_ros and launch_testing of a ROS installation'
HAS_LAUNCH = all(
    importlib.util.find_spec(name) is not None and importlib.util.find_spec(name).origin
    for name in ('launch', 'launch_ros', 'launch_testing')
)
pytestmark = [
    pytest.mark.launch, pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow,
    pytest.mark.skipif(not HAS_LAUNCH, reason=REASON),
]

ROOT = Path(__file__).parents[2]
RUN = ROOT / 'test' / 'data' / 'replay'
SECONDS = 90.0
TICKS = 250

if HAS_LAUNCH:
    import launch_testing
    import launch_testing.asserts
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    from launch_testing.actions import ReadyToTest

    import launch
    from reflex_ros.bringup.environment import free_tcp_port
    from reflex_ros.cli.main import main
    from reflex_ros.core.clock import MS, S, SystemClock
    from reflex_ros.core.ledger import LedgerReader

    OUTPUT = Path(tempfile.mkdtemp(prefix='reflex_ros_replay_')) / 'out'

    def generate_test_description():
        arguments = {'bag': str(RUN), 'output': str(OUTPUT), 'port': str(free_tcp_port())}
        return launch.LaunchDescription([
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(str(ROOT / 'launch' / 'replay.launch.py')),
                launch_arguments=arguments.items()),
            ReadyToTest(),
        ])

    class TestRunning(unittest.TestCase):
        __test__ = False  # launch_testing runs it, not pytest

        def test_the_recording_is_played(self):
            clock = SystemClock()
            end_ns = clock.mono_ns() + round(SECONDS * S)
            ledger = OUTPUT / 'ledger.bin'
            while clock.mono_ns() < end_ns:
                if ledger.exists() and len(LedgerReader(ledger).records()) >= TICKS:
                    return
                clock.sleep_until(clock.mono_ns() + 200 * MS)
            self.fail(f'not {TICKS} ticks within {SECONDS:g} s')

    @launch_testing.post_shutdown_test()
    class TestStopped(unittest.TestCase):
        __test__ = False

        def test_every_process_ended_with_zero(self, proc_info):
            launch_testing.asserts.assertExitCodes(proc_info)

        def test_the_output_keeps_to_the_budgets(self):
            budgets = str(RUN / 'budgets_nodes.yaml')  # the time is that of the machine
            assert main(['compare', str(RUN), str(OUTPUT), '--budgets', budgets]) == 0


@pytest.mark.timeout(240)
def test_the_recording_replays_through_the_nodes_within_its_budgets():
    """Run this file as launch_test does, so that plain pytest is enough."""
    from launch_testing.loader import LoadTestsFromPythonModule
    from launch_testing.test_runner import LaunchTestRunner

    spec = importlib.util.spec_from_file_location('replay_launch_test', __file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runner = LaunchTestRunner(LoadTestsFromPythonModule(module, name='replay_launch'), {})
    runner.validate()
    results = runner.run()
    assert results
    for result in results.values():
        assert result.wasSuccessful(), [text for _, text in result.failures + result.errors]
