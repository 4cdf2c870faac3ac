"""Random networks that carry a meter, and their ``flow-exec``."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest

from n3ic.exporters.host import EXPORTER
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model

C = ("flow_exec.c", "capture.c", "live.c", "meter.c", "bnn.c")


def metered_network(spec, seed=0):
    """A random network that reads every feature of a specification, with cuts of all sizes."""
    rng = np.random.default_rng(seed)
    fields = []
    for name in spec.feature_names:
        cuts = sorted({*(1 << rng.integers(0, 32, 6)).tolist()})
        fields.append(Field.thermometer(name, cuts, unit=spec.units[name]))
    inputs = InputSpec(tuple(fields))
    model = random_model((inputs.n_bits, 16, 3), rng)
    return replace(model, input=inputs, meter=spec, classes=("=a", 'b,"c', "d"))


def exported(model, out):
    out.mkdir()
    EXPORTER.write(model, EXPORTER.parse_options({}), out)
    return out


def compiled_flows(compiler, model, out, *flags):
    """An export's ``flow-exec``; skips where the sanitizers are missing."""
    done = subprocess.run(
        [*compiler.command, *flags, *C, "-o", "flow-exec"],
        cwd=exported(model, out),
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip("needs the compiler's sanitizer libraries (libasan, libubsan)")
    assert done.returncode == 0, done.stderr
    return out / "flow-exec"
