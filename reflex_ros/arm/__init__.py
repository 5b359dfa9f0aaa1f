"""The arm: one protocol, a driver over the vendor SDK, and a direct arm for virtual runs."""
