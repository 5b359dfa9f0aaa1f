"""What the camera topics carry: rate, age, frozen content, encoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from reflex_ros.core.clock import MS, S
from reflex_ros.core.stats import quantiles
from reflex_ros.doctor.leftovers import CLEAN, dead_ports
from reflex_ros.doctor.model import Finding, fail, ok, skip, warn

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Context
    from reflex_ros.ros.camera_log import CameraLog

RATE_WARN, RATE_FAIL = 0.9, 0.5
"""Shares of the declared rate."""
GAP_PERIODS = 3.0
FUTURE_MS = -5.0
"""A stamp this far ahead of our clock comes from another clock."""
FROZEN_RUN = 5
"""Equal images in a row; sensor noise changes every one."""
REPEAT_SHARE = 0.02
NATIVE = ('rgb8', 'bgr8', 'mono8', 'jpeg', 'png')


def rate(context: Context) -> Iterable[Finding]:
    """Judge the rate of each topic and its largest gap."""
    period_s = context.choices.camera_period_s
    for topic, log in _watched(context):
        if not log.arrivals_ns:
            yield _silent(topic, log, context.choices.seconds, ports=dead_ports(context.host))
            continue
        if len(log.arrivals_ns) < 3:
            yield fail(f'{len(log.arrivals_ns)} images in {log.seconds:.1f} s',
                       f'ros2 topic hz {topic}; restart the camera driver', subject=topic,
                       frames=len(log.arrivals_ns))
            continue
        yield _rated(topic, log, period_s)


def _rated(topic: str, log: CameraLog, period_s: float) -> Finding:
    gaps = [(b - a) / S for a, b in zip(log.arrivals_ns, log.arrivals_ns[1:], strict=False)]
    hz, wanted = len(gaps) / sum(gaps), 1 / period_s
    gap = quantiles(gaps)
    about = {'hz': round(hz, 2), 'expected_hz': round(wanted, 2), 'frames': len(log.arrivals_ns),
             'gap_p99_ms': 1e3 * gap['p99'], 'gap_max_ms': 1e3 * gap['max']}
    text = f'{hz:.1f} Hz of {wanted:.1f}, largest gap {1e3 * gap["max"]:.0f} ms'
    todo = ('Set the rate of the camera, give it a USB 3 port of its own, lower its resolution, '
            f'or say what it really is: camera.period_s: {1 / hz:.4f}')
    if hz < RATE_FAIL * wanted:
        return fail(text, todo, subject=topic, about=about)
    if hz < RATE_WARN * wanted or gap['max'] > GAP_PERIODS * period_s:
        return warn(text, todo, subject=topic, about=about)
    return ok(text, subject=topic, about=about)


def _silent(topic: str, log: CameraLog, seconds: float, *, ports: tuple[str, ...]) -> Finding:
    if log.errors:
        return fail(f'no usable image: {log.errors[0]}', 'Set the camera to rgb8.', subject=topic)
    if ports:
        return fail(f'no image in {seconds:g} s; killed processes left {len(ports)} ports of '
                    'shared memory in this domain: nodes do not hear each other for seconds',
                    f'{CLEAN}; then look again', subject=topic, publishers=len(log.kinds),
                    dead_ports=len(ports))
    if log.kinds:
        return fail(f'no image in {seconds:g} s, but a publisher of {", ".join(log.kinds)}',
                    f'ros2 topic info -v {topic}   # type and QoS; /compressed in the name makes '
                    'it CompressedImage', subject=topic, publishers=len(log.kinds))
    return fail('nobody publishes it', 'Start the camera driver, in the same ROS_DOMAIN_ID: '
                'ros2 topic list | grep image', subject=topic, publishers=0)


def age(context: Context) -> Iterable[Finding]:
    """Judge how old images are when they arrive."""
    most_ms = 1e3 * float(context.choices.params['camera.max_age_s'])  # type: ignore[arg-type]
    for topic, log in _seen(context):
        ages = [value / MS for value in log.ages_ns]
        found = quantiles(ages)
        about = {'p50_ms': found['p50'], 'p99_ms': found['p99'], 'max_ms': found['max'],
                 'min_ms': min(ages), 'n': len(ages)}
        text = f'p50 {found["p50"]:.0f}, p99 {found["p99"]:.0f}, max {found["max"]:.0f} ms'
        if min(ages) < FUTURE_MS:
            yield fail(f'{text}; stamped up to {-min(ages):.0f} ms in the future',
                       'The camera computer has another clock: run chrony on both, or stamp on '
                       'this machine.', subject=topic, about=about)
        elif found['p50'] > most_ms:
            yield fail(f'{text}; older than {most_ms:.0f} ms makes no observation',
                       'Lower the resolution, use the DDS profile (dds-profile), stamp at capture '
                       'with this clock.', subject=topic, about=about)
        elif found['p99'] > most_ms:
            yield warn(f'{text}; the oldest miss {most_ms:.0f} ms', 'Lower the resolution, use '
                       'the DDS profile (dds-profile).', subject=topic, about=about)
        else:
            yield ok(text, subject=topic, about=about)


def frozen(context: Context) -> Iterable[Finding]:
    """Judge whether the content of the images changes."""
    for topic, log in _seen(context):
        longest, repeats = runs(log.hashes)
        share = repeats / max(1, len(log.hashes) - 1)
        about = {'longest_run': longest, 'repeats': repeats, 'n': len(log.hashes)}
        if longest >= FROZEN_RUN or (len(log.hashes) > 1 and longest == len(log.hashes)):
            yield fail(f'frozen: {longest} equal images in a row', 'Restart the camera driver; '
                       'check the USB cable: dmesg | tail', subject=topic, about=about)
        elif share > REPEAT_SHARE:
            yield warn(f'{repeats} of {len(log.hashes)} images repeat the one before',
                       'The driver publishes faster than the sensor: lower its rate.',
                       subject=topic, about=about)
        else:
            yield ok(f'{len(log.hashes)} images, all different from the one before'
                     if not repeats else f'{repeats} of {len(log.hashes)} repeat',
                     subject=topic, about=about)


def runs(hashes: list[int]) -> tuple[int, int]:
    """Return the longest run of equal values and how many equal the one before."""
    longest, current, repeats = (1 if hashes else 0), 1, 0
    for before, now in zip(hashes, hashes[1:], strict=False):
        current = current + 1 if now == before else 1
        repeats += now == before
        longest = max(longest, current)
    return longest, repeats


def encoding(context: Context) -> Iterable[Finding]:
    """Judge encoding and size."""
    for topic, log in _seen(context):
        width, height = log.size
        shown = f'{log.encoding}, {width}x{height}'
        about = {'encoding': log.encoding, 'width': width, 'height': height,
                 'refused': len(log.errors)}
        if log.errors:
            yield fail(f'{shown}: {log.errors[0]}', 'Set the camera to rgb8.', subject=topic,
                       about=about)
        elif log.encoding not in NATIVE:
            yield warn(f'{shown} needs cv_bridge for each image', 'Set the camera to rgb8.',
                       subject=topic, about=about)
        else:
            yield ok(shown, subject=topic, about=about)


def _watched(context: Context) -> Iterator[tuple[str, CameraLog]]:
    logs = context.cameras() if context.choices.cameras else {}
    for topic in context.choices.cameras.values():
        if topic in logs:
            yield topic, logs[topic]


def _seen(context: Context) -> Iterator[tuple[str, CameraLog]]:
    """Yield the topics that carried something; the others have one line already."""
    return ((topic, log) for topic, log in _watched(context) if log.arrivals_ns)


def unseen(context: Context) -> Iterable[Finding]:
    """Return why nothing was looked at."""
    if not context.choices.cameras:
        return [skip('no camera named', 'Give --params-file my_robot.yaml or --cameras TOPIC')]
    return [skip('no image arrived, see camera-rate')]
