# SPDX-License-Identifier: Apache-2.0
"""Write the Verilog and the memory files of a card."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.core import SHARED_RTL, copy_blocks, frame_sources
from n3ic.exporters.netfpga.packet.wrapper import features_text
from n3ic.exporters.netfpga.sequential import write as sequential_write
from n3ic.exporters.netfpga.sequential.layout import clog2
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.model.bits import word_count
from n3ic.systems.card.netfpga.image import (
    CARRIERS,
    JOINS,
    CardGraph,
    CardTask,
    CoreTask,
    HardwarePass,
    HardwareRule,
    InputTask,
    NetfpgaCardImage,
    PacketStage,
    UserTask,
)
from n3ic.systems.card.tasks.kind import FOLDER as TASKS
from n3ic.systems.card.tasks.kind import FRAME_HEAD, Entries, TaskKind, kind_of
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
_CARRIED = {
    "header": "bytes 18-19 of a frame of EtherType 0x2323",
    "vlan": "the VLAN identifier of a tag before EtherType 0x2323",
    "udp-port": "its UDP destination port",
}
_MODULE = re.compile(r"^module (\w+)", re.MULTILINE)


def write_card(image: NetfpgaCardImage, out: Path) -> None:
    """Write ``rtl/`` and ``mem/`` of a card below ``out``.

    Args:
        image: the card.
        out: an empty directory.
    """
    memory = (FOLDER / "memory",) if image.memory_stages else ()
    copy_blocks(out, SHARED_RTL, FOLDER / "rtl", *memory)
    (out / "mem").mkdir(exist_ok=True)
    regions = [_region(image, r, out) for r in range(len(image.regions))]
    common = _widths(image)
    for region in regions:
        count = len(region["tasks"])
        exits = [f"exit{k}" for k in range(count)]
        values = common | {
            "region": region,
            "exits": " || ".join(exits),
            "later_exits": [" || ".join(exits[k + 1 :]) for k in range(count)],
            "cuts": " || ".join(f"cut{t['index']}" for t in region["tasks"] if t["kind"] == "user")
            or "1'b0",
        }
        text = render(FOLDER, "n3ic_card_region.v.j2", values)
        (out / "rtl" / f"{region['module']}.v").write_text(text)
    plan = common | {"regions": regions, "legs": _legs(image), "graphs": _graphs(image)}
    (out / "rtl" / "n3ic_card_plan.v").write_text(render(FOLDER, "n3ic_card_plan.v.j2", plan))
    top = plan | {
        "comment": comment(image.name),
        "tenants": image.tenants,
        "carrier": CARRIERS.index(image.carrier),
        "offset": image.offset,
        "need": image.need,
        "result_at": image.result_at,
        "sizes": len(image.sizes),
        "size_table": _packed((16, size) for size in image.sizes),
        "has_table": _packed((1, g.input_bytes == s) for s in image.sizes for g in image.graphs),
        "graph_table": _packed((32, table_entry(g)) for g in image.graphs),
        "rate_table": _packed((17, t.rate) for t in image.tenants),
        "burst_table": _packed((12, t.burst) for t in image.tenants),
        "held": sum(region.in_reset << r for r, region in enumerate(image.regions)),
        "present": sum(
            ((1 << len(region.tasks)) - 1) << (image.tasks * r)
            for r, region in enumerate(image.regions)
        ),
        "again": image.again,
        "results": image.results,
        **_answer(image),
        "job_w": image.side_w + image.result_w + image.data_w,
        "beats_w": image.beats_w,
        "seq_w": image.seq_w,
        "memory": _memory(image, regions),
    }
    (out / "rtl" / "n3ic_card.v").write_text(render(FOLDER, "n3ic_card.v.j2", top))
    frame_sources(out)


def _memory(image: NetfpgaCardImage, regions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what n3ic_card_memory is told; nothing for a card without on-board memory."""
    if not image.memory_stages:
        return {}
    return {
        "ports": len(image.memory_stages),
        "first_port": list(accumulate((r["ports"] for r in regions), initial=0)),
        "pages": image.memory_pages,
        "frame_w": image.frame_w,
        "virtual": sum(image.page_limits),
        "index_w": max(1, clog2(sum(image.page_limits))),
        "page_w": image.page_w,
        "bases": _packed((16, base) for base in image.page_bases),
        "limits": _packed((16, limit) for limit in image.page_limits),
    }


def write_readme(image: NetfpgaCardImage, clock_mhz: float, out: Path) -> None:
    """Write ``README.md``: packets, regions, control."""
    values = {
        "name": comment(image.name),
        "image": image,
        "clock_mhz": clock_mhz,
        "carrier": _CARRIED[image.carrier],
        "graphs": [
            {
                "name": comment(g.name),
                "uid": g.uid,
                "input_bytes": g.input_bytes,
                "regions": ", ".join(
                    sorted({str(r) for branch in g.branches for leg in branch for r in leg.regions})
                ),
            }
            for g in image.graphs
        ],
    }
    (out / "README.md").write_text(render(FOLDER, "README.md.j2", values))


def table_entry(graph: CardGraph, *, on: bool | None = None) -> int:
    """Return a graph's word in the table: on, tenant, source ports, UID."""
    direction = graph.on if on is None else on
    return direction << 31 | graph.tenant << 24 | graph.sources << 16 | graph.uid


def _answer(image: NetfpgaCardImage) -> dict[str, Any]:
    """Return what is written into a packet: its results, between the two parts of its head."""
    kept, bits = image.result_w + image.head_w, image.result_w
    if not image.head_w:
        return {"kept_w": kept, "joined": "answered", "text": "answer"}
    parts = [f"answered[{kept * b} +: {bits}]" for b in reversed(range(image.branches))]
    octets = [f"head[{8 * i} +: 8]" for i in range(image.head_w // 8)]
    text = [*octets[:FRAME_HEAD], "answer", *octets[FRAME_HEAD:]]
    joined, text_of = ("{" + ", ".join(each) + "}" for each in (parts, text))
    return {"kept_w": kept, "joined": joined, "text": text_of}


def task_memory(kind: TaskKind, entries: Entries) -> str:
    """Return the memory file of a packet task's table: an entry per line, its last word first."""
    rows = (entries.get(i, (0,) * kind.words) for i in range(kind.entries))
    return "".join("".join(f"{word:08x}" for word in row[::-1]) + "\n" for row in rows)


def _packed(fields: Iterable[tuple[int, int]]) -> str:
    """Pack fields of given widths into a Verilog constant, the first field lowest."""
    value = at = 0
    for width, field in fields:
        value |= int(field) << at
        at += width
    return f"{at}'h{value:x}"


def _widths(image: NetfpgaCardImage) -> dict[str, Any]:
    return {
        "side_w": image.side_w,
        "result_w": image.result_w,
        "margin_w": image.margin_w,
        "data_w": image.data_w,
        "field_w": image.field_w,
        "head_w": image.head_w,
        "counts": any(kind_of(stage.task).counts for stage in image.stages),
        "tasks": image.tasks,
        "credit_w": image.credit_w,
        "model_w": image.model_w,
        "wr_model_w": image.wr_model_w,
        "wr_aw": image.wr_aw,
        "skip_at": image.model_w,
        "reserved_at": image.model_w + image.tasks,
        "packet_at": image.packet_at,
        # A failed task ends its packet's way: all later tasks and legs are skipped.
        "fail_bits": (((1 << image.tasks) - 1) << image.model_w)
        | (6 << image.model_w + image.tasks),
        # Nor does a packet that a task denies go on.
        "end_bits": (((1 << image.tasks) - 1) << image.model_w)
        | (2 << image.model_w + image.tasks),
        "graph_w": image.graph_w,
        "branch_w": image.branch_w,
        "branches": image.branches,
        "leg_w": image.leg_w,
        "queue_w": image.queue_w,
        "queue_at": image.packet_at + image.leg_w + image.branch_w + image.seq_w,
    }


# --- regions -----------------------------------------------------------------------------------


def _region(image: NetfpgaCardImage, index: int, out: Path) -> dict[str, Any]:
    tasks = [
        _task(image, task, index, k, out) | {"index": k, "kind": task.kind, "comment": task.comment}
        for k, task in enumerate(image.regions[index].tasks)
    ]
    return {
        "index": index,
        "module": f"n3ic_card_region{index}",
        "tasks": tasks,
        "write_port": any(task.get("write_port") for task in tasks),
        "ports": sum("port" in task for task in tasks),
    }


def _task(
    image: NetfpgaCardImage, task: CardTask, region: int, place: int, out: Path
) -> dict[str, Any]:
    mark = f"r{region}t{place}"
    if isinstance(task, UserTask):
        folder = out / "rtl" / "user"
        folder.mkdir(exist_ok=True)
        for name, text in task.sources:
            # Once for all regions that hold the task: Verilog defines a module once.
            digest = hashlib.sha256(text.encode()).hexdigest()[:8]
            (folder / f"{digest}_{name}").write_text(text)
        return {"module": task.top, "bits": task.bits, "limit": task.limit}
    if isinstance(task, PacketStage):
        kind = kind_of(task.task)
        for path in (*TASKS.glob("*.v"), *(TASKS / task.task).glob("*.v")):
            (out / "rtl" / path.name).write_bytes(path.read_bytes())
        memory = f"{mark}_{task.task}.mem" if kind.entries else ""
        if memory:
            (out / "mem" / memory).write_text(task_memory(kind, task.entries))
        return {
            "module": f"n3ic_task_{task.task}",
            "memory": memory,
            "classes": bool(kind.classes),
            "counts": kind.counts,
            **_port(image, task, region, place),
        }
    if isinstance(task, InputTask):
        # The module of an input stage is generated for one model, so it gets a name of its own,
        # too.
        spec = task.model.input
        _apart({"n3ic_features.v": features_text(task.model)}, mark, out)
        return {
            "module": f"n3ic_features_{mark}",
            "n_in": spec.n_bits,
            "values_w": 32 * len(spec.features),
        }
    with tempfile.TemporaryDirectory(prefix="n3ic-core-") as name:
        ports = _write_core(task, Path(name))
        shared = {p.name for p in (sequential_write.FOLDER / "rtl").glob("*.v")}
        shared |= {p.name for p in SHARED_RTL.glob("*.v")}
        texts = {p.name: p.read_text() for p in sorted((Path(name) / "rtl").glob("*.v"))}
        # Blocks that all cores have in common are written once, under their own names.
        copied = {n: t for n, t in texts.items() if n in shared}
        for file, text in copied.items():
            (out / "rtl" / file).write_text(text)
        for path in sorted((Path(name) / "mem").glob("*.mem")):
            (out / "mem" / f"{mark}_{path.name}").write_bytes(path.read_bytes())
        _apart({n: t for n, t in texts.items() if n not in shared}, mark, out)
    model = task.models[0]
    return {
        **ports,
        "module": f"n3ic_core_{mark}",
        "n_in": model.shape[0],
        "n_classes": model.shape[-1],
        "model_w": clog2(len(task.models)),
        "digest": model.digest[:8],
        "score_words": word_count(ports["score_w"] * model.shape[-1]),
        "trace_words": word_count(ports["trace_w"]),
    }


def _port(image: NetfpgaCardImage, task: PacketStage, region: int, place: int) -> dict[str, Any]:
    """Return a task's port of the on-board memory: its number in the region, and its pages."""
    if not task.pages:
        return {}
    before = [t for t in image.regions[region].tasks[:place] if isinstance(t, PacketStage)]
    return {
        "port": sum(bool(t.pages) for t in before),
        "pages_w": clog2(task.pages),
        # A tenant's tasks have their pages one after another.
        "first_page": image.pages_of(task).start - image.page_bases[task.owner],
    }


def _write_core(task: CoreTask, out: Path) -> dict[str, Any]:
    (out / "rtl").mkdir()
    if task.layout is None:
        model = task.models[0]
        return unrolled_write.write(model, out, pipeline=task.pipeline, outputs=task.outputs)
    return sequential_write.write(task.models[0], task.layout, out, task.models[1:])


def _apart(texts: Mapping[str, str], mark: str, out: Path) -> None:
    """Write generated files with names unique to a task: files, modules and memory files."""
    modules = "|".join(m for text in texts.values() for m in _MODULE.findall(text))
    # Cores of several tasks would define the same module twice, so each gets names of its own.
    own = re.compile(rf"\b({modules})\b")
    for file, text in texts.items():
        named = own.sub(rf"\1_{mark}", text)
        named = re.sub(r'"(\w+\.mem)"', rf'"{mark}_\1"', named)
        (out / "rtl" / f"{file[:-2]}_{mark}.v").write_text(named)


# --- the plan ----------------------------------------------------------------------------------


def _legs(image: NetfpgaCardImage) -> list[dict[str, Any]]:
    return [
        {
            "comment": f"{comment(graph.name)}: branch {b}, leg {k}",
            "graph": g,
            "branch": b,
            "leg": k,
            "regions": sum(1 << r for r in leg.regions),
            "skip": _skip(image, leg),
            "model": leg.model,
            "last": k == len(branch) - 1,
            "branch_last": b == len(graph.branches) - 1,
        }
        for g, graph in enumerate(image.graphs)
        for b, branch in enumerate(graph.branches)
        for k, leg in enumerate(branch)
    ]


def _skip(image: NetfpgaCardImage, leg: HardwarePass) -> int:
    return ((1 << image.tasks) - 1) & ~sum(1 << task for task in leg.tasks)


def _graphs(image: NetfpgaCardImage) -> list[dict[str, Any]]:
    everything = (1 << image.branches) - 1
    return [
        {
            "index": g,
            "comment": comment(graph.name),
            "here": (1 << len(graph.branches)) - 1,
            "lacks": everything & ~((1 << len(graph.branches)) - 1),
            "step": graph.step,
            "join": JOINS.index(graph.join),
            "rules": [
                {"when": _when(rule), "drop": rule.drop, "to": rule.to, "also": rule.copy}
                for rule in graph.rules
            ],
        }
        for g, graph in enumerate(image.graphs)
    ]


def _when(rule: HardwareRule) -> str:
    """Return the condition of a rule in Verilog."""
    parts = []
    if rule.classes:
        parts.append("(" + " || ".join(f"verdict == 16'd{c}" for c in rule.classes) + ")")
    if rule.margin:
        parts.append(f"margin >= 32'd{rule.margin}")
    if rule.below is not None:
        parts.append(f"margin < 32'd{rule.below}")
    return " && ".join(parts) or "1'b1"
