# SPDX-License-Identifier: Apache-2.0
"""An exporter that can be made to fail, and a model for it."""

import numpy as np
import pytest

from n3ic import plugins
from n3ic.errors import MissingDependencyError, UsageError
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.options import Option
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import VerificationDefaults
from n3ic.targets.device import Device, Fit, Memory, Placement, Problem
from n3ic.targets.figures import Figure, Report


class Toy(Exporter):
    """Writes the model file a second time and runs that."""

    name = "toy"
    summary = "a toy"
    options = (
        Option("limit", "largest model", 10_000, minimum=1),
        Option("mode", "how", "good", choices=("good", "broken", "absent", "disk-full")),
    )
    verification = VerificationDefaults((Option("slow", "more", False),))
    device = Device("a toy card", 1.0, (Memory("RAM", 10_000),), {}, {}, "invented")

    def check(self, model, options):
        missing = model.weight_bytes - options["limit"]
        placement = Placement("weights", "RAM", model.weight_bytes)
        if missing <= 0:
            return Fit((placement,))
        problem = Problem(f"layer 0 lacks {missing} bytes of RAM", 0, "RAM", missing, "8-2")
        return Fit((placement,), (problem,))

    def write(self, model, options, out):
        if options["mode"] == "disk-full":
            raise OSError(28, "No space left on device")
        if options["mode"] == "broken":
            bias = model.output.bias + np.arange(len(model.classes), dtype=np.int32)
            model = BinaryModel(
                model.input,
                model.hidden,
                type(model.output)(model.output.weights, mask=model.output.mask, bias=bias),
                model.classes,
            )
        model.save(out / "artefact.bin")
        (out / "sub").mkdir()
        (out / "sub" / "README.md").write_text("next: nothing\n")

    def run(self, directory, model, options, words):
        if options["mode"] == "absent":
            raise MissingDependencyError("toycc is not installed: apt-get install toycc")
        return Execution(BinaryModel.load(directory / "artefact.bin").infer(words), "toy executor")

    def report(self, model, options, directory):
        size = (directory / "artefact.bin").stat().st_size
        return Report(
            (Figure("memory.file", size, "byte", "measured", "size | of <file>"),), ("n",)
        )


@pytest.fixture
def toy(monkeypatch):
    tool, others = Toy(), plugins.load

    def load(group, name):
        if group != "n3ic.exporters":
            return others(group, name)
        if name != "toy":
            raise UsageError(f"unknown target {name!r}")
        return tool

    monkeypatch.setattr(plugins, "load", load)
    return tool


@pytest.fixture
def model():
    return random_model((40, 9, 5, 3), np.random.default_rng(1))
