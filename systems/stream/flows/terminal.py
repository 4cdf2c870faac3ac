# SPDX-License-Identifier: Apache-2.0
"""A stream on the terminal: a table while it runs, and the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from n3ic.cli.console import console
from n3ic.systems.stream.flows.figures import StreamFigures
from n3ic.util.names import visible


def lines(f: StreamFigures) -> list[str]:
    """The figures as lines of text."""
    rate = f.read / max(f.seconds, 1e-9)
    out = [
        f"packets {f.packets:,} ({f.frame_bytes:,} bytes and {rate:,.0f} packets/s in "
        f"{f.seconds:,.1f} s)",
        f"flows {f.flows:,}" + "".join(f", {name} {n:,}" for name, n in sorted(f.classes.items())),
        f"states written {f.commits:,}",
    ]
    out += [f"model {m.model[:12]} from flow {m.flow:,} on" for m in f.models[1:]]
    if f.meter.get("evicted") or f.meter.get("late"):
        out.append(f"evicted {f.meter['evicted']:,} flows; late {f.meter['late']:,} packets")
    out += [f"lost or aside: {n:,} packets ({place})" for place, n in f.dropped.items()]
    for name, latencies in (("decided", f.decided), ("written", f.written)):
        if figures := latencies.to_dict():
            text = ", ".join(f"{key.removesuffix('_us')} {us:,}" for key, us in figures.items())
            out.append(f"us from arrival until {name}: {text}")
    out += [
        f"queue of {name}: {now} of {room} batches, {highest} at most"
        for name, (now, highest, room) in f.waiting.items()
    ]
    return out


@contextmanager
def live_view(enabled: bool) -> Iterator[Callable[[StreamFigures], object]]:
    """Show figures live on standard error, if it is a terminal; yields the function to call."""
    screen = console(stderr=True)
    if not enabled or not screen.is_terminal:
        yield lambda _: None
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=screen, auto_refresh=False, transient=True) as live:
        yield lambda f: live.update(Text("\n".join(map(visible, lines(f)))), refresh=True)
