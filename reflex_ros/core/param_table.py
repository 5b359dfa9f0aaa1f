"""Every parameter of every node: name, default, unit, range and meaning.

Read by ``core.params``, which checks values and writes ``docs/parameters.md``. SI units only. A
parameter that several nodes take must have one value: set it under ``/**``.
"""

from __future__ import annotations

from dataclasses import dataclass

BRIDGE = 'controller_bridge'
ENCODER = 'vision_encoder'
POLICY = 'policy'
RECORDER = 'recorder'
SIMULATOR = 'simulator'
NODES = (BRIDGE, ENCODER, POLICY, RECORDER, SIMULATOR)

Value = bool | int | float | str | tuple[str, ...] | tuple[float, ...]

PRESET = 'preset'
"""Choice that leaves a switch to the execution mode."""


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter.

    Attributes:
        name: ``group.name_unit``.
        default: Default; its type is the type of the parameter (an empty tuple: of strings).
        unit: Unit, '' if it has none.
        doc: Meaning.
        nodes: Nodes that take it.
        bounds: Smallest and largest value, also of each element of an array.
        choices: Allowed values.
        read_only: Whether it can be set only before the node is configured.
    """

    name: str
    default: Value
    unit: str
    doc: str
    nodes: tuple[str, ...] = (BRIDGE,)
    bounds: tuple[float, float] | None = None
    choices: tuple[str, ...] | None = None
    read_only: bool = True


# fmt: off
RUN = (
    ParamSpec('run.folder', '', '', 'Folder of the run: ledger, bag, reports. Empty: a new one '
              'under `runs/`.', (BRIDGE, RECORDER, SIMULATOR)),
    ParamSpec('run.instruction', '', '', 'Instruction at start; later `set_instruction`.'),
    ParamSpec('run.autostart', False, '', 'Whether activation itself is the request to move; '
              'otherwise the arm holds until `resume`.'),
)

CONTROL = (
    ParamSpec('control.rate_hz', 50.0, 'Hz', 'Rate of the control loop.', bounds=(10.0, 200.0)),
    ParamSpec('control.realtime_priority', 20, '', 'FIFO priority of the control loop and the bus '
              'threads, where the system allows it. 0: normal scheduling.', (BRIDGE, SIMULATOR),
              (0, 99)),
    ParamSpec('control.core', -1, '', 'CPU core of the control loop and the bus threads, best one '
              'that nothing else uses (`isolcpus`). -1: any.', bounds=(-1, 1023)),
)

CHUNK = (
    ParamSpec('chunk.mode', 'reflex', '', 'Execution mode, a preset of the switches below.',
              (BRIDGE, ENCODER, POLICY), choices=('sync', 'async_naive', 'reflex')),
    ParamSpec('chunk.execute_steps', 0, 'steps', 'Rows meant to be executed before a chunk is '
              'replaced. 0: what the checkpoint says.', (BRIDGE, POLICY), (0, 1000)),
    ParamSpec('chunk.horizon', 0, 'steps', 'Rows of a chunk that may be executed at all. 0: all.',
              (POLICY,), (0, 1000)),
    ParamSpec('chunk.margin_steps', 1, 'steps', 'How much earlier than the measured latency asks '
              'for an inference is started.', (POLICY,), (0, 50)),
    ParamSpec('chunk.threshold', 0.7, '', 'Share of a chunk that is left when the next one is '
              'asked for, under `chunk.request: threshold`. A smaller one needs a larger '
              '`safety.max_observation_age_s`.', (POLICY,), (0.0, 1.0)),
    ParamSpec('chunk.entry', PRESET, '', 'First executed row: 0, or the row that is due.',
              (BRIDGE, POLICY), choices=(PRESET, 'restart', 'aligned')),
    ParamSpec('chunk.request', PRESET, '', 'When the next inference starts.', (BRIDGE, POLICY),
              choices=(PRESET, 'continuous', 'threshold', 'overlap', 'settled')),
    ParamSpec('chunk.stitch', PRESET, '', 'How a new chunk joins the running one.',
              (BRIDGE, POLICY), choices=(PRESET, 'replace', 'blend', 'rtc')),
    ParamSpec('chunk.soft_steps', 2, 'steps', 'Stitcher `rtc`: rows behind those that are already '
              'committed over which the hold on the running plan fades. More: smaller seams, '
              'slower reaction.', (POLICY,), bounds=(0, 1000)),
    ParamSpec('chunk.state_source', PRESET, '', 'State that conditions an inference. The preset '
              'of `reflex` is the predicted one; `tiny` follows better from the measured one.',
              (BRIDGE, ENCODER, POLICY), choices=(PRESET, 'measured', 'predicted')),
    ParamSpec('chunk.row0', PRESET, '', 'Instant of row 0. The preset follows the state; the '
              'mixed pairs are ablations that count the delay twice or not at all.', (POLICY,),
              choices=(PRESET, 'observation', 'first_execution')),
    ParamSpec('chunk.blend_s', 0.06, 's', 'Time in which the step at a seam is blended away.',
              bounds=(0.0, 1.0)),
    ParamSpec('chunk.blend_above_rad', 0.05, 'rad', 'A chunk with a larger joint step at the '
              'switch is blended even under `replace`, for as long as the limits need, 0.5 s at '
              'most. If no such blend fits it joins as it asks, but joints go at most '
              '`safety.catch_up_factor` times as fast as it asks for. 10 leaves every chunk as it '
              'asks.', bounds=(0.0, 10.0)),
)

DELAY = (
    ParamSpec('delay.initial_latency_s', 0.15, 's', 'Latency L (inference start to acceptance) '
              'before it is measured.', bounds=(0.0, 5.0)),
    ParamSpec('delay.initial_delta_s', 0.25, 's', 'Delay Δ (observation to first command) before '
              'it is measured.', bounds=(0.0, 5.0)),
    ParamSpec('delay.window', 50, 'chunks', 'Newest chunks from which L and Δ are estimated.',
              bounds=(1, 10_000)),
    ParamSpec('delay.quantile', 0.95, '', 'Quantile of them.', bounds=(0.5, 1.0)),
    ParamSpec('delay.warmup', 3, 'chunks', 'First chunks that are left out.', bounds=(0, 1000)),
    ParamSpec('delay.injected_s', 0.0, 's', 'Inference start to publication is padded to at least '
              'this, in every mode.', (POLICY,), (0.0, 5.0)),
)

SAFETY = (
    ParamSpec('safety.max_observation_age_s', 0.5, 's', 'A chunk is dead once its oldest frame is '
              'older than this.', bounds=(0.05, 10.0)),
    ParamSpec('safety.max_tracking_error_rad', 0.25, 'rad', 'Larger joint errors mean contact, '
              'slip or saturation: the measured state is used.', (BRIDGE, ENCODER, POLICY),
              (0.01, 3.0)),
    ParamSpec('safety.contact_error_rad', 0.12, 'rad', 'A joint that lags this far behind and has '
              'more torque than `safety.contact_effort_nm` for 0.1 s pushes against something: it '
              'gives way and waits for `resume`.', bounds=(0.01, 3.0)),
    ParamSpec('safety.contact_effort_nm', (8.0, 8.0, 8.0, 3.0, 3.0, 3.0), 'N·m', 'That torque, of '
              'joint1 to joint6, estimated from the current.', bounds=(0.1, 100.0)),
    ParamSpec('safety.feedback_timeout_s', 0.1, 's', 'Without feedback for longer the arm is '
              'faulted and nothing is sent.', bounds=(0.02, 1.0)),
    ParamSpec('safety.state_timeout_s', 0.05, 's', 'Older feedback is not used as a state.',
              bounds=(0.01, 1.0)),
    ParamSpec('safety.speed_scale', 0.3, '', 'Share of every velocity limit. Keep it low for the '
              'first runs of a checkpoint on a robot.', bounds=(0.01, 1.0)),
    ParamSpec('safety.acceleration_scale', 1.0, '', 'Share of every acceleration limit.',
              bounds=(0.01, 1.0)),
    ParamSpec('safety.jerk_scale', 1.0, '', 'Share of every jerk limit.', bounds=(0.01, 1.0)),
    ParamSpec('safety.ramp_s', 0.5, 's', 'Duration of the ramp from the held pose into the first '
              'chunk.', bounds=(0.1, 10.0)),
    ParamSpec('safety.catch_up_factor', 1.25, '', 'A joint that is behind its chunk, after a hold '
              'that ended by itself, lost ticks or a step that no blend takes up, is at most so '
              'many times as fast as the chunk over 0.1 s, which counts as 0.4 rad/s at least.',
              bounds=(1.1, 1000.0)),
    ParamSpec('safety.max_seam_rad', 0.5, 'rad', 'A chunk with a larger joint step at the switch '
              'is rejected, unless it lies between two motions and a blend of 0.5 s at most takes '
              'it up within the limits. What the joint can move at its '
              'velocity limit in the time since the observation comes on top, except for row 0 of '
              'a chunk that ends a rest.',
              bounds=(0.01, 3.0)),
)

_ARM = (BRIDGE, SIMULATOR)

ARM = (
    ParamSpec('arm.prefix', '', '', 'Put before the joint names `joint1` to `joint6` and '
              '`gripper`, e.g. `left_`.', NODES),
    ParamSpec('arm.several', (), '', 'Several arms in one bridge, each as `name=channel`, e.g. '
              '`left=can_left`, `right=can_right`: joints `left_joint1` to `right_gripper`, one '
              'CAN channel each, everything else alike. Empty: the one arm of `arm.prefix` and '
              '`arm.channel`.'),
    ParamSpec('arm.transport', 'socketcan', '', 'How CAN is reached: the kernel, a socketcand '
              'server, or without CAN an arm in the same process.', _ARM,
              choices=('socketcan', 'socketcand', 'direct')),
    ParamSpec('arm.channel', 'can0', '', 'CAN channel.', _ARM),
    ParamSpec('arm.host', '127.0.0.1', '', 'Host of the socketcand server.', _ARM),
    ParamSpec('arm.port', 29536, '', 'Its TCP port.', _ARM, (1, 65534)),
    ParamSpec('arm.bitrate', 1_000_000, 'bit/s', 'Bit rate that the channel must have.',
              bounds=(10_000, 1_000_000)),
    ParamSpec('arm.dh', 'new', '', 'Kinematics of the firmware: `new` from 1.6-3 on.', _ARM,
              choices=('new', 'old')),
    ParamSpec('arm.min_firmware', '1.7-3', '', 'Oldest firmware that is enabled.'),
    ParamSpec('arm.send', True, '', 'False: shadow mode, everything runs but nothing is sent.'),
    ParamSpec('arm.speed_percent', 100, '%', 'Share of the top speed that the firmware itself '
              'allows; scales the velocity limits too.', bounds=(1, 100)),
    ParamSpec('arm.max_jump_rad', 0.35, 'rad', 'Largest joint step between two commands; a larger '
              'one is not sent.', bounds=(0.001, 3.0)),
    ParamSpec('arm.max_jump_m', 0.05, 'm', 'The same for the gripper.', bounds=(0.001, 0.1)),
    ParamSpec('arm.lower_rad', (-2.618, 0.0, -2.967, -1.745, -1.221, -2.094), 'rad',
              'Lower ends of the joints; the reported ranges narrow them.', _ARM, (-6.3, 6.3)),
    ParamSpec('arm.upper_rad', (2.618, 3.141, 0.0, 1.745, 1.221, 2.094), 'rad',
              'Upper ends of the joints.', _ARM, (-6.3, 6.3)),
    ParamSpec('arm.velocity_rad_s', (3.0,) * 6, 'rad/s', 'Largest joint speeds.',
              bounds=(0.01, 10.0)),
    ParamSpec('arm.acceleration_rad_s2', (5.0,) * 6, 'rad/s²', 'Largest joint accelerations.',
              bounds=(0.1, 100.0)),
    ParamSpec('arm.jerk_rad_s3', (100.0,) * 6, 'rad/s³', 'Largest joint jerks.',
              bounds=(1.0, 10_000.0)),
    ParamSpec('arm.gripper_max_m', 0.07, 'm', 'Largest total opening; a smaller reported range '
              'wins.', (BRIDGE, SIMULATOR, ENCODER, POLICY), (0.001, 0.1)),
    ParamSpec('arm.gripper_velocity_m_s', 0.2, 'm/s', 'Largest opening speed.',
              bounds=(0.001, 1.0)),
    ParamSpec('arm.gripper_acceleration_m_s2', 2.0, 'm/s²', 'Largest opening acceleration.',
              bounds=(0.01, 50.0)),
    ParamSpec('arm.gripper_jerk_m_s3', 40.0, 'm/s³', 'Largest opening jerk.',
              bounds=(0.1, 1000.0)),
    ParamSpec('arm.gripper_torque_nm', 1.0, 'N·m', 'Torque bound of the gripper.',
              bounds=(0.0, 5.0)),
)

CAMERA = (
    ParamSpec('camera.names', ('main',), '', 'Cameras by the names of the checkpoint, in its '
              'order; the first one triggers.', (ENCODER, SIMULATOR, RECORDER)),
    ParamSpec('camera.masked', (), '', 'Cameras of the checkpoint that this robot lacks on '
              'purpose; the policy must have been trained to do without them.',
              (ENCODER, POLICY)),
    ParamSpec('camera.topics', (), '', 'Image topic of each camera; a name that ends in '
              '`/compressed` carries JPEG or PNG. Empty: `camera/<name>/image_raw`.',
              (ENCODER, SIMULATOR, RECORDER)),
    ParamSpec('camera.period_s', 0.04, 's', 'Time between two frames of a camera.',
              (ENCODER, SIMULATOR), (0.001, 1.0)),
    ParamSpec('camera.max_skew_s', 0.04, 's', 'Frames further apart make no observation.',
              (ENCODER,), (0.0, 1.0)),
    ParamSpec('camera.max_age_s', 0.15, 's', 'Older frames make no observation.', (ENCODER,),
              (0.01, 5.0)),
)

_MODEL = (ENCODER, POLICY)

ENCODER_GROUP = (
    ParamSpec('encoder.layout', 'auto', '', 'What is reused: whole prefixes, or frames of a '
              'window. `auto`: what the checkpoint is trained for; the other one is refused.',
              _MODEL, choices=('auto', 'snapshot', 'windowed')),
)

POLICY_GROUP = (
    ParamSpec('policy.name', 'tiny', '', 'Policy. `oracle` has no weights: it reads the true '
              'state of the simulator.', _MODEL,
              choices=('oracle', 'tiny', 'smolvla', 'pi0', 'pi05')),
    ParamSpec('policy.checkpoint', '', '', 'Folder of the checkpoint. Empty: the one shipped with '
              '`tiny`.', _MODEL),
    ParamSpec('policy.dtype', 'auto', '', 'Type in which the language model of a pretrained '
              'checkpoint computes. `auto`: the one of the checkpoint.', _MODEL,
              choices=('auto', 'float32', 'bfloat16')),
    ParamSpec('policy.traced', True, '', 'Run the action expert of a pretrained checkpoint on the '
              'CPU as graphs where `policy.acceleration` is `auto`. The first chunk with another '
              'number of prefix rows takes longer.', _MODEL),
    ParamSpec('policy.acceleration', 'auto', '', 'How a pretrained checkpoint is run: operation '
              'by operation (`eager`), the layers as graphs of the CPU (`traced`), or everything '
              'recorded once and replayed (`cuda_graph`, on a GPU). `auto`: the last one that the '
              'device has. One that it has not is refused.', _MODEL,
              choices=('auto', 'eager', 'traced', 'cuda_graph')),
    ParamSpec('policy.kernels', 'auto', '', 'What computes the steps between the products of the '
              'action expert: single operations (`none`), Triton kernels (`triton`), or the same '
              'larger steps in PyTorch (`plain`, for comparison). `auto`: on a GPU Triton where '
              'it is installed, else `plain`; on the CPU `none`.', _MODEL,
              choices=('auto', 'triton', 'plain', 'none')),
    ParamSpec('policy.prefix_dtype', 'auto', '', 'Type of the products of the prefix. `auto`: '
              'that of `policy.dtype`; `fp8`: 8-bit floats, after a comparison of the actions '
              'with and without them, see `policy.fp8_max_error_rad`.', _MODEL,
              choices=('auto', 'fp8')),
    ParamSpec('policy.fp8_max_error_rad', 0.01, 'rad', 'Largest change of a joint in any row of a '
              'chunk that `fp8` may make; of a gripper a tenth of it, in m. The policy is refused '
              'above.', _MODEL, (0.0, 1.0)),
    ParamSpec('policy.step_period_s', 0.0, 's', 'Time between two actions of the training data of '
              'a pretrained checkpoint, which does not load without it. 0: unknown.',
              (BRIDGE, POLICY), (0.0, 1.0)),
    ParamSpec('policy.state_text', 'real', '', 'Columns of the state in the text of `pi05`; '
              '`padded`: with zeros to the width of the checkpoint, as older exporters trained.',
              _MODEL, choices=('real', 'padded')),
    ParamSpec('policy.cache', 'partitioned', '', 'What the denoise steps reuse: the keys and '
              'values of images and language. For comparison: nothing (`full`, not for `tiny`), '
              'or those of the actions as well (`naive`, which is fast and wrong).', _MODEL,
              choices=('partitioned', 'full', 'naive')),
    ParamSpec('policy.pipeline', 'two_stream', '', 'Encoder and policy of one process: each on a '
              'thread of its own, or one step at a time (`serial`, for comparison).', _MODEL,
              choices=('two_stream', 'serial')),
    ParamSpec('policy.certificate', '', '', 'File of `reflex-ros verify --json`: blocks carry its '
              'hash. One of another checkpoint or type is refused.', (ENCODER,)),
    ParamSpec('policy.num_denoise_steps', 0, '', 'Steps of the flow from noise to action. 0: what '
              'the checkpoint says.', (POLICY,), (0, 100)),
    ParamSpec('policy.seed', 0, '', 'Seed of the noise.', (POLICY,), (0, 2**31 - 1)),
    ParamSpec('policy.device', 'auto', '', 'Device of a pretrained checkpoint. `auto`: an NVIDIA '
              'GPU if torch can use one, else the CPU. `tiny` computes on the CPU.', _MODEL,
              choices=('auto', 'cpu', 'cuda')),
    ParamSpec('policy.threads', 1, '', 'CPU threads of the model.', _MODEL, (1, 256)),
    ParamSpec('policy.joint_unit', 'undeclared', '', 'Unit of the joints in the training data of '
              'a pretrained checkpoint, which does not load without it.', _MODEL,
              choices=('undeclared', 'rad', 'deg')),
    ParamSpec('policy.gripper_unit', 'undeclared', '', 'Unit of the gripper there; `fraction`: 0 '
              'closed, 1 open; `percent`: 0 to 100.', _MODEL,
              choices=('undeclared', 'm', 'mm', 'fraction', 'percent')),
    ParamSpec('policy.joint_names', (), '', 'Columns of a pretrained checkpoint, in its order: '
              'the joint of each, or `column=joint` where the names differ by more than upper '
              'case, `_` and a final `.pos`. Empty: as the checkpoint stores them.', _MODEL),
)

RING = (
    ParamSpec('ring.store', 'auto', '', "Memory of the ring's payload. `auto`: where the model "
              'is, if that memory can be shared; `cuda` is refused where it cannot (docs/gpu.md).',
              _MODEL,
              choices=('auto', 'cpu', 'cuda')),
    ParamSpec('ring.readers', 1, '', 'Readers that may be attached at once.', (ENCODER,), (1, 16)),
    ParamSpec('ring.leases', 1, '', 'Slots that one reader may hold at once.', (ENCODER,),
              (1, 16)),
    ParamSpec('ring.timeout_s', 5.0, 's', "How long a reader waits for the encoder's socket.",
              (POLICY,), (0.1, 120.0)),
)

RECORDER_GROUP = (
    ParamSpec('recorder.storage', 'mcap', '', 'Format of the bag.', (RECORDER,),
              choices=('mcap', 'sqlite3')),
    ParamSpec('recorder.topics', (), '', 'Topics to record. Empty: everything that analysis and '
              'replay need.', (RECORDER,)),
    ParamSpec('recorder.images', False, '', 'Whether images are recorded as well.', (RECORDER,)),
    ParamSpec('recorder.compression', 'auto', '', 'How images are stored: as they come (`none`), '
              'without loss (`png`), or smaller (`jpeg`); `auto`: `none` for a bag, `jpeg` for '
              'snapshots.', (RECORDER,), choices=('auto', 'none', 'png', 'jpeg')),
    ParamSpec('recorder.snapshot_s', 0.0, 's', 'Instead of recording, the last seconds, images '
              'included, are kept in memory and written when a stall or a fault of the arm '
              'begins, or on request. 0: record.', (RECORDER,), (0.0, 600.0)),
    ParamSpec('recorder.snapshot_bytes', 2**28, 'B', 'Most bytes of images that are kept for a '
              'snapshot.', (RECORDER,), (2**20, 2**36)),
    ParamSpec('recorder.split_s', 0.0, 's', 'A new file after this time. 0: never.', (RECORDER,),
              (0.0, 86_400.0)),
    ParamSpec('recorder.split_bytes', 0, 'B', 'A new file after this size. 0: never.',
              (RECORDER,), (0, 2**40)),
)

SIMULATOR_GROUP = (
    ParamSpec('simulator.task', 'follow', '', 'What happens in the simulated world.', (SIMULATOR,),
              choices=('hold', 'reach', 'follow', 'jump', 'pick_place', 'drawer', 'recovery')),
    ParamSpec('simulator.seed', 0, '', 'Seed of the world, its events and the camera noise.',
              (SIMULATOR,), (0, 2**31 - 1)),
    ParamSpec('simulator.faults', '', '', 'Fault script (YAML). Empty: no faults.', (SIMULATOR,)),
    ParamSpec('simulator.port', 0, '', 'TCP port of the CAN server, where something listens '
              'between it and the bridge. 0: `arm.port`.', (SIMULATOR,), (0, 65534)),
    ParamSpec('simulator.replay', '', '', 'Bag whose arm and cameras take the place of the '
              'simulated ones. Empty: none.', (SIMULATOR,)),
    ParamSpec('simulator.physics_rate_hz', 250.0, 'Hz', 'Steps of the physics.', (SIMULATOR,),
              (100.0, 2000.0)),
    ParamSpec('simulator.camera_width', 64, 'px', 'Width of the rendered images.', (SIMULATOR,),
              (16, 1920)),
    ParamSpec('simulator.camera_height', 64, 'px', 'Height of the rendered images.',
              (SIMULATOR,), (16, 1080)),
)

# fmt: on
PARAMS: tuple[ParamSpec, ...] = (
    RUN + CONTROL + CHUNK + DELAY + SAFETY + ARM + CAMERA + ENCODER_GROUP + POLICY_GROUP + RING
    + RECORDER_GROUP + SIMULATOR_GROUP
)
"""The table, in the order of the documentation."""
