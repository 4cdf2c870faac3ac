# SPDX-License-Identifier: Apache-2.0
"""Devices that models run on: the CPU, CUDA, and Numba's simulator of CUDA.

A device has tensors of byte rows, a stream of transfers, and a pull that reads packets from the
host's buffers. All of them copy with PyTorch. On the CPU, a thread stands in for the stream of
transfers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from n3ic.errors import N3icError, UsageError
from n3ic.systems.stream.messages.buffers import PacketBuffers
from n3ic.systems.stream.messages.protocol import HEADER_BYTES

_THREADS = 128  # threads of a block of the kernel
_PORTABLE, _MAPPED, _READ_ONLY = 1, 2, 8  # flags of cudaHostRegister
_SIMULATED_THREADS = 4  # each is a Python thread
_Made = TypeVar("_Made")
START, ROW, OFFSET, BYTES = range(4)  # columns of a ring of packets


class DeviceMemoryError(N3icError):
    """The device does not have enough memory."""


class TransferMark(Protocol):
    """A point in a device's stream of transfers."""

    def done(self) -> bool:
        """Return whether all transfers before it are done."""

    def result(self) -> Any:
        """Wait until all transfers before it are done."""


class TransferDevice:
    """A device: its memory, its transfers and where models compute. This one is the CPU.

    Its stream of transfers is a thread, which reads packet buffers in place.

    Args:
        memory_bytes: the most bytes of its memory to use; None for all.

    Attributes:
        name: ``cpu``, ``cuda`` or ``simulator``.
        torch_device: where tensors and models are.
        ran: the device that ran, or what stood in for it, in words.
        busy_ns: CPU time of transfers in the device's thread; 0 on a GPU.
    """

    name = "cpu"
    ran = "the CPU took the device's part: no CUDA ran"
    torch_device: torch.device = torch.device("cpu")

    def __init__(self, memory_bytes: int | None = None) -> None:
        self._memory_bytes, self._in_use = memory_bytes, 0
        self.busy_ns = 0
        self._stream = ThreadPoolExecutor(1, thread_name_prefix="n3ic-transfers")
        self._last: Future[None] = Future()
        self._last.set_result(None)

    def claim(self, count: int, what: str) -> None:
        """Count memory that is about to be allocated.

        Raises:
            DeviceMemoryError: It exceeds the limit.
        """
        if self._memory_bytes is not None and self._in_use + count > self._memory_bytes:
            raise DeviceMemoryError(
                f"{what} of {count:,} bytes: the device may hold {self._memory_bytes:,} bytes, "
                f"{self._in_use:,} are in use; take fewer or smaller messages, or a smaller model"
            )
        self._in_use += count

    def place(self, module: torch.nn.Module) -> torch.nn.Module:
        """Move a module to the device, for inference.

        Raises:
            DeviceMemoryError: It does not fit.
        """
        tensors = (*module.parameters(), *module.buffers())
        self.claim(sum(t.numel() * t.element_size() for t in tensors), "a model")
        return self._fits(lambda: module.to(self.torch_device))

    def tensor(self, rows: int, row_bytes: int) -> Tensor:
        """Make a zeroed uint8 tensor of shape ``(rows, bytes)``.

        ``bytes`` is ``row_bytes`` rounded up to a multiple of 64.

        Raises:
            DeviceMemoryError: It does not fit.
        """
        padded = -(-row_bytes // 64) * 64
        self.claim(rows * padded, f"a tensor of {rows:,} messages of {row_bytes:,} bytes")
        return self._fits(
            lambda: torch.zeros(rows, padded, dtype=torch.uint8, device=self.torch_device)
        )

    def _fits(self, make: Callable[[], _Made]) -> _Made:
        try:
            return make()
        except (torch.cuda.OutOfMemoryError, MemoryError) as error:
            raise DeviceMemoryError(f"the device's memory is full: {error}") from error

    def register(self, memory: NDArray[Any], *, only_read: bool = False) -> None:
        """Make host memory readable for the device, until :meth:`close`.

        Args:
            memory: whole pages.
            only_read: whether it is mapped for reading only.
        """

    def transfers(self) -> AbstractContextManager[Any]:
        """A context in which PyTorch's copies go to the stream of transfers."""
        return nullcontext()

    def computing(self) -> AbstractContextManager[Any]:
        """A context in which PyTorch computes in parallel to the transfers."""
        return nullcontext()

    def submit(self, work: Callable[[], None]) -> TransferMark:
        """Append work to the stream of transfers."""

        def timed() -> None:
            begin = time.thread_time_ns()
            work()
            self.busy_ns += time.thread_time_ns() - begin

        self._last = self._stream.submit(timed)
        return self._last

    def mark(self) -> TransferMark:
        """A mark after all transfers so far."""
        return self._last

    def pull(
        self, buffers: PacketBuffers, ring: NDArray[np.int64], first: int, count: int, to: Tensor
    ) -> TransferMark:
        """Append a pull of packets to the stream of transfers.

        Args:
            buffers: where the packets lie; registered.
            ring: start in the buffers, row, offset and bytes of packets, shape ``(entries, 4)``;
                registered.
            first: entry of the first packet.
            count: number of packets; the first entry follows the last one.
            to: a tensor made by :meth:`tensor`.
        """
        return self.submit(lambda: gather(buffers, ring, first, count, to.numpy()))

    def close(self) -> None:
        """End the streams, and forget registered memory."""
        self._stream.shutdown()


def gather(
    buffers: PacketBuffers, ring: NDArray[np.int64], first: int, count: int, to: NDArray[np.uint8]
) -> None:
    """Copy packets' payloads by the CPU, neighbours together; the arguments are those of a pull."""
    entries = ring[np.arange(first, first + count) % len(ring)]
    size = int(entries[0, BYTES])
    step = np.diff(entries, axis=0)
    joined = (step[:, START] == buffers.stride) & (step[:, ROW] == 0) & (step[:, OFFSET] == size)
    joined &= entries[1:, BYTES] == size
    flat = buffers.flat
    for run in np.split(entries, np.flatnonzero(~joined) + 1):
        start, row, offset, part = run[0].tolist()
        if len(run) == 1:
            begin = start + HEADER_BYTES
            to[row, offset : offset + part] = flat[begin : begin + part]
            continue
        there = to[row, offset : offset + len(run) * part].reshape(len(run), part)
        slot = start // buffers.stride
        there[...] = buffers.data[slot : slot + len(run), HEADER_BYTES : HEADER_BYTES + part]


class SimulatorDevice(TransferDevice):
    """Numba's simulator of CUDA runs the kernel of the pull; everything else is as on the CPU."""

    name = "simulator"
    ran = "Numba's simulator ran the kernel of the pull: correctness, no speed; no CUDA ran"

    def __init__(self, memory_bytes: int | None = None) -> None:
        super().__init__(memory_bytes)
        from numba import config

        if "numba.cuda" not in sys.modules:  # numba reads the setting once, on import
            config.ENABLE_CUDASIM = 1
        if not config.ENABLE_CUDASIM:
            raise UsageError("Numba runs without its simulator: set NUMBA_ENABLE_CUDASIM=1")

    def pull(
        self, buffers: PacketBuffers, ring: NDArray[np.int64], first: int, count: int, to: Tensor
    ) -> TransferMark:
        """Run the kernel in the simulator, in the thread of transfers."""
        from n3ic.systems.stream.messages.kernel import pull

        word = np.dtype(f"i{buffers.word}")
        words = buffers.flat.view(word), ring, first, to.numpy().view(word), buffers.word
        return self.submit(lambda: pull[count, _SIMULATED_THREADS](*words))


class _CudaMark:
    def __init__(self, stream: Any) -> None:
        self._event = torch.cuda.Event()
        self._event.record(stream)

    def done(self) -> bool:
        return bool(self._event.query())

    def result(self) -> None:
        self._event.synchronize()


class _HostMemory:
    """Registered host memory, which the device reads at the same address."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.__cuda_array_interface__ = {
            "data": (array.ctypes.data, False),
            "shape": array.shape,
            "typestr": array.dtype.str,
            "version": 3,
        }


class CudaDevice(TransferDevice):
    """A GPU, with two streams; the kernel of the pull reads registered host memory."""

    name = "cuda"

    def __init__(self, memory_bytes: int | None = None) -> None:
        super().__init__(memory_bytes)
        if not torch.cuda.is_available():
            raise UsageError("no GPU that PyTorch can use: take --device cpu or simulator")
        # Training must be deterministic, and cuBLAS is only with this setting.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.ran = f"CUDA ran on {torch.cuda.get_device_name()}"
        self.torch_device = torch.device("cuda")
        self._transfers, self._compute = torch.cuda.Stream(), torch.cuda.Stream()
        self._registered: list[int] = []

    def register(self, memory: NDArray[Any], *, only_read: bool = False) -> None:
        """Pin memory of this process with ``cudaHostRegister``, unless it is already pinned."""
        if torch.from_numpy(memory).is_pinned():
            return
        start = memory.ctypes.data
        flags = _PORTABLE | _MAPPED | _READ_ONLY * only_read
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(start, memory.nbytes, flags))
        self._registered.append(start)

    def transfers(self) -> AbstractContextManager[Any]:
        """The stream of transfers."""
        return torch.cuda.stream(self._transfers)

    def computing(self) -> AbstractContextManager[Any]:
        """The stream of models."""
        return torch.cuda.stream(self._compute)

    def submit(self, work: Callable[[], None]) -> TransferMark:
        """Start work whose copies and kernels go to the stream of transfers."""
        with self.transfers():
            work()
        return self.mark()

    def mark(self) -> TransferMark:
        """An event of the stream of transfers."""
        return _CudaMark(self._transfers)

    def pull(
        self, buffers: PacketBuffers, ring: NDArray[np.int64], first: int, count: int, to: Tensor
    ) -> TransferMark:
        """Launch the kernel, which reads host memory at its own address."""
        from numba import cuda

        from n3ic.systems.stream.messages.kernel import pull

        memory = (buffers.flat.view(f"i{buffers.word}"), ring)
        hosted = [cuda.as_cuda_array(_HostMemory(array)) for array in memory]
        stream = cuda.external_stream(self._transfers.cuda_stream)
        words = to.view(torch.int32 if buffers.word == 4 else torch.int16)
        tensor = cuda.as_cuda_array(words, sync=False)
        pull[count, _THREADS, stream](*hosted, first, tensor, buffers.word)
        return self.mark()

    def close(self) -> None:
        """Wait for the streams, and unregister memory."""
        super().close()
        torch.cuda.synchronize()
        for start in self._registered:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(start))
        self._registered.clear()


DEVICES: dict[str, type[TransferDevice]] = {
    kind.name: kind for kind in (TransferDevice, CudaDevice, SimulatorDevice)
}


def open_device(name: str = "", memory_bytes: int | None = None) -> TransferDevice:
    """Open a device by its name; an empty name means CUDA if there is a GPU, otherwise the CPU.

    Raises:
        UsageError: There is no such device, or this machine does not have it.
    """
    if not name:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in DEVICES:
        raise UsageError(f"expected a device of {', '.join(DEVICES)}, got {name!r}")
    return DEVICES[name](memory_bytes)
