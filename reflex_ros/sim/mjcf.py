"""The scene as MuJoCo XML: a PiPer of primitive bodies, written out from its DH table.

Two variants of the table are in the field: firmware from 1.6-3 on (``new``, the SDK's default)
shifts the zeros of joints 2 and 3 by two degrees against older arms (``old``). Bodies, cameras and
gains are constants on purpose: a policy trained on this scene sees exactly this scene.
Masses and gains are plausible, not measured; gravity is compensated, as the real drives hold.

Source: DH table of ``piper_sdk`` (kinematics/piper_fk.py), modified (Craig) convention.
"""

from __future__ import annotations

import math
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from reflex_ros.core.errors import ConfigError

Dh = Literal['new', 'old']

DEG = math.pi / 180


class DhRow(NamedTuple):
    """One row: ``alpha`` [rad] and ``a`` [m] of the previous link, ``theta`` offset, ``d``."""

    alpha: float
    a: float
    theta: float
    d: float


OFFSETS_DEG = MappingProxyType({'new': (-172.22, -102.78), 'old': (-174.22, -100.78)})
"""Zero offsets of joints 2 and 3 by variant."""

JOINT_RANGE = ((-2.6179, 2.6179), (0.0, 3.14), (-2.967, 0.0), (-1.745, 1.745), (-1.22, 1.22),
               (-2.09439, 2.09439))
"""Joint limits that the SDK enforces, rad."""

GRIPPER_RANGE_M = (0.0, 0.07)
"""Total opening of the gripper, m."""

MAX_SPEED_RAD_S = 3.0
"""Fastest drive target of every joint, rad/s."""

HOME = (0.0, 1.2, -1.35, 0.0, 0.9, 0.0)
"""Home pose of the tasks, rad: gripper over the table, looking down."""

TIP_OFFSET_M = 0.122
"""Tool point beyond the flange along its z axis, m."""

CAMERAS = ('main', 'front', 'side', 'wrist')

_GAINS = ((80, 5), (80, 5), (80, 5), (40, 4), (30, 2), (20, 1))
_LINKS = (
    'type="cylinder" size=".045 .035" pos="0 0 -.02" rgba=".59 .59 .59 1" mass=".71"',
    'type="capsule" size=".032" fromto="0 0 0 .28503 0 0" rgba=".82 .15 .15 1" mass="1.17"',
    'type="capsule" size=".028" fromto="0 0 0 -.02198 -.20 0" rgba=".59 .59 .59 1" mass=".50"',
    'type="cylinder" size=".03 .03" pos="0 0 -.02" rgba=".14 .14 .14 1" mass=".38"',
    'type="capsule" size=".026" fromto="0 0 0 0 -.06 0" rgba=".59 .59 .59 1" mass=".38"',
    'type="box" size=".03 .045 .03" pos="0 0 .035" rgba=".14 .14 .14 1" mass=".45"',
)
# Neighbouring primitives overlap; the real links cannot touch there.
_NO_CONTACT = (('base', 'link1'), ('base', 'link2'), ('link1', 'link2'), ('link2', 'link3'),
               ('link1', 'link3'), ('link3', 'link4'), ('link3', 'link5'), ('link4', 'link5'),
               ('link5', 'link6'), ('link4', 'link6'))

_HAND = f"""\
<site name="tip" pos="0 0 {TIP_OFFSET_M}" size=".006" rgba="0 1 0 0"/>
<camera name="wrist" pos=".07 0 .02" xyaxes="0 1 0 1 0 .25" fovy="75"/>
"""
_FINGER = """\
<body name="finger_{side}" pos="0 0 .135" gravcomp="1">
<joint name="finger_{side}" class="finger" axis="0 {sign} 0" range="0 .035"/>
<geom class="pad" pos="0 {offset} -.03" size=".010 .004 .030" rgba=".75 .75 .78 1" mass=".03"/>
</body>
"""

_HEAD = """\
<compiler angle="radian" autolimits="true"/>
<option timestep="{timestep_s}" integrator="implicitfast" cone="elliptic" impratio="10"/>
<visual>
<global offwidth="1280" offheight="960"/>
<quality shadowsize="0" offsamples="0"/>
</visual>
<default>
<default class="arm"><joint armature=".02" damping=".5" frictionloss=".03"/></default>
<default class="finger"><joint type="slide" armature=".01" damping="1"/></default>
<default class="link"><geom contype="2" conaffinity="1" condim="3"/></default>
<default class="pad"><geom type="box" contype="2" conaffinity="1" condim="4"
 friction="2 .05 .001" solref=".008 1"/></default>
<default class="static"><geom contype="1" conaffinity="3"/></default>
<default class="drawer"><geom contype="1" conaffinity="2"/></default>
</default>
"""

_ROOM = """\
<light pos=".3 -.5 1.5" dir="0 .3 -1" diffuse=".7 .7 .7" castshadow="false"/>
<light pos=".3 .6 1.2" dir="0 -.4 -1" diffuse=".4 .4 .4" castshadow="false"/>
<geom name="table" class="static" type="box" pos=".3 0 -.02" size=".45 .5 .02"
 rgba=".85 .80 .70 1"/>
<camera name="front" pos=".95 0 .55" xyaxes="0 1 0 -.58 0 .81" fovy="50"/>
<camera name="main" pos=".80 0 .75" xyaxes="0 1 0 -.80 0 .598" fovy="38"/>
<camera name="side" pos=".33 -.75 .55" xyaxes="1 0 0 0 .55 .83" fovy="50"/>
"""

_PROPS = """\
<body name="cube" pos=".32 .05 .02"><freejoint name="cube"/>
<geom name="cube" class="static" type="box" size=".018 .018 .018" mass=".05"
 rgba=".1 .35 .9 1" condim="4" friction="1.2 .02 .001"/>
</body>
<body name="bin" pos=".28 -.25 0">
<geom class="static" type="box" size=".06 .06 .003" pos="0 0 .003" rgba=".2 .6 .3 1"/>
<geom class="static" type="box" size=".06 .004 .02" pos="0 .06 .02" rgba=".2 .6 .3 1"/>
<geom class="static" type="box" size=".06 .004 .02" pos="0 -.06 .02" rgba=".2 .6 .3 1"/>
<geom class="static" type="box" size=".004 .06 .02" pos=".06 0 .02" rgba=".2 .6 .3 1"/>
<geom class="static" type="box" size=".004 .06 .02" pos="-.06 0 .02" rgba=".2 .6 .3 1"/>
</body>
<body name="cabinet" mocap="true" pos=".52 .24 0">
<geom class="static" type="box" size=".08 .10 .004" pos="0 0 .004" rgba=".5 .4 .3 1"/>
<geom class="static" type="box" size=".08 .10 .004" pos="0 0 .130" rgba=".5 .4 .3 1"/>
<geom class="static" type="box" size=".08 .004 .06" pos="0 .10 .066" rgba=".5 .4 .3 1"/>
<geom class="static" type="box" size=".08 .004 .06" pos="0 -.10 .066" rgba=".5 .4 .3 1"/>
<body name="drawer" pos="-.02 0 .07">
<joint name="drawer" type="slide" axis="-1 0 0" range="0 .14" damping="6" frictionloss=".4"/>
<geom class="drawer" type="box" size=".06 .085 .004" pos="0 0 -.045"
 rgba=".65 .5 .35 1" mass=".1"/>
<geom class="drawer" type="box" size=".005 .09 .05" pos="-.07 0 0"
 rgba=".65 .5 .35 1" mass=".1"/>
<geom name="handle" class="drawer" type="capsule" size=".007" fromto="-.12 -.03 0 -.12 .03 0"
 rgba=".9 .8 .1 1" mass=".03" condim="4" friction="1.5 .02 .001"/>
<geom class="drawer" type="capsule" size=".005" fromto="-.12 -.03 0 -.07 -.03 0"
 rgba=".9 .8 .1 1" mass=".01"/>
<geom class="drawer" type="capsule" size=".005" fromto="-.12 .03 0 -.07 .03 0"
 rgba=".9 .8 .1 1" mass=".01"/>
<site name="handle" pos="-.12 0 0" size=".004" rgba="1 0 0 0"/>
</body>
</body>
<body name="target" mocap="true" pos=".35 0 .2">
<geom name="target" type="sphere" size=".024" rgba=".95 .1 .75 1" contype="0" conaffinity="0"/>
</body>
"""


@cache
def dh_table(dh: Dh = 'new') -> tuple[DhRow, ...]:
    """Return the six rows of the modified DH table, m and rad.

    Raises:
        ConfigError: Unknown variant.
    """
    if dh not in OFFSETS_DEG:
        raise ConfigError(f'DH variant: got {dh!r}, expected one of {list(OFFSETS_DEG)}.'
                          ' Use new for firmware from 1.6-3 on.')
    shoulder, elbow = (offset * DEG for offset in OFFSETS_DEG[dh])
    return (DhRow(0.0, 0.0, 0.0, 0.123), DhRow(-90 * DEG, 0.0, shoulder, 0.0),
            DhRow(0.0, 0.28503, elbow, 0.0), DhRow(90 * DEG, -0.02198, 0.0, 0.25075),
            DhRow(-90 * DEG, 0.0, 0.0, 0.0), DhRow(90 * DEG, 0.0, 0.0, 0.091))


def _pose(row: DhRow) -> str:
    """Return the pos and quat attributes of a link at joint zero: Rx(alpha) then Rz(theta)."""
    half_a, half_t = row.alpha / 2, row.theta / 2
    quat = (math.cos(half_a) * math.cos(half_t), math.sin(half_a) * math.cos(half_t),
            -math.sin(half_a) * math.sin(half_t), math.cos(half_a) * math.sin(half_t))
    position = (row.a, -math.sin(row.alpha) * row.d, math.cos(row.alpha) * row.d)
    numbers = ' '.join(f'{value:.9f}' for value in position)
    return f'pos="{numbers}" quat="' + ' '.join(f'{value:.12f}' for value in quat) + '"'


def _arm(dh: Dh) -> str:
    """Return the nested bodies base, link1 .. link6 and two fingers."""
    base = ('<body name="base" gravcomp="1"><geom class="link" type="cylinder" size=".055 .05"'
            ' pos="0 0 .05" rgba=".3 .3 .3 1" mass=".5"/>\n')
    parts = [base]
    for i, row in enumerate(dh_table(dh)):
        low, high = JOINT_RANGE[i]
        parts.append(f'<body name="link{i + 1}" {_pose(row)} gravcomp="1">\n'
                     f'<joint name="joint{i + 1}" class="arm" axis="0 0 1"'
                     f' range="{low} {high}"/>\n<geom class="link" {_LINKS[i]}/>\n')
    parts.append(_HAND)
    for side, sign in (('l', 1), ('r', -1)):
        parts.append(_FINGER.format(side=side, sign=sign, offset=sign * 0.004))
    return ''.join(parts) + '</body>' * 7 + '\n'


def _drives() -> str:
    """Return the position actuators of six joints and the gripper."""
    rows = [f'<position name="joint{i + 1}" joint="joint{i + 1}" kp="{kp}" kv="{kv}"'
            f' ctrlrange="{JOINT_RANGE[i][0]} {JOINT_RANGE[i][1]}" forcerange="-100 100"/>\n'
            for i, (kp, kv) in enumerate(_GAINS)]
    rows.append('<position name="gripper" joint="finger_l" kp="400" kv="20" ctrlrange="0 .035"'
                ' forcerange="-15 15"/>\n')
    return ''.join(rows)


def scene_xml(dh: Dh = 'new', *, timestep_s: float = 0.004, props: bool = True) -> str:
    """Return the scene as MJCF text; equal arguments give equal text.

    Args:
        dh: Variant of the DH table.
        timestep_s: Physics step, s.
        props: With cube, bin, cabinet and target; without them only the arm on its table.

    Raises:
        ConfigError: Unknown variant.
    """
    apart = ''.join(f'<exclude body1="{a}" body2="{b}"/>\n' for a, b in _NO_CONTACT)
    return (f'<mujoco model="piper">\n{_HEAD.format(timestep_s=timestep_s)}'
            f'<worldbody>\n{_ROOM}{_arm(dh)}{_PROPS if props else ""}</worldbody>\n'
            f'<contact>\n{apart}</contact>\n'
            '<equality><joint joint1="finger_r" joint2="finger_l" polycoef="0 1 0 0 0"/>'
            f'</equality>\n<actuator>\n{_drives()}</actuator>\n</mujoco>\n')
