# SPDX-License-Identifier: Apache-2.0
"""Files of addresses to block or allow: plain lists, decisions of CrowdSec, saved sets of ipset.

A CrowdSec file is what ``cscli decisions list -o json`` or ``-o raw`` prints, the answer of its
local API, or a file for ``cscli decisions import``. A saved set is what ``ipset save`` prints. Any
other file has an address or a prefix in each line; comments begin with ``#`` or ``;``.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from socket import AF_INET, AF_INET6, inet_pton
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.exporters.xdp import layout
from n3ic.util.files import read_regular

MAX_BYTES = 1 << 28
_SHOWN = 5  # wrong lines that a message names
_ALWAYS = math.inf
_SETS = ("hash:ip", "hash:net", "bitmap:ip")
_VALUED = ("packets", "bytes", "skbmark", "skbprio", "skbqueue")  # options of an entry of a set
_DURATION = re.compile(r"-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
_Entry = tuple[str, str, float]
"""Where an entry stands, its address or prefix as written, and the seconds for which it holds."""


class _EntryError(ValueError):
    """Why an entry cannot be taken."""


@dataclass(frozen=True)
class PrefixFile:
    """The prefixes of a file, each once.

    Attributes:
        keys: their keys in a list of the program, of shape (prefixes,) and type
            :data:`~n3ic.exporters.xdp.layout.PREFIX`.
        seconds: for how long each holds by the file, of shape (prefixes,); infinity for ever.
        left_out: decisions that block no address now: other kinds, simulated or expired ones.
    """

    keys: NDArray[np.void]
    seconds: NDArray[np.float64]
    left_out: int


def read_prefix_file(path: Path, *, bans: bool) -> PrefixFile:
    """Read a file of addresses and prefixes.

    Args:
        path: the file.
        bans: whether decisions of CrowdSec are taken, which ban addresses.

    Raises:
        UsageError: The file cannot be read, or entries in it are wrong; the message names them.
    """
    try:
        text = read_regular(path, MAX_BYTES, follow=True).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected text in UTF-8: {error}") from error
    lines = text.split("\n")
    first = next((entry for line in lines if (entry := _without_comment(line))), "")
    wrong: list[str] = []
    if first[:1] in ("{", "[") or first == "null":
        kind, entries = "CrowdSec", _json_entries(path, text, wrong)
    elif "," in first and {"value", "ip"} & set(_columns(first)):
        kind, entries = "CrowdSec", _csv_entries(lines, wrong)
    elif first.split()[:1] in (["create"], ["add"]):
        kind, entries = "ipset", _ipset_entries(lines, wrong)
    else:
        kind = "plain"
        numbered = ((f"line {n}", _without_comment(line)) for n, line in enumerate(lines, 1))
        entries = ((place, entry, _ALWAYS) for place, entry in numbered if entry)
    if kind == "CrowdSec" and not bans:
        raise UsageError(f"{path}: decisions of CrowdSec ban addresses: expected a list to allow")
    return _collect(path, entries, wrong)


def _without_comment(line: str) -> str:
    return re.split("[#;]", line, maxsplit=1)[0].strip()


def _columns(line: str) -> list[str]:
    return [name.strip().lower() for name in line.split(",")]


def _collect(path: Path, entries: Iterable[_Entry], wrong: list[str]) -> PrefixFile:
    """Parse the entries; one that stands in the file twice holds for the longer time."""
    seconds: dict[tuple[bytes, int], float] = {}
    left_out = 0
    for place, text, holds in entries:
        if holds <= 0:
            left_out += 1
            continue
        try:
            prefix = _prefix(text)
        except _EntryError as why:
            wrong.append(f"{place}: {text[:80]!r}: {why}")
            continue
        seconds[prefix] = max(seconds.get(prefix, 0.0), holds)
    if wrong:
        more = f"; and {len(wrong) - _SHOWN:,} more" if len(wrong) > _SHOWN else ""
        raise UsageError(f"{path}: {'; '.join(wrong[:_SHOWN])}{more}; nothing was changed")
    keys = np.zeros(len(seconds), layout.PREFIX)
    keys["family"] = [len(address) for address, _ in seconds]
    keys["bits"] = [layout.PREFIX_FAMILY + bits for _, bits in seconds]
    padded = b"".join(address.ljust(16, b"\0") for address, _ in seconds)
    keys["address"] = np.frombuffer(padded, np.uint8).reshape(-1, 16)
    return PrefixFile(keys, np.array(list(seconds.values()), np.float64), left_out)


def _prefix(text: str) -> tuple[bytes, int]:
    """The bytes of a prefix's address, and its length in bits; much faster than ``ipaddress``."""
    address, slash, length = text.partition("/")
    try:
        packed = inet_pton(AF_INET6 if ":" in address else AF_INET, address)
    except (OSError, ValueError) as error:
        raise _EntryError("expected an address or a prefix of IPv4 or IPv6") from error
    whole = 8 * len(packed)
    if not slash:
        return packed, whole
    if not (length.isascii() and length.isdecimal() and len(length) < 4 and int(length) <= whole):
        raise _EntryError(f"expected a length of 1 to {whole} bits behind the slash")
    bits = int(length)
    if not bits:
        raise _EntryError("this prefix is every address")
    if int.from_bytes(packed, "big") & ((1 << (whole - bits)) - 1):
        raise _EntryError("bits behind the prefix are set")
    return packed, bits


def _seconds(duration: object) -> float:
    """The seconds of a duration such as ``3h59m56.2s``; those of an expired one are negative."""
    text = str(duration).strip()
    if not _DURATION.fullmatch(text):
        raise _EntryError(f"{text[:40]!r} is no duration such as 3h59m56s")
    size = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -size if text.startswith("-") else size


def _decision(decision: dict[str, Any]) -> tuple[str, float]:
    """The address of a decision, and for how long it holds; 0 if it blocks no address."""
    value = str(decision.get("value") or decision.get("ip") or "").strip()
    scope = str(decision.get("scope") or "ip")
    if (match := re.match(r"([A-Za-z]+):(?!:)(.*)", value)) and match[1].lower() in (
        "ip", "range", "country", "as", "user"
    ):  # fmt: skip
        scope, value = match[1], match[2]
    kind = str(decision.get("type") or decision.get("action") or "ban")
    simulated = str(decision.get("simulated") or "").lower() == "true"
    if scope.lower() not in ("ip", "range") or kind.lower() != "ban" or simulated:
        return value, 0.0
    duration = decision.get("duration") or decision.get("expiration")
    return value, _seconds(duration) if duration else _ALWAYS


def _decisions(
    numbered: Iterable[tuple[str, dict[str, Any]]], wrong: list[str]
) -> Iterator[_Entry]:
    for place, decision in numbered:
        try:
            value, seconds = _decision(decision)
        except _EntryError as why:
            wrong.append(f"{place}: {why}")
        else:
            yield place, value, seconds


def _json_entries(path: Path, text: str, wrong: list[str]) -> Iterator[_Entry]:
    """Entries of decisions in JSON: alone, in the alerts that brought them, or as an update."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected JSON: {error}") from error
    if isinstance(data, dict):
        data = data.get("new", data.get("decisions", [data]))
    rows: list[Any] = []
    for one in data or []:
        inner = one.get("decisions") if isinstance(one, dict) else None
        rows += inner if isinstance(inner, list) else [one]
    numbered = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, dict):
            numbered.append((f"decision {number}", row))
        else:
            wrong.append(f"decision {number}: expected an object with a value")
    return _decisions(numbered, wrong)


def _csv_entries(lines: list[str], wrong: list[str]) -> Iterator[_Entry]:
    reader = csv.reader(lines)

    def rows() -> Iterator[tuple[str, dict[str, Any]]]:
        names: list[str] = []
        for row in reader:
            if not any(cell.strip() for cell in row) or row[0].startswith("#"):
                continue
            if not names:
                names = _columns(",".join(row))
            elif len(row) != len(names):
                wrong.append(
                    f"line {reader.line_num}: expected {len(names)} columns, got {len(row)}"
                )
            else:
                yield f"line {reader.line_num}", dict(zip(names, row, strict=True))

    return _decisions(rows(), wrong)


def _ipset_entries(lines: list[str], wrong: list[str]) -> Iterator[_Entry]:
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if words[0] == "add" and len(words) > 2:
                yield f"line {number}", words[2], _timeout(words[3:])
            elif words[0] != "create" or len(words) < 3 or words[2] not in _SETS:
                raise _EntryError(f"expected entries of a set of type {', '.join(_SETS)}")
        except _EntryError as why:
            wrong.append(f"line {number}: {line[:80]!r}: {why}")


def _timeout(options: list[str]) -> float:
    """For how long an entry of a set holds, by its options."""
    seconds, words = _ALWAYS, iter(options)
    for word in words:
        if word == "comment":
            break  # it comes last
        value = next(words, "") if word in ("timeout", *_VALUED) else None
        if value is None or not value:
            raise _EntryError(f"the option {word} is not known here")
        if word == "timeout":
            if not value.isdecimal():
                raise _EntryError("expected a number of seconds as timeout")
            seconds = float(value) or _ALWAYS
    return seconds
