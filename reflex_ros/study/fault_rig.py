"""The closed loop on a virtual clock with the real driver on an emulated bus, and its faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.core.clock import MS, Instant, S
from reflex_ros.core.ledger import CAUSE_CODES, VERDICT_CODES, LedgerReader, LedgerWriter
from reflex_ros.core.limits import JointLimits
from reflex_ros.core.param_table import BRIDGE, ENCODER, POLICY, SIMULATOR
from reflex_ros.core.params import defaults
from reflex_ros.core.probe import constant_costs
from reflex_ros.core.types import JOINT_NAMES, ArmState
from reflex_ros.sim.emulator import Emulator, EmulatorConfig
from reflex_ros.sim.experts import make_chunk_expert
from reflex_ros.sim.faults import Fault
from reflex_ros.sim.injector import FaultInjector
from reflex_ros.sim.world import World
from reflex_ros.stages.build import bridge_config, limits_from, policy_config
from reflex_ros.stages.virtual import VirtualConfig, VirtualRun
from reflex_ros.study.fault_bus import TimelineClock, VirtualBus, VirtualLink, commands_of
from reflex_ros.study.fault_judge import Judgement, judge
from reflex_ros.study.fault_push import push_firmware
from reflex_ros.study.fault_swing import LEAD_S, FaultyOracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.types import ControlTick, FloatArray, Reply
    from reflex_ros.sim.faults import FaultScript
    from reflex_ros.sim.plant import Plant
    from reflex_ros.study.fault_bus import Received

LIMITS = MappingProxyType({'safety.speed_scale': 1.0, 'run.autostart': True})
"""The limits of ``config/robots/piper.yaml``, unscaled: the widest that an arm is ever given."""
FAULT_S = 2.5
"""When a fault comes, after the first tick: the arm has been tracking for a while."""
DURATION_S = 6.0
LEDGER = 'ledger.bin'


@dataclass(frozen=True, slots=True)
class RigOptions:
    """What differs between rigs.

    Attributes:
        seed: Of the world. duration_s: Length from the first tick.
        params: Parameters by name. script: Faults from power-on.
        emulator: Kind of arm. has_pictures: Whether the frames carry pixels: noise.
        bridge: Fields of the bridge's settings. cameras: Names, primary first.
        is_swinging: Whether joint 1 swings, at its greatest speed when the fault comes.
        is_pair: Whether there are two arms, left and right; faults reach into the left one.
    """

    seed: int = 1
    duration_s: float = DURATION_S
    params: dict[str, object] = field(default_factory=dict)
    script: FaultScript | None = None
    emulator: EmulatorConfig = field(default_factory=EmulatorConfig)
    has_pictures: bool = False
    bridge: dict[str, object] = field(default_factory=dict)
    cameras: tuple[str, ...] = ('main',)
    is_swinging: bool = False
    is_pair: bool = False


class Records:
    """What a run left in its log and in its ledger file.

    Attributes:
        run: The loop with its log and the instant of tick 0. end_ns: When it ended.
        folder: With the ledger. replies: Of the services, in their order.
        seen: Fault codes of the arm that were in force.
        spare: Ticks that may be missing at the end, where the loop was ended.
    """

    spare = 0
    run: Any
    end_ns: int
    folder: Path
    period_ns: int

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.seen: list[str] = []

    def ticks(self, from_s: float, to_s: float = np.inf) -> list[ControlTick]:
        """Return the ticks due in an interval of the run."""
        low = self.run.start_ns + round(from_s * S)
        high = self.end_ns + 1 if np.isinf(to_s) else self.run.start_ns + round(to_s * S)
        return [tick for tick in self.run.log.ticks if low <= tick.due_ns < high]

    def records(self) -> np.ndarray:
        """Return the records of the ledger file."""
        return LedgerReader(self.folder / LEDGER).records()

    def causes(self, from_s: float) -> list[tuple[str, str]]:
        """Return verdict and cause of every record from a time of the run on, from the file."""
        records = self.records()
        late = records[records['due_ns'] >= self.run.start_ns + round(from_s * S)]
        return [(VERDICT_CODES[v].value, CAUSE_CODES[c].value)
                for v, c in zip(late['verdict'], late['cause'], strict=True)]

    def accounted(self) -> bool:
        """Return whether the ledger has every due tick exactly once."""
        records = self.records()
        due = (self.end_ns - self.run.start_ns) // self.period_ns + 1
        indices = np.concatenate([np.arange(r['index'], r['index'] + r['count'])
                                  for r in records]) if len(records) else np.empty(0)
        return 0 <= due - len(indices) <= self.spare and bool(
            np.array_equal(indices, np.arange(len(indices))))

    def further(self, from_s: float, to_s: float) -> list[str]:
        """Return what else was not as it must be, from the fault to the recovery: nothing."""
        del from_s, to_s
        return []

    def note_faults(self, codes: Iterable[str]) -> None:
        """Note fault codes in force."""
        self.seen += [code for code in codes if code not in self.seen]


class FaultRig(Records):
    """One run: simulated world, emulated arm, real driver, bridge, encoder and policy.

    Args:
        folder: For the ledger and the channel lock.
        options: What differs.
    """

    make_model = FaultyOracle

    def __init__(self, folder: Path, options: RigOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or RigOptions()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        params = rig_params(options)
        self.limits = limits_from(params)
        self.world = World('follow', seed=options.seed)
        self.bus: VirtualBus
        self._random = np.random.default_rng(options.seed)
        self.model = self.make_model(make_chunk_expert)
        config = VirtualConfig(
            bridge=replace(bridge_config(params, policy='oracle'), instruction='follow',
                           **options.bridge),
            policy=policy_config(params), cameras=options.cameras,
            costs=constant_costs(encode=5.0, denoise=15.0),
            duration_ns=round(options.duration_s * S))
        self.run = VirtualRun(
            config, world=self.world, limits=self.limits, model=self.model,
            render=self._picture if options.has_pictures else None, make_arm=self._make_arm)
        self.period_ns = config.bridge.period_ns
        self.model.clock = self.run.clock
        self._restarts: list[int] = []
        self._watch()

    # ---- what a fault reaches into -----------------------------------------------------------

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Call ``action()`` at a time after the first tick."""
        self.run.timeline.at(self.run.start_ns + round(time_s * S), action)

    def inject(self, fault: Fault) -> None:
        """Put a fault of the simulator in force now."""
        self.bus.emulator.faults.inject(fault, self.run.clock.mono_ns())

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call ``action()`` after a while."""
        self.run.timeline.at(self.run.clock.mono_ns() + round(delay_s * S), action)

    def restart_time(self) -> None:
        """Tell encoder and policy that simulated time went back."""
        self.run.encoder.restart_time()
        self.run.policy.restart_time()

    def kill(self, name: str) -> None:
        """End a node."""
        self._worker(name).is_dead = True

    def revive(self, name: str) -> None:
        """Start a node again."""
        worker = self._worker(name)
        worker.is_dead = worker.is_busy = False
        worker.poke()

    def hang(self, name: str) -> None:
        """Let a node be busy for ever, still giving signs of life."""
        worker, stage = self._worker(name), getattr(self.run, name)
        worker.is_busy = True
        worker._finish = lambda outputs: None
        stage.begin(self.run.clock.now())

    def late_tick(self, seconds: float) -> None:
        """Run one tick late."""
        step = self.run.bridge.step

        def late(now, due_ns, index):
            self.run.bridge.step = step
            delay_ns = round(seconds * S)
            return step(Instant(now.mono_ns + delay_ns, now.stamp_ns + delay_ns), due_ns, index)

        self.run.bridge.step = late

    def freeze(self, seconds: float) -> None:
        """Let the loop stand still once, between reading the clock and sending."""
        feedback = self.run.arm.feedback

        def late():
            self.run.arm.feedback = feedback
            self.run.clock.advance(round(seconds * S))
            return feedback()

        self.run.arm.feedback = late

    def skip_ticks(self, number: int) -> None:
        """Let the loop miss some ticks."""
        step, left = self.run.bridge.step, number

        def skipping(now, due_ns, index):
            nonlocal left
            if left:
                left -= 1
                return ()
            self.run.bridge.step = step
            return step(now, due_ns, index)

        self.run.bridge.step = skipping

    def fill_bus(self, is_full: bool) -> None:
        """Let the bus take no frames, or take them again."""
        self.bus.is_full = is_full

    def lose_frames(self, can_id: int, times: int) -> None:
        """Let the bus not take the next frames of an id."""
        self.bus.lose(can_id, times)

    def cut(self) -> None:
        """Close the connection to the server."""
        assert self.bus.link is not None
        self.bus.link.lose('the server closed the connection')

    def push(self, rad: float, seconds: float) -> None:
        """Let somebody push joint 1 aside and keep it there for a time."""
        push_firmware(self.bus.emulator.firmware, rad, seconds, self.later)

    def stop(self) -> None:
        """Ask the bridge to stop, as its supervisor does before it ends it."""
        self.run.bridge.request_stop(self.run.clock.now())

    def instruct(self, text: str) -> None:
        """Give another instruction."""
        self.reply(self.run.bridge.set_instruction(text, self.run.clock.now()))

    def hold(self) -> None:
        """Let the operator hold."""
        self.reply(self.run.bridge.hold(self.run.clock.now()))

    def resume(self) -> None:
        """Let the operator resume."""
        self.reply(self.run.bridge.resume(self.run.clock.now()))

    def recover(self, *, arm_supported: bool = False) -> None:
        """Let the operator recover; blocks in virtual time while the ticks go on."""
        # an arm without a fault goes on, and so does one that is refused: no stream begins anew
        begins = self.run.bridge.states.state is ArmState.FAULTED
        before = len(self.bus.received.times_ns)
        self.replies.append(self.run.bridge.recover(arm_supported=arm_supported))
        if begins and self.replies[-1].accepted:
            self._restarts += [before, len(self.bus.received.times_ns)]

    # ---- the run -----------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, check and enable; raises what the arm refuses with."""
        self.bus.start()
        self.run.start()
        if self.options.is_swinging:
            self.model.swing_from_ns = self.run.start_ns + round((FAULT_S - LEAD_S) * S)
        self._ledger = LedgerWriter.create(
            self.folder / LEDGER, period_ns=self.period_ns, start=self.run.clock.now())
        self.run.bridge.use_ledger(self._ledger)

    def finish(self) -> None:
        """Run to the end of the duration and close the ledger; the arm goes on holding."""
        run = self.run
        run.timeline.run_until(run.start_ns + run.config.duration_ns)
        self.end_ns = run.clock.mono_ns()
        self._ledger.close()

    def close(self) -> None:
        """Release the channel."""
        self.run.arm.disconnect()

    # ---- what came of it ---------------------------------------------------------------------

    def judge(self, from_s: float) -> Judgement:
        """Judge everything that reached the arm; the maxima count from a time of the run on."""
        return self._judge(self.bus.received, self._restarts, from_s)

    def stream(self) -> tuple[FloatArray, FloatArray]:
        """Return times of the run in s and commands ``float64[N, 7]``, as they arrived."""
        return self._stream(self.bus)

    def pose(self) -> FloatArray:
        """Return where the arm truly is now, ``float64[6]``."""
        return self.world.joint_state()[0][:6]

    def readings(self, judged: Judgement) -> dict[str, float]:
        """Return what else was measured: nothing, on a virtual clock."""
        del judged
        return {}

    def path(self) -> tuple[FloatArray, FloatArray]:
        """Return times of the run in s and the true joints of all arms at each tick."""
        ticks = self.run.log.ticks
        times = np.array([tick.due_ns - self.run.start_ns for tick in ticks]) / S
        return times, self._truth[:len(ticks)]

    @property
    def _truth(self) -> FloatArray:
        return np.array(self._poses, np.float64).reshape(len(self._poses), -1)

    def _judge(self, received: Received, restarts: list[int], from_s: float) -> Judgement:
        times_s, commands, measured = commands_of(received)
        return judge(
            times_s, commands, measured,
            limits=of_one(self.run.arm.limits()).intersect(self.limits),
            period_s=self.period_ns / S, from_s=self.run.start_ns / S + from_s,
            restarts=[*received.restarts, *restarts])

    def _stream(self, bus: VirtualBus) -> tuple[FloatArray, FloatArray]:
        times_s, commands, _ = commands_of(bus.received)
        return times_s - self.run.start_ns / S, commands

    def _worker(self, name: str) -> Any:
        return getattr(self.run, f'{name}_worker')

    def _watch(self) -> None:
        """Note at every tick where the arm truly is and which faults are in force."""
        self._poses: list[FloatArray] = []
        step = self.run.bridge.step

        def watched(now, due_ns, index):
            out = step(now, due_ns, index)
            pose = self.pose()
            while len(self._poses) < len(self.run.log.ticks) + sum(
                    type(o.value).__name__ == 'ControlTick' for o in out):
                self._poses.append(pose)
            self.note_faults(self.run.arm.faults())
            return out

        self.run.bridge.step = watched

    def _picture(self, camera: str) -> np.ndarray:
        """Return a picture that no other equals."""
        del camera
        return self._random.integers(0, 256, (4, 4, 3), np.uint8)

    def _make_arm(self, run: VirtualRun) -> Arm:
        arm, self.bus = self._make_one(run, self.world)
        return arm

    def _make_one(self, run: VirtualRun, plant: Plant,
                  name: str = '') -> tuple[PiperDriver, VirtualBus]:
        """Return a driver and the bus with its arm; of one of several with a name."""
        injector = FaultInjector(self.options.script) if self.options.script else None
        emulator = Emulator(plant, run.clock.mono_ns(), config=self.options.emulator,
                            faults=injector)
        bus = VirtualBus(emulator, run.timeline, run.clock, before_step=run.advance)
        config = DriverConfig(
            channel=name or 'can0', prefix=f'{name}_' if name else '', transport='socketcand',
            limits=self.limits, lock_dir=self.folder, feedback_timeout_ns=100 * MS)
        return PiperDriver(config, TimelineClock(run.timeline, run.clock),
                           make_link=partial(VirtualLink, bus=bus)), bus

    def reply(self, answer: tuple[Reply, tuple]) -> None:
        """Note the answer of a service and deliver its outputs."""
        reply, outputs = answer
        self.replies.append(reply)
        self.run.publish(outputs)


def of_one(limits: JointLimits, number: int = 0) -> JointLimits:
    """Return the limits of one of several arms."""
    own = slice(number * len(JOINT_NAMES), (number + 1) * len(JOINT_NAMES))
    return JointLimits(*(getattr(limits, name)[own] for name in (
        'lower', 'upper', 'velocity', 'acceleration', 'jerk')))


def rig_params(options: RigOptions) -> dict[str, object]:
    """Return every parameter of a rig."""
    values: dict[str, object] = {}
    for node in (SIMULATOR, ENCODER, POLICY, BRIDGE):
        values.update(defaults(node))
    return {**values, **LIMITS, 'policy.name': 'oracle', 'chunk.execute_steps': 5,
            **options.params}
