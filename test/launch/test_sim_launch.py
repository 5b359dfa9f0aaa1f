"""``sim.launch.py`` under ROS 2 launch: everything becomes active, ticks, and stops cleanly."""

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

LAUNCH_FILE = Path(__file__).parents[2] / 'launch' / 'sim.launch.py'
SECONDS = 60.0

if HAS_LAUNCH:
    import launch_testing
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    from launch_testing.actions import ReadyToTest

    import launch
    from reflex_ros.bringup.environment import free_tcp_port
    from reflex_ros.core.clock import MS, S, SystemClock
    from reflex_ros.core.ledger import LedgerReader

    RUNS = tempfile.mkdtemp(prefix='reflex_ros_launch_')

    def generate_test_description():
        arguments = {'policy': 'oracle', 'one_process': 'true', 'runs': RUNS,
                     'port': str(free_tcp_port())}
        return launch.LaunchDescription([
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(str(LAUNCH_FILE)),
                launch_arguments=arguments.items()),
            ReadyToTest(),
        ])

    class TestRunning(unittest.TestCase):
        __test__ = False  # launch_testing runs it, not pytest

        def test_chunks_are_executed(self):
            clock = SystemClock()
            end_ns = clock.mono_ns() + round(SECONDS * S)
            while clock.mono_ns() < end_ns:
                ledgers = list(Path(RUNS).glob('*/ledger.bin'))
                if ledgers and (LedgerReader(ledgers[0]).records()['chunk_id'] > 0).any():
                    return
                clock.sleep_until(clock.mono_ns() + 200 * MS)
            self.fail(f'no chunk was executed within {SECONDS:g} s')

    @launch_testing.post_shutdown_test()
    class TestStopped(unittest.TestCase):
        __test__ = False

        def test_every_process_ended_with_zero(self, proc_info):
            launch_testing.asserts.assertExitCodes(proc_info)


@pytest.mark.timeout(180)
def test_the_simulation_launches_runs_and_stops():
    """Run this file as launch_test does, so that plain pytest is enough."""
    from launch_testing.loader import LoadTestsFromPythonModule
    from launch_testing.test_runner import LaunchTestRunner

    spec = importlib.util.spec_from_file_location('sim_launch_test', __file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runner = LaunchTestRunner(LoadTestsFromPythonModule(module, name='sim_launch'), {})
    runner.validate()
    results = runner.run()
    assert results
    for result in results.values():
        assert result.wasSuccessful(), [text for _, text in result.failures + result.errors]
