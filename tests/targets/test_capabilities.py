# SPDX-License-Identifier: Apache-2.0
"""A target has a capability or lacks it, and a command that needs one it lacks says so."""

import numpy as np
import pytest

import n3ic
from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.model.random_models import random_model
from n3ic.targets.base import exporter
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory
from tests.support.command_line import typed

CAPABILITIES = {
    "meter": {"host", "dpdk", "xdp"},
    "importer": {"onnx", "qonnx"},
    "benchmark": {"host", "dpdk", "xdp"},
    "simulated_card": {"netfpga"},
}


@pytest.mark.parametrize("name", CAPABILITIES)
def test_each_capability_is_had_by_the_targets_listed(name):
    targets = [exporter(target) for target in plugins.names("n3ic.exporters")]
    assert {t.name for t in targets if getattr(t, name) is not None} == CAPABILITIES[name]


def test_a_target_that_defines_none_lacks_them_all(toy, model, tmp_path):
    assert all(getattr(toy, name) is None for name in CAPABILITIES)
    assert toy.options_of("bench") == toy.options_of("simulate") == ()
    assert [o.name for o in toy.options_of("verify")] == ["slow"]
    with pytest.raises(UsageError, match="target toy has no benchmark"):
        n3ic.bench("toy", model)
    done = export(model, "toy", tmp_path / "out")
    with pytest.raises(UsageError, match="meters no packets, and takes no captures"):
        verify_directory(done.path, captures=[tmp_path / "c.pcap"])


def test_a_command_that_needs_what_a_target_lacks_is_refused(tmp_path):
    model = random_model((16, 4, 2), np.random.default_rng(0))
    export(model, "host", tmp_path / "out", verify=False)
    error = typed("simulate host out", tmp_path, expect=2).stderr
    assert "target host has no simulated card" in error
    error = typed("import m.onnx --from host --out new.n3ic", tmp_path, expect=2).stderr
    assert "cannot be imported from host: give --from one of onnx, qonnx" in error
    assert "no benchmark" in typed("bench p4", tmp_path, expect=2).stderr
