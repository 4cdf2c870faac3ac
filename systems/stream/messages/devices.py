# SPDX-License-Identifier: Apache-2.0
"""Devices that models run on: the CPU, CUDA, and Numba's simulator of CUDA.

A device has a tensor of rows of bytes, a stream of transfers, and a pull of packets from the
host's buffers. Copies are PyTorch's on all of them. On the CPU a thread takes the place of the
stream of transfers.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
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

_THREADS = 128  # of a block of the kernel
_PORTABLE, _MAPPED, _READ_ONLY = 1, 2, 8  # flags of cudaHostRegister
_SIMULATED_THREADS = 4  # each is a thread of Python
_Made = TypeVar("_Made")
START, ROW, OFFSET, BYTES = range(4)  # columns of a ring of packets


class DeviceMemoryError(N3icError):
    """The device has no room for what is asked of it."""


class TransferMark(Protocol):
    """A point of a device's stream of transfers."""

    def done(self) -> bool:
        """Return whether all before it is done."""

    def result(self) -> Any:
        """Wait until all before it is done."""


class TransferDevice(ABC):
    """A device: its memory, its transfers and where models compute.

    Args:
        memory_bytes: bytes that may be taken of it at most; None for what it has.

    Attributes:
        name: ``cpu``, ``cuda`` or ``simulator``.
        torch_device: where tensors and models are.
        ran: what took the part of the device, in words.
        busy_ns: processor time of transfers in the device's thread; 0 on a GPU.
    """

    name: str
    ran: str
    torch_device: torch.device = torch.device("cpu")

    def __init__(self, memory_bytes: int | None = None) -> None:
        self._memory_bytes, self._taken = memory_bytes, 0
        self.busy_ns = 0

    def claim(self, count: int, what: str) -> None:
        """Count memory that is about to be taken.

        Raises:
            DeviceMemoryError: it is more than there may be.
        """
        if self._memory_bytes is not None and self._taken + count > self._memory_bytes:
            raise DeviceMemoryError(
                f"{what} of {count:,} bytes: the device may hold {self._memory_bytes:,} bytes, "
                f"{self._taken:,} are in use; take fewer or smaller messages, or a smaller model"
            )
        self._taken += count

    def place(self, module: torch.nn.Module) -> torch.nn.Module:
        """Move a module to the device, for inference.

        Raises:
            DeviceMemoryError: it does not fit.
        """
        held = (*module.parameters(), *module.buffers())
        self.claim(sum(t.numel() * t.element_size() for t in held), "a model")
        return self._fits(lambda: module.to(self.torch_device))

    def tensor(self, rows: int, row_bytes: int) -> Tensor:
        """Zeroed uint8 tensor of shape ``(rows, bytes)``; rows end with a word at least.

        Raises:
            DeviceMemoryError: it does not fit.
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

    @abstractmethod
    def register(self, memory: NDArray[Any], *, only_read: bool = False) -> None:
        """Make the host's memory readable for the device; it stays so until :meth:`close`.

        Args:
            memory: whole pages.
            only_read: whether it is mapped for reading alone.
        """

    @abstractmethod
    def transfers(self) -> AbstractContextManager[Any]:
        """Within it, copies of PyTorch go to the stream of transfers."""

    @abstractmethod
    def computing(self) -> AbstractContextManager[Any]:
        """Within it, PyTorch computes beside the transfers."""

    @abstractmethod
    def submit(self, work: Callable[[], None]) -> TransferMark:
        """Append work to the stream of transfers."""

    @abstractmethod
    def mark(self) -> TransferMark:
        """A mark behind all transfers so far."""

    @abstractmethod
    def pull(
        self, buffers: PacketBuffers, ring: NDArray[np.int64], first: int, count: int, to: Tensor
    ) -> TransferMark:
        """Append a pull of packets to the stream of transfers.

        Args:
            buffers: where the packets lie; registered.
            ring: start in the buffers, row, offset and bytes of packets, shape ``(entries, 4)``;
                registered.
            first: entry of the first packet.
            count: number of packets; entries after the last one go on at the first.
            to: a tensor of :meth:`tensor`.
        """

    @abstractmethod
    def close(self) -> None:
        """End the streams, and forget registered memory."""


def gather(
    buffers: PacketBuffers, ring: NDArray[np.int64], first: int, count: int, to: NDArray[np.uint8]
) -> None:
    """Copy packets' payloads by the CPU, neighbours at once; arguments as of a pull."""
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


class CpuDevice(TransferDevice):
    """The CPU: its stream of transfers is a thread, which reads packet buffers in place."""

    name = "cpu"
    ran = "the CPU took the device's part: no CUDA ran"

    def __init__(self, memory_bytes: int | None = None) -> None:
        super().__init__(memory_bytes)
        self._stream = ThreadPoolExecutor(1, thread_name_prefix="n3ic-transfers")
        self._last: Future[None] = Future()
        self._last.set_result(None)

    def register(self, memory: NDArray[Any], *, only_read: bool = False) -> None:
        """Do nothing: the CPU reads all memory of its process."""

    def transfers(self) -> AbstractContextManager[Any]:
        """Copies are done when they are called."""
        return nullcontext()

    def computing(self) -> AbstractContextManager[Any]:
        """Models compute in the thread that calls them."""
        return nullcontext()

    def submit(self, work: Callable[[], None]) -> TransferMark:
        """Append work to the thread of transfers."""

        def timed() -> None:
            begin = time.thread_time_ns()
            work()
            self.busy_ns += time.thread_time_ns() - begin

        self._last = self._stream.submit(timed)
        return self._last

    def mark(self) -> TransferMark:
        """The last work of the thread of transfers."""
        return self._last

    def pull(
        self, buffers: PacketBuffers, ring: NDArray[np.int64], first: int, count: int, to: Tensor
    ) -> TransferMark:
        """Read the packet buffers in place, in the thread of transfers."""
        return self.submit(lambda: gather(buffers, ring, first, count, to.numpy()))

    def close(self) -> None:
        """End the thread of transfers."""
        self._stream.shutdown()


class SimulatorDevice(CpuDevice):
    """Numba's simulator of CUDA, which runs the kernel of the pull; all else as on the CPU."""

    name = "simulator"
    ran = "Numba's simulator ran the kernel of the pull: correctness, no speed; no CUDA ran"

    def __init__(self, memory_bytes: int | None = None) -> None:
        super().__init__(memory_bytes)
        from numba import config

        if "numba.cuda" not in sys.modules:  # which reads this once, when it is imported
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
    """Registered memory of the host as the device addresses it: by the same address."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.__cuda_array_interface__ = {
            "data": (array.ctypes.data, False),
            "shape": array.shape,
            "typestr": array.dtype.str,
            "version": 3,
        }


class CudaDevice(TransferDevice):
    """A GPU: two streams, and the kernel of the pull on registered memory of the host."""

    name = "cuda"

    def __init__(self, memory_bytes: int | None = None) -> None:
        super().__init__(memory_bytes)
        if not torch.cuda.is_available():
            raise UsageError("no GPU that PyTorch can use: take --device cpu or simulator")
        # Training is deterministic, which cuBLAS is with this alone.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.ran = f"CUDA ran on {torch.cuda.get_device_name()}"
        self.torch_device = torch.device("cuda")
        self._transfers, self._compute = torch.cuda.Stream(), torch.cuda.Stream()
        self._registered: list[int] = []

    def register(self, memory: NDArray[Any], *, only_read: bool = False) -> None:
        """Pin memory of this process with ``cudaHostRegister``; pinned memory is left alone."""
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
        """Launch the kernel, which reads the host's memory by its own address."""
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
        torch.cuda.synchronize()
        for start in self._registered:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(start))
        self._registered.clear()


DEVICES: dict[str, type[TransferDevice]] = {
    kind.name: kind for kind in (CpuDevice, CudaDevice, SimulatorDevice)
}


def open_device(name: str = "", memory_bytes: int | None = None) -> TransferDevice:
    """A device by its name; with an empty name CUDA where there is a GPU, else the CPU.

    Raises:
        UsageError: there is no such device, or not on this machine.
    """
    if not name:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in DEVICES:
        raise UsageError(f"expected a device of {', '.join(DEVICES)}, got {name!r}")
    return DEVICES[name](memory_bytes)
