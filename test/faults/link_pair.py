"""Two network namespaces of this machine and the cable between them, of a quality of our choice.

A process with the rights of root. Both ends are TAP devices whose other side is this program: it
carries Ethernet frames from one to the other, late, or not at all. Neither namespace has a way to
anywhere else. They end with this process.

Prints its pid and a file descriptor of each namespace: ``nsenter --net=/proc/PID/fd/FD COMMAND``.
Then reads lines ``DELAY_MS LOSS`` for each of the two ways; a loss of 1 is a cut cable.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

ADDRESSES = ('10.77.0.1', '10.77.0.2')
CLONE_NEWNET, TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x40000000, 0x400454CA, 0x0002, 0x1000
LIBC = ctypes.CDLL(None, use_errno=True)


def end_of_cable(address):
    """Enter a new namespace with one device; return its file and that of the namespace."""
    if LIBC.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), 'no network namespace')
    device = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack('16sH', b'link0', IFF_TAP | IFF_NO_PI))
    for words in ('link set lo up', f'addr add {address}/24 dev link0', 'link set link0 up'):
        subprocess.run(['ip', *words.split()], check=True)
    return device, os.open('/proc/self/ns/net', os.O_RDONLY)


class Cable:
    """Carries frames between two devices."""

    def __init__(self, devices):
        self._other = dict(zip(devices, reversed(devices), strict=True))
        self._random = random.Random(0)
        self._under_way = []
        self._carried = 0
        self.delay_s, self.loss = 0.0, 0.0

    def carry(self):
        """Move what is there and due, for a second at most; return whether we are told more."""
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, device, frame = heapq.heappop(self._under_way)
            try:
                os.write(device, frame)
            except OSError:  # the device is down
                continue
        wait = max(0.0, self._under_way[0][0] - now) if self._under_way else 1.0
        ready, _, _ = select.select([*self._other, sys.stdin.fileno()], [], [], wait)
        for device in self._other:
            if device in ready:
                self._take(device)
        return sys.stdin.fileno() in ready

    def _take(self, device):
        frame = os.read(device, 1 << 16)
        self._carried += 1
        if self._random.random() >= self.loss:
            heapq.heappush(self._under_way, (
                time.monotonic() + self.delay_s, self._carried, self._other[device], frame))


def main():
    """Carry until our input ends."""
    os.setpriority(os.PRIO_PROCESS, 0, -10)  # a busy machine is no bad cable
    ends = [end_of_cable(address) for address in ADDRESSES]
    print(os.getpid(), *(namespace for _, namespace in ends), flush=True)
    cable = Cable([device for device, _ in ends])
    while True:
        if cable.carry():
            words = os.read(sys.stdin.fileno(), 4096).decode().split()
            if not words:
                return
            cable.delay_s, cable.loss = float(words[-2]) / 1e3, float(words[-1])


if __name__ == '__main__':
    main()
