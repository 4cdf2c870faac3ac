# SPDX-License-Identifier: Apache-2.0
"""A running n3icd, its readers, and traffic for it."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from n3ic.cli.main import command_line
from n3ic.exporters.xdp.packing import pack
from n3ic.exporters.xdp.plan import Choices, plan
from n3ic.systems.xdp.deployment import exported
from n3ic.targets.directory import export

CLASSES = ("benign", 'a "quoted]\\ class', "größer=%n{}")
N3IC = (
    sys.executable, "-u", "-c",
    "import sys; from n3ic.cli.main import main; sys.argv[0] = 'n3ic'; main()",
)  # fmt: skip
WAIT_S = 60  # for a loaded machine; nothing waits for that long unless it fails


def n3ic(*arguments):
    """What a command of ``n3ic xdp`` prints."""
    typed = ["xdp", *map(str, arguments)]
    done = CliRunner().invoke(command_line(typed), typed)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def build(folder, model, *wanted, flags="-O0", **options):
    """An export of a model with its n3icd, built in a folder."""
    out = Path(folder) / "export"
    if not shutil.which("gcc") or not Path("/usr/include/bpf/libbpf.h").exists():
        pytest.skip("needs gcc and libbpf's headers (apt-get install gcc libbpf-dev)")
    export(model, "xdp", out, options=options, verify=False)
    wanted = wanted or ("daemon/n3icd", "meter/meter.o")
    subprocess.run(["make", "-s", "-C", str(out), f"HOST_FLAGS={flags}", *wanted], check=True)
    return out


def repacked(built, model, path, **given):
    """Write a pack of a model for the program of an export."""
    chosen = Choices(models={0: model}, **given)
    path.write_bytes(pack(built, plan(exported(built)[0], "buckets", chosen)))
    return path


def decided(slot):
    """How many flows the model of a slot decided or shunted."""
    return sum(slot.classes.values()) + slot.shunted


def frame(port, protocol=17, source=1):
    """A UDP packet between two documentation addresses."""
    ip = bytes.fromhex(f"4500003a00000000 40 {protocol:02x} 0000 c00002{source:02x} c0000202")
    udp = port.to_bytes(2, "big") + bytes.fromhex("0035 0026 0000")
    return bytes.fromhex("020000000001 020000000002 0800") + ip + udp + b"x" * 30


def send(link, frames):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((link, 0))
        for data in frames:
            out.send(data)


def flows(ports, packets=4):
    return [frame(port) for port in ports for _ in range(packets)]


class Reader:
    """A reader of decided flows; the first line is the greeting."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")
        self.greeting = self.line()

    def line(self):
        return json.loads(self.file.readline())

    def lines(self, count):
        return [self.line() for _ in range(count)]

    def close(self):
        self.file.close()
        self.socket.close()


class Daemon:
    """n3icd on an interface, with the files of its folder, until it is stopped."""

    def __init__(self, built, interface, folder, pins, **settings):
        self.built, self.interface, self.folder = Path(built), interface, Path(folder)
        self.socket = self.folder / "n3icd.sock"
        given = {
            "object": self.built / "meter" / "meter.o",
            "idle-object": self.built / "daemon" / "idle.o",
            "pack": self.built / "daemon" / "n3icd.pack",
            "pins": Path(pins) / "n3ic",
            "socket": self.socket,
            "control": self.folder / "n3icd.control",
            "updates": self.folder / "updates",
            "records": self.folder / "xdp",
            **{key.replace("_", "-"): value for key, value in settings.items()},
        }
        self.settings = given
        self.conf = self.folder / "n3icd.conf"
        self.conf.write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
        self.process = None
        self.log = []

    def command(self, *options):
        return [self.built / "daemon" / "n3icd", *options, self.conf, self.interface]

    def run(self, *options):
        """Run it to its end, which is near: after an error, or with an option."""
        done = subprocess.run(
            self.command(*options), capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert "Sanitizer" not in done.stderr, done.stderr
        assert "runtime error" not in done.stderr, done.stderr
        return done

    def start(self):
        self.process = subprocess.Popen(self.command(), stderr=subprocess.PIPE, text=True)
        self.expect("room for")
        return self

    def expect(self, text):
        """Read what it says until a line holds the text."""
        for line in self.process.stderr:
            self.log.append(line)
            assert "Sanitizer" not in line, line + self.process.stderr.read()
            if text in line:
                return line
        raise AssertionError(f"{text!r} never came: {''.join(self.log)}")

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        _, errors = self.process.communicate(timeout=WAIT_S)
        self.log.append(errors)
        assert "Sanitizer" not in errors, errors
        return self.process.returncode

    def remove(self):
        if self.process and self.process.poll() is None:
            self.end(signal.SIGKILL)
        self.run("--remove")

    def reader(self):
        return Reader(self.socket)

    def figures(self):
        """What Prometheus gets: values by name with labels."""
        return self.answered_figures(self.figures_request())

    def figures_request(self):
        """A socket on which the figures were asked for."""
        where = str(self.settings["prometheus"])
        kind = socket.AF_UNIX if where.startswith("/") else socket.AF_INET
        host, _, port = where.rpartition(":")
        request = socket.socket(kind)
        request.settimeout(WAIT_S)
        request.connect(where if kind == socket.AF_UNIX else (host, int(port)))
        request.sendall(b"GET /metrics HTTP/1.1\r\nHost: n3icd\r\n\r\n")
        return request

    def answered_figures(self, request):
        """The figures of an answer, which ends its connection."""
        with request:
            answer = request.makefile("rb").read()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK")
        assert f"Content-Length: {len(body)}".encode() in head
        text = body.decode()
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}


def asked(running):
    """What n3icd tells of its program."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_S)
        connection.connect(str(running.settings["control"]))
        connection.sendall(b"status\n")
        return json.loads(connection.makefile("rb").readline())


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def mount(path):
    """Mount a BPF file system; False where it is not permitted."""
    path.mkdir()
    command = ["mount", "-t", "bpf", "bpf", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(path):
    subprocess.run(["umount", str(path)], check=True)


def check_a_retrained_model(built, link, folder, pins, models):
    """A daemon tells the scores of the model that it holds, and takes the next one at SIGHUP.

    Args:
        built: an export whose daemon and program are built.
        link: the interface of the daemon, and its peer.
        folder: scratch folder.
        pins: folder of a BPF file system.
        models: the model of the pack, and the retrained one.
    """
    path = folder / "again.pack"
    repacked(built, models[0], path)
    daemon = Daemon(built, link[0], folder, pins, pack=path)
    try:
        daemon.start()
        reader = daemon.reader()
        for number, resident in enumerate(models):
            send(link[1], flows(range(1000 * number, 1000 * number + 5)))
            for flow in reader.lines(5):
                assert flow["model"] == resident.digest[:16]
                inputs = resident.encode({n: [v] for n, v in flow["features"].items()})
                assert flow["scores"] == resident.scores(inputs)[0].tolist()
            repacked(built, models[1], path)
            daemon.process.send_signal(signal.SIGHUP)
            daemon.expect("is loaded")
        assert daemon.end() == 0
    finally:
        daemon.remove()
        unmount(pins)
