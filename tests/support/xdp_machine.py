# SPDX-License-Identifier: Apache-2.0
"""What the tests of the XDP target need of the machine, and links that they clean up."""

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from n3ic.errors import N3icError
from n3ic.exporters.xdp import libbpf


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


CLONE_NEWNET = 0x40000000


@pytest.fixture(scope="session")
def clang() -> None:
    """Skips where there is no clang, or no libbpf for it."""
    if not shutil.which("clang") or not Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("needs clang and libbpf's headers (apt-get install clang libbpf-dev)")


@pytest.fixture(scope="session")
def compile_bpf(clang: None) -> Callable[..., bytes]:
    """A function that compiles restricted C."""
    # The headers of linux/ want asm/, which Debian keeps by architecture.
    include = f"-I/usr/include/{platform.machine()}-linux-gnu"

    def build(source: Path, out: Path, *options: str) -> bytes:
        flags = ("-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", include)
        run("clang", *flags, *options, "-c", str(source), "-o", str(out))
        return out.read_bytes()

    return build


@pytest.fixture(scope="session")
def kernel() -> None:
    """Skips where the kernel does not let this process load programs."""
    try:
        libbpf.create_map(libbpf.ARRAY, "probe", 4, 4, 1).close()
    except N3icError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A BPF file system."""
    place = tmp_path_factory.mktemp("bpffs") / "bpf"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "bpf", "bpf", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a BPF file system")
    yield place
    run("umount", str(place))


@pytest.fixture
def run_folder(pins: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in place of /run/n3ic, and a BPF file system, for what ``n3ic xdp load`` starts."""
    if not shutil.which("gcc") or not Path("/usr/include/bpf/libbpf.h").exists():
        pytest.skip("needs gcc and libbpf's headers (apt-get install gcc libbpf-dev)")
    monkeypatch.setenv("N3IC_BPF", str(pins))
    # The paths of sockets are short, and those of pytest's folders may be long.
    with tempfile.TemporaryDirectory(prefix="n3", dir="/tmp") as folder:
        monkeypatch.setenv("N3IC_RUN", folder)
        yield Path(folder)


@pytest.fixture
def veth(kernel: None) -> Iterator[tuple[str, str]]:
    """Two ends of a link."""
    if not shutil.which("ip"):
        pytest.skip("needs ip (apt-get install iproute2)")
    one, other = f"n3x{os.getpid()}a", f"n3x{os.getpid()}b"
    try:
        run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs the right to make links: {error.stderr.strip()}")
    try:
        for name in (one, other):
            run("ip", "link", "set", name, "up")
        yield one, other
    finally:
        run("ip", "link", "del", one)


@pytest.fixture
def tun() -> Iterator[str]:
    """An interface whose packets have no Ethernet header."""
    if not shutil.which("ip"):
        pytest.skip("needs ip (apt-get install iproute2)")
    name = f"n3x{os.getpid()}t"
    try:
        run("ip", "tuntap", "add", name, "mode", "tun")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs the right to make a tun interface: {error.stderr.strip()}")
    try:
        run("ip", "link", "set", name, "up")
        yield name
    finally:
        run("ip", "link", "del", name)


@pytest.fixture
def in_namespace(kernel: None) -> Callable[[Callable[[], object]], object]:
    """A function that runs another one in a network namespace, which ends with all that is in it.

    Threads have namespaces of their own, and what a thread starts has its.
    """
    if not shutil.which("ip"):
        pytest.skip("needs ip (apt-get install iproute2)")
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: Callable[[], object]) -> object:
        with ThreadPoolExecutor(1) as pool:
            if pool.submit(libc.unshare, CLONE_NEWNET).result():
                pytest.skip("needs the right to make network namespaces")
            return pool.submit(function).result()

    return call
