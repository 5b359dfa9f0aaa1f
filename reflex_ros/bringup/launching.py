"""The graph as actions of ROS 2 launch; only launch files import this.

Single nodes are ``LifecycleNode`` actions, so their transition events work as usual. The order of
the transitions, and those of the process that hosts two nodes, are kept by ``BringUp``, with the
same requests as the supervisor's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit, OnProcessStart, OnShutdown
from launch.events import Shutdown
from launch_ros.actions import LifecycleNode, Node

from reflex_ros.bringup.environment import child_environment
from reflex_ros.bringup.graph import RESTART_BACKOFF_S, patient
from reflex_ros.bringup.lifecycle import Routine, RoutineState, Step
from reflex_ros.bringup.settings import write_params
from reflex_ros.bringup.stopping import PATIENCE_NS
from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import EXIT_INPUT
from reflex_ros.ros.graph_link import GraphLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reflex_ros.bag.run_folder import RunFolder
    from reflex_ros.bringup.graph import Graph, ProcessSpec
    from reflex_ros.bringup.settings import Parameters

_OWN_VARIABLES = ('ROS_LOG_DIR', 'RMW_IMPLEMENTATION')
"""What launch and the installation set themselves."""


def argument(name: str, default: str, description: str, choices: Sequence[str] = ()) -> Any:
    """Return the declaration of a launch argument."""
    return DeclareLaunchArgument(
        name, default_value=default, description=description, choices=list(choices) or None)


def graph_actions(
    graph: Graph, folder: RunFolder, parameters: Parameters, *, namespace: str = ''
) -> list[Any]:
    """Return the actions that start a graph, bring it up and watch it.

    A lost stage is started again after a second, three times; launch knows no growing waits.
    Loss of the bridge or the simulator shuts everything down.

    Args:
        graph: What runs.
        folder: Run folder; its parameter file is written.
        parameters: Every parameter of every node.
        namespace: Namespace of the nodes.
    """
    write_params(folder.params, parameters, namespace=namespace)
    bring_up = BringUp(graph, namespace)
    actions: list[Any] = [LogInfo(msg=f'run folder: {folder.path}')]
    for spec in patient(graph, parameters).processes:
        process = _process(spec, folder, namespace)
        actions += [
            RegisterEventHandler(OnProcessStart(
                target_action=process, on_start=[bring_up.on_start(spec)])),
            RegisterEventHandler(OnProcessExit(
                target_action=process, on_exit=bring_up.on_exit(spec))),
            process,
        ]
    actions.append(RegisterEventHandler(OnShutdown(on_shutdown=[bring_up.on_shutdown()])))
    return actions


def _process(spec: ProcessSpec, folder: RunFolder, namespace: str) -> Any:
    environment = child_environment({}, logs=folder.logs)
    settings: dict[str, Any] = {
        'package': 'reflex_ros', 'executable': spec.executable, 'namespace': namespace,
        'parameters': [str(folder.params)], 'output': 'both', 'emulate_tty': True,
        'respawn': spec.is_restarted, 'respawn_delay': RESTART_BACKOFF_S[0],
        'sigterm_timeout': f'{PATIENCE_NS / S + spec.stop_s:.3f}',
        'additional_env': {
            name: value for name, value in environment.items()
            if name not in os.environ and name not in _OWN_VARIABLES
        },
    }
    if len(spec.hosts) > 1:
        # A name would rename both nodes.
        return Node(**settings)
    return LifecycleNode(name=spec.hosts[0], **settings)


class BringUp:
    """Configures and activates the nodes of a graph in its order, and again after a restart.

    Args:
        graph: What runs.
        namespace: Namespace of the nodes.
    """

    def __init__(self, graph: Graph, namespace: str) -> None:
        self._graph = graph
        self._namespace = namespace
        self._started: set[str] = set()
        self._deaths: dict[str, int] = {}
        self._link: GraphLink | None = None
        # launch_ros takes a second shutdown for an error of its own.
        self._is_ending = False

    def on_start(self, spec: ProcessSpec) -> Any:
        """Return what follows the start of a process."""
        return OpaqueFunction(function=lambda context: self._process_started(context, spec))

    def on_exit(self, spec: ProcessSpec) -> Any:
        """Return what follows the end of a process."""
        return lambda event, context: self._process_ended(event, context, spec)

    def on_shutdown(self) -> Any:
        """Return what ends the requests."""
        return OpaqueFunction(function=self._close)

    def _process_started(self, context: Any, spec: ProcessSpec) -> None:
        is_first = spec.executable not in self._started
        self._started.add(spec.executable)
        if not is_first:
            nodes = spec.hosts
            self._run(context, [Step('configure', node) for node in nodes]
                      + [Step('activate', node) for node in nodes])
        elif len(self._started) == len(self._graph.processes):
            self._run(context, [Step('configure', node) for node in self._graph.configure_order]
                      + [Step('activate', node) for node in self._graph.activate_order])

    def _process_ended(self, event: Any, context: Any, spec: ProcessSpec) -> list[Any]:
        if self._is_ending or context.is_shutdown:
            return []
        deaths = self._deaths[spec.executable] = self._deaths.get(spec.executable, 0) + 1
        is_refusal = event.returncode == EXIT_INPUT
        if spec.is_restarted and not is_refusal and deaths <= len(RESTART_BACKOFF_S):
            return [LogInfo(msg=f'{spec.executable} died: restart {deaths}')]
        self._is_ending = True
        end = EmitEvent(event=Shutdown(
            reason=f'{spec.executable} is lost, exit code {event.returncode}'))
        return [TimerAction(period=spec.linger_s, actions=[end])] if spec.linger_s else [end]

    def _run(self, context: Any, steps: list[Step]) -> None:
        if self._link is None:
            self._link = GraphLink(
                self._namespace, tells_time=self._graph.is_far_from_the_arm)
        routine = Routine(steps, self._link)
        context.add_completion_future(
            context.asyncio_loop.run_in_executor(None, self._advance, context, routine))

    def _advance(self, context: Any, routine: Routine) -> None:
        clock = SystemClock()
        while routine.state is RoutineState.RUNNING and not self._is_ending:
            routine.advance()
            clock.sleep_until(clock.mono_ns() + 20 * MS)
        if self._is_ending:
            routine.cancel()
        elif routine.state is RoutineState.FAILED and routine.current is not None:
            self._is_ending = True
            step = routine.current
            reason = f'{step.transition} {step.node} failed: {routine.failure}'
            context.asyncio_loop.call_soon_threadsafe(
                context.emit_event_sync, Shutdown(reason=reason))

    def _close(self, context: Any) -> None:
        self._is_ending = True
        link, self._link = self._link, None
        if link is not None:
            link.close()
