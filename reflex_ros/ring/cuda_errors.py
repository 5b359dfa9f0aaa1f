"""What a failed call of the CUDA driver means, and what to do about it."""

from __future__ import annotations

from types import MappingProxyType

from reflex_ros.core.errors import ConfigError, ReflexError

_GPU_LOST = ('Restart the node: its GPU context is lost; if it comes back, look into '
             'dmesg | grep -i xid.')
_SPLIT = ('Run encoder and policy in one process (executable inference), or set ring.store '
          'to cpu.')
REMEDIES = MappingProxyType({
    'CUDA_ERROR_OUT_OF_MEMORY': 'Free GPU memory (nvidia-smi shows who has it), lower '
                                'ring.readers or ring.leases, or set ring.store to cpu.',
    'CUDA_ERROR_NO_DEVICE': 'Check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container start it '
                            'with --gpus all.',
    'CUDA_ERROR_INVALID_DEVICE': 'Check CUDA_VISIBLE_DEVICES and the number of the device.',
    'CUDA_ERROR_DEVICE_UNAVAILABLE': 'End the program that has the GPU for itself (nvidia-smi).',
    'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH': 'Restart the computer: the driver was updated while it '
                                         'was loaded.',
    'CUDA_ERROR_SYSTEM_NOT_READY': 'Start nvidia-fabricmanager, or restart the computer.',
    'CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE': 'Install the NVIDIA driver that cuda-bindings '
                                                 'was built for, or an older cuda-bindings.',
    'CUDA_ERROR_STUB_LIBRARY': 'Take the stubs folder of the CUDA toolkit out of LD_LIBRARY_PATH.',
    'NOT_IN_THIS_DRIVER': 'Update the NVIDIA driver, or install the cuda-bindings of its CUDA '
                          'version.',
    'CUDA_ERROR_NOT_SUPPORTED': _SPLIT,
    'CUDA_ERROR_NOT_PERMITTED': _SPLIT,
    'CUDA_ERROR_OPERATING_SYSTEM': _SPLIT,
    'CUDA_ERROR_INVALID_HANDLE': _SPLIT,
    'CUDA_ERROR_INVALID_VALUE': 'Start both sides with the same version and on the same GPU.',
    'CUDA_ERROR_ILLEGAL_ADDRESS': _GPU_LOST,
    'CUDA_ERROR_LAUNCH_FAILED': _GPU_LOST,
    'CUDA_ERROR_LAUNCH_TIMEOUT': _GPU_LOST,
    'CUDA_ERROR_ECC_UNCORRECTABLE': _GPU_LOST,
    'CUDA_ERROR_EXTERNAL_DEVICE': _GPU_LOST,
})
"""By code; any other gets the general advice of ``CudaError``."""
_PURPOSE = MappingProxyType({
    'cuInit': 'CUDA cannot be started',
    'cuDeviceGet': 'GPU cannot be found',
    'cuDevicePrimaryCtxRetain': 'GPU cannot be used',
    'cuMemCreate': 'ring memory cannot be allocated',
    'cuMemAlloc': 'ring memory cannot be allocated',
    'cuMemExportToShareableHandle': 'ring memory cannot be handed to another process',
    'cuMemImportFromShareableHandle': 'ring memory of another process cannot be opened',
    'cuMemAddressReserve': 'ring memory cannot be mapped',
    'cuMemMap': 'ring memory cannot be mapped',
    'cuMemSetAccess': 'ring memory cannot be mapped',
    'cuMemHostRegister': 'host memory cannot be pinned',
    'cuEventSynchronize': 'GPU did not finish its work',
})


class CudaError(ReflexError):
    """A call of the CUDA driver failed.

    Attributes:
        call: Name of the call. ``code``: Name of what it answered.
    """

    def __init__(self, call: str, code: str, *, device: int, size: int = 0) -> None:
        self.call, self.code = call, code
        what = _PURPOSE.get(call, 'call of the CUDA driver failed')
        about = f' for {size} bytes' if size else ''
        todo = REMEDIES.get(code, 'Run reflex-ros doctor --only ring-store; ring.store cpu does '
                                  'without the GPU.')
        super().__init__(f'{what} on GPU {device}: got {code} from {call}{about}, expected '
                         f'CUDA_SUCCESS. {todo}')


def no_package(error: ImportError, wanted: str) -> ConfigError:
    """Return the error of a machine without cuda-bindings."""
    return ConfigError(
        f'GPU memory cannot be used: got no package cuda.bindings ({error}), expected one. '
        f'pip install {wanted}   # or the version of your CUDA driver')


def no_driver(error: Exception) -> ConfigError:
    """Return the error of a machine without an NVIDIA driver."""
    text = str(error).split('. ')[0].splitlines()[0]
    return ConfigError(
        f'GPU memory cannot be used: got no NVIDIA driver ({text}), expected libcuda.so.1. '
        'Install the NVIDIA driver; in a container start it with --gpus all.')
