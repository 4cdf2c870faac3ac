# SPDX-License-Identifier: Apache-2.0
"""``n3ic data``: list, show, check and generate data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from n3ic.cli.console import list_options, print_json, print_note, print_result, progress_bar, table
from n3ic.cli.plugin_options import Owned, options_of, with_options
from n3ic.cli.rows import takes_rows
from n3ic.errors import UsageError
from n3ic.evaluation.study import GROUP as STUDIES
from n3ic.evaluation.study import study
from n3ic.options import Option, OptionValue

if TYPE_CHECKING:
    from n3ic.data.column_profile import ColumnProfile
    from n3ic.data.user_table import UserTable
    from n3ic.model.meter_spec import Tunnel

LabelsFormat = Annotated[
    Literal["table", "ndpi", "zeek", "upc-aau", "hosts"], typer.Option(help="Format of the labels.")
]
KnownDataSet = Annotated[
    str | None, typer.Option("--dataset", help="Data set; default: the one that recognises it.")
]
TableLabel = Annotated[
    str, typer.Option(help="Column of the class, for a table of no known data set.")
]
LabelColumn = Annotated[str, typer.Option(help="Column of the label; default: the format's own.")]
IdleTimeout = Annotated[
    float, typer.Option(help="Seconds without a packet that end a flow.", min=0.001)
]
CacheFlows = Annotated[
    int, typer.Option(help="Size of the flow cache, in flows.", min=1, max=1 << 24)
]
SequencePackets = Annotated[
    int,
    typer.Option(
        help="Also keep lengths, directions and gaps of a flow's first N packets; 0: none.",
        min=0,
        max=32,
    ),
]
BySource = Annotated[
    bool,
    typer.Option(
        "--sources",
        help="Also count what a flow's source did: new flows, unanswered ones, ports, hosts.",
    ),
]
Tunnels = Annotated[
    str, typer.Option(help="Tunnels whose inner packets are metered: gre, vxlan, gtp, or several.")
]
MeterJobs = Annotated[
    int | None, typer.Option(help="Captures metered at once; default: one per core.", min=1)
]
_GROUP = "n3ic.datasets"


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands.

    Args:
        app: the command line.
        words: the typed words, which tell whether the generators' own options are needed.
    """
    from n3ic import plugins

    group = typer.Typer(help="List, show, check and generate data sets.", no_args_is_help=True)
    group.command("list")(list_sets)
    group.command("show")(show)
    group.command("describe")(describe)
    group.command("check")(check)
    group.command("extract")(extract)
    # Only `data generate` needs the generators' options, and loading them takes a while.
    group.command("generate")(
        with_options(generate, _owners() if {"data", "generate"} <= set(words) else ())
    )
    for candidate in map(study, plugins.names(STUDIES)):
        if candidate.register is not None and candidate.group == "data":
            candidate.register(group, words)
    app.add_typer(group, name="data")


def _owners() -> list[Owned]:
    from n3ic import plugins

    return options_of({name: partial(_generator, name) for name in plugins.names(_GROUP)})


def _generator(name: str) -> tuple[Option, ...]:
    from n3ic.data.dataset import data_set

    return data_set(name).generator_options or ()


def list_sets(
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List the data sets."""
    from n3ic import plugins
    from n3ic.data.dataset import data_set

    summaries = {name: data_set(name).summary for name in plugins.names(_GROUP)}
    if json:
        print_json(summaries)
        return
    for name, summary in summaries.items():
        print_result(f"{name:<24}{summary}")


@takes_rows("name")
def show(
    name: Annotated[str, typer.Argument(help="A data set, or a table of flows.")],
    features: Annotated[
        bool, typer.Option("--features", help="Show the feature catalogue, not the card.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the catalogue as JSON.")] = False,
) -> None:
    """Print a data set's card or its features; for a table, its columns."""
    from dataclasses import asdict

    from n3ic import plugins
    from n3ic.data.dataset import data_set
    from n3ic.data.user_table import describe as describe_table

    if name not in plugins.names(_GROUP) and Path(name).exists():
        own, facts = describe_table(name)
        if json:
            print_json({"table": own.toml["table"], "columns": own.toml["columns"]})
        else:
            _show_columns(name, own, facts)
        return
    source = data_set(name)
    if json:
        print_json([asdict(f) for f in source.catalogue])
    elif features:
        table(
            name,
            ["feature", "meaning", "unit", "bits", "at one tap", "NIC", "leaks"],
            [
                [
                    f.name,
                    f.meaning,
                    f.unit,
                    str(f.bits),
                    f"{f.tap}: {f.tap_reason}" if f.tap else "",
                    "yes" if f.nic else f"no: {f.nic_reason}",
                    f.leak_reason if f.leaks else "",
                ]
                for f in source.catalogue
            ],
            left=3,
        )
    else:
        print_result(source.card.rstrip())


@takes_rows("path")
def describe(
    path: Annotated[
        Path, typer.Argument(metavar="FLOWS", help="A table with one flow per row, or a folder.")
    ],
    label: Annotated[str, typer.Option(help="Column of the class.")] = "",
    out: Annotated[
        str, typer.Option(help="File to write; default: columns.toml beside the data; -: no file.")
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Infer the meaning of a table's columns, print it, and write it to columns.toml.

    n3ic train, data check and data show read that file, and its entries override the inference.
    """
    from n3ic.data.description import COLUMNS_FILE, description_text
    from n3ic.data.user_table import describe as describe_table
    from n3ic.util.files import free_path, write_atomic

    target = Path(out) if out else (path if path.is_dir() else path.parent) / COLUMNS_FILE
    if out != "-":
        free_path(target, replace)
    own, facts = describe_table(path, label, beside=False)
    if json:
        print_json({"table": own.toml["table"], "columns": own.toml["columns"]})
    else:
        _show_columns(str(path), own, facts)
    if out != "-":
        write_atomic(target, description_text(own.toml))
        print_note(f"wrote {target}")


def _show_columns(name: str, own: UserTable, facts: Sequence[ColumnProfile]) -> None:
    """Print the columns of a table: type, unit, whether each is used, and why not."""
    known = {f.name: f for f in facts}
    table(
        f"{name}: {facts[0].rows:,} rows",
        ["column", "type", "unit", "used", "why", "different", "odd cells"],
        [
            [
                column,
                known[column].type if entry["kind"] in ("number", "text") else entry["kind"],
                entry.get("unit", ""),
                "no" if not entry["use"] else "in doubt" if entry.get("doubt") else "yes",
                entry["reason"] if not entry["use"] else entry.get("doubt") or entry["reason"],
                f"{known[column].distinct:,}",
                _odd(known[column]),
            ]
            for column, entry in own.toml["columns"].items()
        ],
        left=5,
    )
    for note in own.notes:
        print_result(f"note: {note}")
    label = own.rules.label
    print_result(
        f"label: {label} ({known[label].distinct:,} values)" if label else "label: --label COLUMN"
    )
    if key := own.toml["table"].get("conversation"):
        print_result(f"conversation: {', '.join(key)}")


def _odd(facts: ColumnProfile) -> str:
    counts = {"blank": facts.blank, "infinite": facts.infinite, "negative": facts.negative}
    return ", ".join(f"{n:,} {description}" for description, n in counts.items() if n)


@takes_rows("path")
def check(
    path: Annotated[Path, typer.Argument(help="Files or a folder.")],
    name: KnownDataSet = None,
    label: TableLabel = "",
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Read files and report what they are, their number of rows, and their problems."""
    result = dict(_checked(path, name, label))
    if json:
        print_json(result)
        return
    for s in result.pop("sources"):
        digest = f", sha256 {s['sha256'][:16]}..." if s["sha256"] else ""
        print_result(f"{s['path']}: {s['identity']}, {s['rows']:,} rows{digest}")
    problems = result.pop("problems", ())
    for key, value in result.items():
        print_result(f"{key.replace('_', ' ')}: {_words(value)}")
    for problem in problems:
        print_result(f"note: {problem}")


def _checked(path: Path, name: str | None, label: str) -> Mapping[str, Any]:
    """The facts about files, read by the named or recognised data set, or as the user's table."""
    from n3ic.data.dataset import data_set, data_set_of
    from n3ic.data.user_table import OWN, description_beside, need_label
    from n3ic.data.user_table import describe as describe_table

    if name == OWN or label or (name is None and description_beside(path)):
        own, facts = describe_table(path, label)
        need_label(own, facts, path)
        return own.check(path)
    return (data_set(name) if name else data_set_of(path)).check(path)


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k or '(none)'} {_words(v)}" for k, v in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:.2%}"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "not known" if value is None else str(value)


def extract(
    captures: Annotated[
        list[str],
        typer.Argument(
            help="pcap or pcapng files, also compressed, and folders of them; - for standard input."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Table to write: .csv or .parquet.")] = Path(
        "flows.parquet"
    ),
    meter: Annotated[
        Path | None,
        typer.Option(help="Specification of a meter (JSON); default: the standard meter."),
    ] = None,
    packets: Annotated[
        str, typer.Option(help="Decide at the N-th packet, or at several and the end: 3,8,20,end.")
    ] = "end",
    after: Annotated[
        float, typer.Option(help="Decide a flow this many seconds after its start; 0: off.", min=0)
    ] = 0.0,
    sequence: SequencePackets = 0,
    sources: BySource = False,
    idle_timeout: IdleTimeout = 60.0,
    cache_flows: CacheFlows = 1 << 16,
    tunnels: Tunnels = "",
    labels: Annotated[Path | None, typer.Option(help="Labels to join by key and time.")] = None,
    labels_format: LabelsFormat = "table",
    label_column: LabelColumn = "",
    one_stream: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Treat the captures as pieces of one: flows go on from one to the next. "
            "Default: flows end with their capture.",
        ),
    ] = False,
    jobs: MeterJobs = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Meter on a Dask cluster: the address of its scheduler."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Meter captures: a table of flows with the features that a NIC computes.

    An interrupted run resumes when the same command is run again.
    """
    from dataclasses import asdict
    from dataclasses import replace as fields_replaced

    from n3ic.data.table_meter import meter_file
    from n3ic.meter.checkpoints import checkpoint_folder
    from n3ic.meter.extract import Progress
    from n3ic.meter.extract import extract as extract_flows
    from n3ic.meter.labels import read_labels
    from n3ic.meter.records import left_out
    from n3ic.meter.sequences import with_sequence
    from n3ic.meter.sources import with_sources
    from n3ic.meter.spec_file import read_spec
    from n3ic.meter.standard import standard_spec
    from n3ic.util.files import free_path

    if out.suffix.lower() not in (".csv", ".parquet"):
        raise UsageError(f"--out {out}: flows are written to a .csv or a .parquet file")
    free_path(out, replace)
    if out.suffix.lower() != ".parquet":  # a CSV file keeps its meter beside it
        free_path(meter_file(out), replace)
    if meter is None:
        spec = standard_spec(
            **_decided_at(packets),
            after_us=round(after * 1e6),
            idle_timeout_us=round(idle_timeout * 1e6),
            cache_flows=cache_flows,
        )
    else:
        spec = read_spec(meter)
    if sequence:
        spec = with_sequence(spec, sequence)
    if sources:
        spec = with_sources(spec)
    if tunnels:
        spec = fields_replaced(spec, tunnels=tunnels_of(tunnels))
    flow_labels = read_labels(labels, labels_format, label_column) if labels else None
    with progress_bar("metering captures") as reach:

        def show_progress(now: Progress) -> None:
            captures = f"{now.captures:,} of {now.of:,} captures, " if now.of > 1 else ""
            reach(now.share, f"{captures}{now.packets:,} packets, {now.flows:,} flows")

        try:
            extraction = extract_flows(
                captures,
                out,
                spec,
                labels=flow_labels,
                progress=show_progress,
                jobs=jobs,
                dask=dask,
                one_stream=one_stream,
                must_read=True,
            )
        except KeyboardInterrupt:
            if (folder := checkpoint_folder(out)).is_dir():
                print_note(f"work is kept in {folder}; the same command resumes from there")
            raise
    if json:
        print_json({**asdict(extraction), "path": str(out)})
        return
    rows = "decisions" if spec.decision.again else "flows"
    print_result(f"{extraction.packets:,} packets, {extraction.flows:,} {rows} -> {out}")
    if extraction.kept:
        print_result(f"metered before: {extraction.kept:,} of {extraction.captures:,} captures")
    if extraction.damaged:
        print_result(f"damaged: {len(extraction.damaged):,} of {extraction.captures:,} captures")
    left = {
        "late": extraction.late,
        "evicted": extraction.evicted,
        "tunnelled": extraction.tunnelled,
        "forgotten": extraction.forgotten,
    }
    for line in left_out({**extraction.aside, **left}):
        print_result(line)
    if flow_labels is not None:
        counts = (f"{n:,} {outcome}" for outcome, n in sorted(extraction.labels.items()))
        print_result(f"labels: {', '.join(counts)}")


def packets_of(text: str) -> tuple[int, ...]:
    """Numbers of packets from what was typed, 0 for ``end``.

    Raises:
        UsageError: a part is neither a number from 1 nor ``end``.
    """
    out = []
    for part in (p.strip() for p in text.split(",")):
        if part != "end" and not (part.isascii() and part.isdecimal() and 0 < int(part) < 1 << 24):
            raise UsageError(f"--packets: expected numbers from 1 and 'end', got {part!r}")
        out.append(0 if part == "end" else int(part))
    return tuple(out)


def tunnels_of(text: str) -> tuple[Tunnel, ...]:
    """Tunnels from what was typed, in the order that a specification requires.

    Raises:
        UsageError: a part is not a known tunnel.
    """
    from n3ic.model import meter_spec

    known: tuple[Tunnel, ...] = get_args(meter_spec.Tunnel)
    tunnels = [part.strip() for part in text.split(",") if part.strip()]
    for part in tunnels:
        if part not in known:
            raise UsageError(f"--tunnels: expected some of {', '.join(known)}, got {part!r}")
    return tuple(tunnel for tunnel in known if tunnel in tunnels)


def _decided_at(text: str) -> dict[str, Any]:
    """Arguments of the standard meter: one packet, or a schedule that ends with ``end``."""
    *early, last = packets_of("end" if text == "0" else text)
    if early and (last or 0 in early):
        raise UsageError(f"--packets {text}: expected 'end' as the last, such as 3,8,20,end")
    return {"schedule": tuple(early)} if early else {"packets": last}


def generate(
    name: Annotated[
        str | None,
        typer.Argument(help="A data set or use case; without it, the generators are listed."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    given: Mapping[str, OptionValue] | None = None,
) -> None:
    """Generate flows or run a simulator, and write a file that n3ic reads."""
    from n3ic import plugins
    from n3ic.data.dataset import data_set
    from n3ic.usecases.base import use_case

    sets = plugins.names(_GROUP)
    if name is None:
        for generator in map(data_set, sets):
            if generator.generator_options is not None:
                print_result(f"{generator.name}: {generator.summary}")
                list_options(generator.generator_options)
        return
    if name in plugins.names("n3ic.usecases") and name not in sets:
        name = use_case(name).default
    written = data_set(name).generate_file(out, given or {}, print_note, replace=replace)
    print_result(f"wrote {written}")
