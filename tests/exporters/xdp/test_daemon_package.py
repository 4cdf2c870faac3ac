# SPDX-License-Identifier: Apache-2.0
"""The Debian package of n3icd: its form, and what dpkg makes of it."""

import re
import shutil
import subprocess

import pytest

from n3ic.errors import UsageError
from tests.support.n3icd import n3ic


def run(*command, **options):
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True, **options
    ).stdout


@pytest.fixture
def package(built, tmp_path, monkeypatch):
    monkeypatch.setenv("DEBFULLNAME", "Jane Doe")
    monkeypatch.setenv("DEBEMAIL", "jane@debian.org")
    out = tmp_path / "n3icd.deb"
    n3ic("pack", built, "--out", out, "--policy", "benign=block:host,ttl=60")
    return out


def needs(tool):
    if not shutil.which(tool):
        pytest.skip(f"needs {tool}")


@pytest.mark.slow
def test_the_package_has_the_same_bytes_each_time(built, package, tmp_path):
    again = tmp_path / "again.deb"
    n3ic("pack", built, "--out", again, "--policy", "benign=block:host,ttl=60")
    assert again.read_bytes() == package.read_bytes()


@pytest.mark.slow
def test_debian_s_tools_read_the_package(built, package):
    needs("dpkg-deb")
    about = run("dpkg-deb", "-f", package)
    assert "Package: n3icd\n" in about
    assert "Maintainer: Jane Doe <jane@debian.org>\n" in about
    assert ' model net "0"' in about
    listed = run("dpkg-deb", "-c", package)
    assert all(" root/root " in line for line in listed.splitlines())
    assert "./usr/sbin/n3icd" in listed
    assert set(run("dpkg-deb", "-I", package, "conffiles").split()) == {"/etc/n3icd/n3icd.conf"}


@pytest.mark.slow
def test_what_dpkg_installs_is_whole_and_goes_again(built, package, tmp_path):
    needs("dpkg")
    root = tmp_path / "root"
    for name in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    dpkg = ("dpkg", f"--root={root}", "--force-script-chrootless", f"--log={tmp_path}/log")
    run(*dpkg, "-i", package)
    assert "ok installed" in run(*dpkg, "-s", "n3icd")
    run(*dpkg, "--verify", "n3icd")
    unit = (root / "usr/lib/systemd/system/n3icd@.service").read_text()
    assert "/opt" not in unit
    words = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split()
    conf = root / words[1].lstrip("/")
    settings = conf.read_text()
    for line in ("meter.o", "idle.o", "n3icd.pack"):
        path = re.search(rf"= (/.*/{line})$", settings, re.M)[1]
        assert (root / path.lstrip("/")).is_file()
    # The program that the unit names takes configuration and pack, where they lie now.
    conf.write_text(settings.replace("/usr/lib/n3icd", f"{root}/usr/lib/n3icd"))
    run(root / words[0].lstrip("/"), "--check", conf, "eth0")
    (root / "var/lib/n3icd").mkdir()
    (root / "var/lib/n3icd/eth0-00000000.pack").touch()
    run(*dpkg, "-r", "n3icd")
    left = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
    assert {name for name in left if "dpkg" not in name} == {
        "etc/n3icd/n3icd.conf", "var/lib/n3icd/eth0-00000000.pack"
    }  # fmt: skip
    run(*dpkg, "-P", "n3icd")
    assert not [p for p in root.rglob("*n3icd*") if "dpkg" not in str(p)]


@pytest.mark.slow  # builds all again, without sanitizers
def test_lintian_finds_no_error(built, tmp_path, monkeypatch):
    needs("lintian")
    monkeypatch.setenv("DEBEMAIL", "jane@debian.org")
    place = tmp_path / "export"
    shutil.copytree(built, place)
    (place / "daemon" / "n3icd").unlink()
    run("make", "-s", "-C", place, "daemon/n3icd")
    n3ic("pack", place, "--out", tmp_path / "n3icd.deb")
    output = run("lintian", "--allow-root", "--fail-on", "none", tmp_path / "n3icd.deb")
    assert not re.findall(r"^[EW]: .*", output, re.M), output


def test_an_export_that_is_not_built(built, tmp_path):
    place = tmp_path / "export"
    shutil.copytree(built, place)
    (place / "daemon" / "n3icd").unlink()
    with pytest.raises(UsageError, match="build the export first"):
        n3ic("pack", place, "--out", tmp_path / "n3icd.deb")
    (place / "daemon" / "n3icd").write_text("#!/bin/sh")
    with pytest.raises(UsageError, match="not a program for amd64"):
        n3ic("pack", place, "--out", tmp_path / "n3icd.deb")
    assert not (tmp_path / "n3icd.deb").exists()
