"""One writer, several readers, fixed slots in shared memory.

Level L1: imports ``core`` only. The control block is host memory (``control``); the payload lives
behind ``store.BlockStore``. ``ring`` is the protocol, ``handoff`` the way to another process.
"""
