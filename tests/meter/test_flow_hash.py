# SPDX-License-Identifier: Apache-2.0
"""Flow keys are hashed by SipHash-1-3, and no choice of keys makes chains longer than others."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from n3ic.kernel import build
from n3ic.meter.compiled import KEY, SECRET_BYTES, CompiledMeter
from n3ic.meter.siphash import siphash
from n3ic.meter.source import meter_source
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Window
from tests.support.flooding import FAMILIES, against_the_old_hash, old_hash, random_keys
from tests.support.siphash import message_of

COUNTING = bytes(range(16))  # the secret of the published vectors
TABLES = {"flows": 65_536, "window": 4_096, "fragments": 4_096}  # and the keys that they hold

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


def test_the_plain_one_gives_the_published_vectors():
    """Of the authors' reference code for SipHash-2-4; that of 15 bytes stands in the paper."""
    published = {
        0: 0x726FDB47DD0E0E31,
        1: 0x74F839C593DC67FD,
        2: 0x0D6C8009D9A94F5A,
        3: 0x85676696D7FB7E2D,
        15: 0xA129CA6149BE45E5,
    }
    for size, value in published.items():
        assert siphash(COUNTING, COUNTING[:size], 2, 4) == value
    assert siphash(COUNTING, b"") == 0xABAC0158050FC4DC  # SipHash-1-3
    assert siphash(COUNTING, b"a" * 256, 2, 4) == 0x03413138DE48340E  # as OpenSSL has it


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="another hash of bytes")
def test_the_plain_one_gives_pythons_hash_of_bytes():
    """It is SipHash-1-3, under the secret 0 where it is not drawn."""
    sizes = (1, 7, 8, 13, 37, 255)
    asks = f"print(*(hash(bytes(range(n))) for n in {sizes}))"
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, env=environment)
    hashes = [int(word) % 2**64 for word in done.stdout.split()]
    assert hashes == [siphash(bytes(16), bytes(range(n))) for n in sizes]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A function that runs ``tables.c``: the numbers that it writes."""
    folder = tmp_path_factory.mktemp("tables")
    window = Window("same", flows=TABLES["window"], same=("source", "destination"))
    spec = replace(standard_spec(), cache_flows=TABLES["flows"], windows=(window,))
    for name, text in meter_source(spec).items():
        (folder / name).write_text(text)
    program, source = folder / "tables", Path(__file__).with_name("tables.c")
    compiler = build.find_compiler().command
    words = [*compiler, "-std=c11", "-O1", f"-I{folder}", source, "-o", program]
    subprocess.run(words, check=True)

    def run(table, secret, keys):
        halves = [str(int.from_bytes(half, "little")) for half in (secret[:8], secret[8:])]
        done = subprocess.run([program, table, *halves], input=keys.tobytes(), capture_output=True)
        assert done.returncode == 0
        return [int(line) for line in done.stdout.split()]

    return run


def counting_keys():
    """Keys whose messages are the bytes 0, 1, 2 and so on: one of IPv4, one of IPv6."""
    keys = np.zeros(2, dtype=np.dtype(list(KEY), align=True))
    for key, size in zip(keys, (4, 16), strict=True):
        message = bytes(range(2 * size + 5))
        key["source"][:size] = list(message[:size])
        key["destination"][:size] = list(message[size : 2 * size])
        key["source_port"], key["destination_port"] = np.frombuffer(message[-5:-1], "<u2")
        key["protocol"], key["address_bytes"] = message[-1], size
    return keys


@needs_compiler
def test_the_c_gives_the_vectors(tables):
    wanted = [siphash(COUNTING, bytes(range(size))) for size in (13, 37)]
    assert tables("hashes", COUNTING, counting_keys()) == wanted
    assert tables("places", COUNTING, counting_keys()) == [h % 2**32 for h in wanted]


@needs_compiler
def test_the_c_gives_what_the_plain_one_gives_for_any_key(tables):
    r = np.random.default_rng(2)
    secret = r.bytes(16)
    keys = random_keys(200)
    keys["source_port"] = r.integers(0, 2**16, 200)
    keys["destination_port"] = r.integers(0, 2**16, 200)
    keys["protocol"] = r.integers(0, 2**8, 200)
    keys["address_bytes"][::2] = 4
    keys["source"][::2, 4:] = keys["destination"][::2, 4:] = 0
    wanted = []
    for k in keys:
        size = int(k["address_bytes"])
        ends = bytes(k["source"][:size]), bytes(k["destination"][:size])
        ports = int(k["source_port"]), int(k["destination_port"])
        wanted.append(siphash(secret, message_of(*ends, *ports, int(k["protocol"]))))
    assert tables("hashes", secret, keys) == wanted


def test_keys_that_are_made_against_the_old_hash_meet_there():
    keys = against_the_old_hash(65_536)
    assert len(np.unique(keys)) == 65_536
    for seed in np.random.default_rng(3).integers(0, 2**64, 5, dtype=np.uint64):
        assert len(np.unique(old_hash(seed, keys))) <= 256


@pytest.mark.first_case
@needs_compiler
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("table", TABLES)
def test_chains_are_as_long_as_for_random_keys(tables, table, family):
    """Whatever the keys have in common: as many pairs of them share a chain as by chance."""
    count = TABLES[table]
    keys = family(count)
    assert len(np.unique(keys)) == count
    if table == "window":  # over the parts that its flows share
        keys["source_port"] = keys["destination_port"] = keys["protocol"] = 0
    for secret in (bytes(16), COUNTING):
        chains = np.array(tables(table, secret, keys))
        assert chains.sum() == count
        pairs = (chains * (chains - 1) // 2).sum()
        by_chance = count * (count - 1) / 2 / len(chains)
        assert 0.8 < pairs / by_chance < 1.2
        assert chains.max() <= 12


@needs_compiler
def test_each_meter_draws_a_secret_of_its_own():
    spec = replace(standard_spec(), cache_flows=16)
    secrets = []
    for _ in range(4):
        with CompiledMeter(spec, 1) as meter:
            secrets.append(meter.save()[:SECRET_BYTES])
    assert all(a != b for a, b in pairwise([bytes(SECRET_BYTES), *secrets]))
