# SPDX-License-Identifier: Apache-2.0
"""``n3ic bench host``: times the kernels beside common ways to run a classifier, in one run.

Every kernel must give the reference's scores before it is timed. All programs run on one thread and
on the same inputs. The fastest of several passes counts.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.host.machine import cpu_name
from n3ic.kernel import blob, build
from n3ic.kernel.library import KernelLibrary, KernelNetwork
from n3ic.model.bits import unpack
from n3ic.model.classifier import Classifier
from n3ic.model.difference import first_difference
from n3ic.model.network import BinaryModel
from n3ic.model.verification_vectors import boundary_features, verification_vectors
from n3ic.targets.figures import Bench

BATCHES = (1, 1_000, 10_000)
ROWS = 10_000
DEPENDENT_ROWS = 8_192
TIMING = Path(__file__).resolve().parent / "timing" / "timing.c"
_PASSES = 30
_TRAINING_ROWS = 2_000
_SINGLE_CALLS = 300  # calls at batch 1: the alternatives need microseconds for each

_ALTERNATIVES_NOTE = (
    "The alternatives run from Python on the network's input bits. The trees are trained on the "
    "network's own answers, so compare only their speed.",
)

Call = Callable[[NDArray[Any]], Any]
Table = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class ProgramTiming:
    """Nanoseconds per inference of one program.

    Attributes:
        name: the program.
        ours: whether the program is one of n3ic's kernels.
        batches: nanoseconds per inference, by batch size.
        dependent: nanoseconds per inference if each one waits for the previous one; None if not
            measured.
    """

    name: str
    ours: bool
    batches: dict[int, float]
    dependent: float | None = None


@dataclass(frozen=True)
class HostBench:
    """Results of :func:`bench_host`, all measured in one run on one thread.

    Attributes:
        shape: the network's shape.
        cpu: the CPU's name.
        compiler: compiler of the kernels.
        timings: one entry for each program.
        missing: programs that were left out, and why.
        packets: packets per second and core by program; empty if the model has no meter.
        alternatives: whether other libraries were to be measured.
    """

    shape: str
    cpu: str
    compiler: str
    timings: tuple[ProgramTiming, ...]
    missing: tuple[str, ...]
    packets: Mapping[str, float] = field(default_factory=dict)
    alternatives: bool = False

    def best(self, batch: int) -> float:
        """Our fastest kernel's nanoseconds at a batch size."""
        return min(t.batches[batch] for t in self.timings if t.ours)


def bench_host(
    model: BinaryModel, *, passes: int = _PASSES, rows: int = ROWS, alternatives: bool = True
) -> HostBench:
    """Measure every kernel of this CPU, then the alternatives that are installed.

    Args:
        model: the network.
        passes: timed passes over all rows; the fastest counts.
        rows: number of inputs; larger batches are not measured.
        alternatives: whether to measure other libraries as well.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: a kernel or the folded graph does not give the reference's scores.
    """
    compiler = _compiler()
    words = verification_vectors(model, rows)[:rows]
    timings: list[ProgramTiming] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="n3ic-bench-") as scratch:
        library = _timed_library(compiler, build.SOURCE, Path(scratch))
        net = library.load(blob.dump(model))
        for kernel in library.kernels:
            net.use_kernel(kernel)
            difference = first_difference(model, net.trace(words, model), words)
            if difference is not None:
                raise VerifyError(f"kernel {kernel}: {difference}")
        for kernel in library.kernels:
            net.use_kernel(kernel)
            timings.append(_kernel(library, net, kernel, words, passes))
        if any(f.cuts for f in model.input.fields):
            timings += _from_features(library, net, model, rows, passes)
    if alternatives:
        bits = unpack(words, model.input.n_bits)
        timings.append(_call("numpy (the reference)", model.scores, words))
        for measure in ALTERNATIVES:
            try:
                timings.extend(measure(model, words, bits))
            except ImportError as error:
                missing.append(f"{_name(measure)}: {error.name} is not installed")
    return HostBench(
        model.shape_text,
        cpu_name(),
        compiler.version,
        tuple(timings),
        tuple(missing),
        alternatives=alternatives,
    )


def bench_compiled_in(
    model: Classifier,
    directory: Path,
    references: Mapping[str, Call],
    *,
    passes: int = _PASSES,
    rows: int = ROWS,
) -> HostBench:
    """Measure every kernel of a network that is compiled in, beside computations in Python.

    Rows hold, in each feature, a value at or next to a cut.

    Args:
        model: the model.
        directory: its export.
        references: by name, what computes the scores of packed inputs in Python.
        passes: timed passes over all rows; the fastest counts.
        rows: number of inputs; larger batches are not measured.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: a kernel does not give the reference's scores.
    """
    compiler = _compiler()
    features = _edges(model, rows)
    words = model.encode(features)
    with tempfile.TemporaryDirectory(prefix="n3ic-bench-") as scratch:
        library = _timed_library(compiler, directory / "bnn.c", Path(scratch))
        net = library.baked()
        for kernel in library.kernels:
            net.use_kernel(kernel)
            difference = first_difference(model, net.classify(words), words)
            if difference is not None:
                raise VerifyError(f"kernel {kernel}: {difference}")
        timings = [
            _kernel(library, _with_kernel(net, kernel), kernel, words, passes)
            for kernel in library.kernels
        ]
        timings += _from_features(library, net, model, rows, passes)
    timings += [_call(name, call, words) for name, call in references.items()]
    return HostBench(model.shape_text, cpu_name(), compiler.version, tuple(timings), ())


def _with_kernel(net: KernelNetwork, name: str) -> KernelNetwork:
    net.use_kernel(name)
    return net


def _compiler() -> build.CCompiler:
    try:
        return build.find_compiler()
    except build.NoCompilerError as error:
        raise MissingDependencyError("the benchmark needs a C compiler: gcc or clang") from error


def _timed_library(compiler: build.CCompiler, source: Path, scratch: Path) -> KernelLibrary:
    """Compile a network's C with the timers."""
    out = scratch / "bench.so"
    try:
        build.compile_shared(compiler, source, out, (f"-I{build.FOLDER}", str(TIMING)))
    except build.BuildError as error:
        raise VerifyError(f"the kernels do not compile: {error}") from error
    return KernelLibrary.open(out)


def render(result: HostBench) -> Bench:
    """Render the measurements as a table and as plain data."""
    batches = tuple(result.timings[0].batches)
    largest = batches[-1]
    columns = ("program", *(f"batch {b:,}" for b in batches), "dependent", "times ours")
    rows = []
    for t in result.timings:
        dependent = "" if t.dependent is None else f"{t.dependent:,.1f}"
        ratio = t.batches[largest] / result.best(largest)
        cells = (f"{t.batches[b]:,.1f}" for b in batches)
        rows.append((t.name, *cells, dependent, f"{ratio:,.1f}"))
    title = f"{result.shape} on {result.cpu}: ns per inference, measured, one thread"
    notes = (
        f"Kernels compiled by {result.compiler} with {' '.join(build.FLAGS)}; each gave the "
        "reference's scores before it was timed.",
        f"The last column compares with our fastest kernel at batch {largest:,}; `dependent`: "
        "each inference waits for the class before it.",
        *(_ALTERNATIVES_NOTE if result.alternatives else ()),
        *(f"Left out: {reason}." for reason in result.missing),
    )
    data = asdict(result) | {"kind": "measured", "unit": "ns"}
    tables = ((title, columns, tuple(rows)),)
    return Bench((*tables, *_packets_table(result)), notes, data)


def _packets_table(result: HostBench) -> Iterator[Table]:
    if result.packets:
        first = next(iter(result.packets.values()))
        rows = tuple(
            (name, f"{rate:,.0f}", f"{rate / first:.2f}") for name, rate in result.packets.items()
        )
        title = "from packets of a pcap file to verdicts: packets per second of one core, measured"
        yield title, ("program", "packets/s", "of flow-exec"), rows


def _name(measure: Measure) -> str:
    return str(getattr(measure, "__name__", measure)).strip("_").replace("_", " ")


def _batches(rows: int) -> tuple[int, ...]:
    return tuple(b for b in BATCHES if b <= rows)


def _kernel(
    library: KernelLibrary, net: KernelNetwork, name: str, words: NDArray[np.uint32], passes: int
) -> ProgramTiming:
    timer = library.handle
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    timer.timing_dependent.restype = ctypes.c_double
    timer.timing_dependent.argtypes = [pointer, pointer, size, ctypes.c_uint32]
    batches = _in_batches(timer.timing_batches, net, words, passes)
    power = 1 << min(DEPENDENT_ROWS, len(words)).bit_length() - 1  # the C masks the row's index
    dependent = float(timer.timing_dependent(net.pointer, words.ctypes.data, power, passes))
    return ProgramTiming(f"n3ic {name}", True, batches, dependent)


def _from_features(
    library: KernelLibrary, net: KernelNetwork, model: Classifier, rows: int, passes: int
) -> Iterator[ProgramTiming]:
    """Time each kernel from features at and next to the cuts, after a check."""
    features = _edges(model, rows)
    words = model.encode(features)
    x = np.stack([features[name] for name in net.features], axis=1).astype(np.uint32)
    for kernel in library.kernels:
        net.use_kernel(kernel)
        difference = first_difference(model, net.run(features), words)
        if difference is not None:
            raise VerifyError(f"kernel {kernel}, from features: {difference}")
        batches = _in_batches(library.handle.timing_features, net, x, passes)
        yield ProgramTiming(f"n3ic {kernel}, from features", True, batches)


def _edges(model: Classifier, rows: int) -> dict[str, NDArray[np.int64]]:
    """Features at and next to the cuts."""
    rng = np.random.default_rng(0)
    return {n: rng.choice(values, rows) for n, values in boundary_features(model.input).items()}


def _in_batches(
    timer: Any, net: KernelNetwork, inputs: NDArray[np.uint32], passes: int
) -> dict[int, float]:
    """Nanoseconds per input by batch size, measured by a function of ``timing.c``."""
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    timer.restype = ctypes.c_double
    timer.argtypes = [pointer, pointer, size, size, ctypes.c_uint32, *[pointer] * 2]
    rows = len(inputs)
    classes = np.empty(rows, dtype=np.uint32)
    margins = np.empty(rows, dtype=np.int32)
    outputs = (classes.ctypes.data, margins.ctypes.data)
    return {
        batch: float(timer(net.pointer, inputs.ctypes.data, rows, batch, passes, *outputs))
        for batch in _batches(rows)
    }


def _call(name: str, call: Call, rows: NDArray[Any]) -> ProgramTiming:
    """Time a Python call on the rows, in pieces of each batch size."""
    result = {}
    for batch in _batches(len(rows)):
        n = min(len(rows), _SINGLE_CALLS) if batch == 1 else len(rows) - len(rows) % batch
        parts = [rows[i : i + batch] for i in range(0, n, batch)]
        call(parts[0])  # not timed, because the first call may allocate or compile
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter_ns()
            for part in parts:
                call(part)
            best = min(best, (time.perf_counter_ns() - start) / n)
        result[batch] = best
    return ProgramTiming(name, False, result)


def _session(proto: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])


def _onnx_folded(
    model: BinaryModel, words: NDArray[np.uint32], bits: NDArray[np.bool_]
) -> Iterator[ProgramTiming]:
    """Time the graph that the onnx target writes: the same network, in floats."""
    from n3ic.exporters.onnx.exporter import build as graph

    session = _session(graph(model, features=False).SerializeToString())
    x = bits.astype(np.float32)

    def call(part: NDArray[Any]) -> Any:
        return session.run(["scores"], {"bits": part})[0]

    # Sums of floats below 2^24 are exact, so rounding only changes the type.
    if not np.array_equal(np.rint(call(x[:500])), model.scores(words[:500])):
        raise VerifyError("the folded graph in onnxruntime does not give the reference's scores")
    yield _call("onnxruntime, folded graph", call, x)


def _float_weights(model: BinaryModel) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    rng = np.random.default_rng(0)
    return [
        (
            rng.normal(0, 0.1, (inputs, outputs)).astype(np.float32),
            rng.normal(0, 0.1, outputs).astype(np.float32),
        )
        for inputs, outputs in pairwise(model.shape)
    ]


def _onnx_float(
    model: BinaryModel, words: NDArray[np.uint32], bits: NDArray[np.bool_]
) -> Iterator[ProgramTiming]:
    """Time a float MLP of the same shape in onnxruntime."""
    import onnx
    from onnx import helper, numpy_helper

    nodes, constants = [], []
    layers = _float_weights(model)
    name = "bits"
    for i, (weights, bias) in enumerate(layers):
        constants += [
            numpy_helper.from_array(weights, f"w{i}"),
            numpy_helper.from_array(bias, f"b{i}"),
        ]
        last = i == len(layers) - 1
        out = "scores" if last else f"sum{i}"
        nodes.append(helper.make_node("Gemm", [name, f"w{i}", f"b{i}"], [out]))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"relu{i}"]))
            name = f"relu{i}"
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "float_mlp",
        [helper.make_tensor_value_info("bits", kind, ["batch", model.shape[0]])],
        [helper.make_tensor_value_info("scores", kind, ["batch", model.shape[-1]])],
        constants,
    )
    opset = [helper.make_opsetid("", 17)]
    session = _session(
        helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    )

    def call(part: NDArray[Any]) -> Any:
        return session.run(None, {"bits": part})

    yield _call("onnxruntime, float MLP", call, bits.astype(np.float32))


def _torch_float(
    model: BinaryModel, words: NDArray[np.uint32], bits: NDArray[np.bool_]
) -> Iterator[ProgramTiming]:
    """Time a float MLP of the same shape in PyTorch."""
    import torch

    layers = [
        (torch.from_numpy(weights.T.copy()), torch.from_numpy(bias))
        for weights, bias in _float_weights(model)
    ]

    def call(part: NDArray[Any]) -> Any:
        with torch.inference_mode():
            x = torch.from_numpy(part)
            for i, (weights, bias) in enumerate(layers):
                x = torch.nn.functional.linear(x, weights, bias)
                if i < len(layers) - 1:
                    x = torch.relu(x)
            return x

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield _call("torch, float MLP", call, bits.astype(np.float32))
    finally:
        torch.set_num_threads(threads)


def _sklearn(
    model: BinaryModel, words: NDArray[np.uint32], bits: NDArray[np.bool_]
) -> Iterator[ProgramTiming]:
    """Time a decision tree and gradient boosting in scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.tree import DecisionTreeClassifier

    x = bits.astype(np.float32)
    labels = model.infer(words).classes[-_TRAINING_ROWS:]
    if len(np.unique(labels)) < 2:  # scikit-learn's boosting refuses a single class
        labels = np.arange(len(labels)) % 2
    with _one_thread():
        tree = DecisionTreeClassifier(random_state=0).fit(x[-_TRAINING_ROWS:], labels)
        yield _call("scikit-learn, decision tree", tree.predict, x)
        boosting = HistGradientBoostingClassifier(random_state=0).fit(x[-_TRAINING_ROWS:], labels)
        yield _call("scikit-learn, hist gradient boosting", boosting.predict, x)


@contextmanager
def _one_thread() -> Iterator[None]:
    with import_module("threadpoolctl").threadpool_limits(limits=1):
        yield


Measure = Callable[[BinaryModel, NDArray[np.uint32], NDArray[np.bool_]], Iterable[ProgramTiming]]
ALTERNATIVES: tuple[Measure, ...] = (_onnx_folded, _onnx_float, _torch_float, _sklearn)
