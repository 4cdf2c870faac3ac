# SPDX-License-Identifier: Apache-2.0
"""A Debian package of ``n3icd``, with the program of an export and a pack.

The package is made without Debian's tools, and the same input always gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import struct
import tarfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from n3ic import __version__
from n3ic.errors import UsageError
from n3ic.exporters.xdp.packing import PACK, unpack
from n3ic.util.files import read_regular
from n3ic.util.templates import render

_FOLDER = Path(__file__).resolve().parent / "deb"
_MOST_BYTES = 64 << 20
_EPOCH = 946_684_800  # the start of 2000, unless SOURCE_DATE_EPOCH gives another time
_ARCHITECTURES = {62: "amd64", 183: "arm64", 243: "riscv64"}  # by the e_machine field of ELF
_LIBRARY = "usr/lib/n3icd"
_CONFIGURATION = "etc/n3icd/n3icd.conf"


def package(export: Path, pack: bytes) -> bytes:
    """Make a Debian package.

    The environment variables DEBFULLNAME and DEBEMAIL give the maintainer, and SOURCE_DATE_EPOCH
    the time of the files, in seconds since 1970.

    Args:
        export: an export for XDP that ``make`` has built.
        pack: the pack that n3icd loads.

    Returns:
        The bytes of the package.

    Raises:
        UsageError: The export is not built, or is for an architecture that has no package.
    """
    daemon = export / "daemon"
    binary = _read(daemon / "n3icd")
    machine = struct.unpack_from("<H", binary, 18)[0] if binary[:6] == b"\x7fELF\2\1" else 0
    if machine not in _ARCHITECTURES:
        raise UsageError(f"{daemon / 'n3icd'}: not a program for {', '.join(_known())}")
    when = int(os.environ.get("SOURCE_DATE_EPOCH", _EPOCH))
    maintainer = [os.environ.get(name, "n3ic") for name in ("DEBFULLNAME", "DEBEMAIL")]
    made_by = {
        "maintainer": _line("{} <{}>".format(*maintainer)),
        "version": __version__,
        "architecture": _ARCHITECTURES[machine],
        "date": time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(when)),
    }
    unit = _read(daemon / "n3icd@.service").decode()
    for old, new in (
        ("/opt/n3icd/n3icd n3icd.conf", f"/usr/sbin/n3icd /{_CONFIGURATION}"),
        ("ExecPaths=/opt/n3icd/n3icd", "ExecPaths=/usr/sbin/n3icd"),
        ("WorkingDirectory=/opt/n3icd", f"WorkingDirectory=/{_LIBRARY}"),
    ):
        unit = unit.replace(old, new)
    settings = _read(daemon / "n3icd.conf").decode()
    for name in ("meter.o", "idle.o", PACK):
        settings = settings.replace(f"= {name}\n", f"= /{_LIBRARY}/{name}\n")
    changes = render(_FOLDER, "changelog.j2", made_by)
    files = {
        "usr/sbin/n3icd": binary,
        f"{_LIBRARY}/meter.o": _read(export / "meter" / "meter.o"),
        f"{_LIBRARY}/idle.o": _read(daemon / "idle.o"),
        f"{_LIBRARY}/{PACK}": pack,
        "usr/lib/systemd/system/n3icd@.service": unit.encode(),
        _CONFIGURATION: settings.encode(),
        "usr/share/doc/n3icd/copyright": (_FOLDER / "copyright").read_bytes(),
        "usr/share/doc/n3icd/changelog.gz": gzip.compress(changes.encode(), 9, mtime=0),
        "usr/share/man/man8/n3icd.8.gz": gzip.compress(
            (_FOLDER / "n3icd.8").read_bytes(), 9, mtime=0
        ),
        "usr/share/lintian/overrides/n3icd": (_FOLDER / "overrides").read_bytes(),
    }
    sums = "".join(
        f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  {name}\n"
        for name, data in sorted(files.items())
        if name != _CONFIGURATION
    )
    models = [_line(f"model {model.name}") for model in unpack(pack).networks.values()]
    size = -(-sum(map(len, files.values())) // 1024)
    about = {
        "control": render(
            _FOLDER, "control.j2", {**made_by, "kibibytes": size, "models": models}
        ).encode(),
        "conffiles": f"/{_CONFIGURATION}\n".encode(),
        "md5sums": sums.encode(),
        **{name: (_FOLDER / name).read_bytes() for name in ("postinst", "prerm", "postrm")},
    }
    scripts = ("postinst", "prerm", "postrm", "usr/sbin/n3icd")
    return _archive(
        {
            "debian-binary": b"2.0\n",
            "control.tar.xz": _tar(about, scripts, when),
            "data.tar.xz": _tar(files, scripts, when),
        },
        when,
    )


def _known() -> Iterable[str]:
    return _ARCHITECTURES.values()


def _line(text: str) -> str:
    """Replace unprintable characters, so that the text cannot end its line."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}: build the export first (make -C EXPORT)"
        ) from error


def _tar(files: Mapping[str, bytes], programs: Iterable[str], when: int) -> bytes:
    """Make an xz-compressed tar archive of files and their folders, owned by root."""
    folders = {str(p) for name in files for p in Path(name).parents} - {"."}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in ["", *sorted(folders | set(files))]:
            member = tarfile.TarInfo(f"./{name}")
            member.mtime, member.uname, member.gname = when, "root", "root"
            if name in files:
                member.mode, member.size = 0o755 if name in programs else 0o644, len(files[name])
                archive.addfile(member, io.BytesIO(files[name]))
            else:
                member.mode, member.type = 0o755, tarfile.DIRTYPE
                archive.addfile(member)
    return lzma.compress(out.getvalue(), preset=6)


def _archive(members: Mapping[str, bytes], when: int) -> bytes:
    """Make an ``ar`` archive."""
    out = [b"!<arch>\n"]
    for name, data in members.items():
        head = f"{name:<16}{when:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
        out += [head.encode(), data, b"\n" * (len(data) % 2)]
    return b"".join(out)
