# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import csv
import io
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.data.delimited import Units
from n3ic.data.flows import read_features, write_features
from n3ic.errors import DataError
from n3ic.exporters.nfp.blob import build as build_nfp
from n3ic.kernel import blob
from n3ic.model.bits import Words
from n3ic.model.inputs import InputSpec, to_integer
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from tests.support.kernel_models import CLASSES, put_word, small_model

MODEL = small_model()
HEADER = 'size,"duration, us",rate,ttl,"a ""quoted"" one"'
TIMEOUT_S = 600


def run(program: Path, *arguments: str | Path, given: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [program, *arguments], input=given, capture_output=True, timeout=TIMEOUT_S
    )
    assert b"Sanitizer" not in done.stderr, done.stderr.decode()
    assert b"runtime error" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def columns(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.integers(0, 2**18, rows) for name in MODEL.input.features}


def as_csv(values: dict[str, np.ndarray]) -> bytes:
    text = io.StringIO("# n3ic-units: nic\n")
    text.seek(0, io.SEEK_END)
    writer = csv.writer(text)
    writer.writerow(["ignored", *values])
    writer.writerows(["text", *row] for row in np.stack(list(values.values()), axis=1).tolist())
    return text.getvalue().encode()


def check(out: str, words: Words) -> None:
    want = MODEL.infer(words)
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0] == ["class", "name", "margin", "score_0", "score_1"]
    assert [int(r[0]) for r in rows[1:]] == want.classes.tolist()
    assert [r[1] for r in rows[1:]] == [CLASSES[c] for c in want.classes]
    assert [int(r[2]) for r in rows[1:]] == want.margins.tolist()
    assert [[int(s) for s in r[3:]] for r in rows[1:]] == want.scores.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["1", "7", "1000000"])
def test_csv_from_a_file(bnn_exec: Path, tmp_path: Path, batch: str) -> None:
    values = columns(50)
    path = tmp_path / "flows.csv"
    path.write_bytes(as_csv(values))
    code, out, err = run(bnn_exec, "-s", "-n", batch, path)
    assert (code, err) == (0, "")
    check(out, MODEL.encode(values))


@pytest.mark.slow
def test_csv_in_another_order_with_crlf_bom_and_blank_lines(bnn_exec: Path) -> None:
    values = dict(reversed(columns(20).items()))
    text = b"\xef\xbb\xbf" + as_csv(values).replace(b"text", b'"a, b"') + b"\r\n\r\n"
    code, out, err = run(bnn_exec, "-s", given=text)
    assert (code, err) == (0, "")
    check(out, MODEL.encode(values))


@pytest.mark.slow
def test_binary_records(bnn_exec: Path) -> None:
    values = columns(33)
    records = np.stack(list(values.values()), axis=1).astype("<u4").tobytes()
    code, out, err = run(bnn_exec, "-f", "-s", given=records)
    assert (code, err) == (0, "")
    check(out, MODEL.encode(values))


def test_every_kernel_on_packed_records(bnn_exec: Path, export_directory: Path) -> None:
    words = verification_vectors(MODEL, 150)
    code, listed, _ = run(bnn_exec, "-l")
    assert code == 0
    kernels = [line.split()[1] for line in listed.splitlines() if line.startswith("kernel ")]
    assert kernels[0] == "portable"
    for kernel in kernels:
        if f"kernel {kernel} (not on" in listed:
            continue
        for weights in ([], ["-w", export_directory / "weights.bin"]):
            code, out, err = run(
                bnn_exec, "-p", "-s", "-k", kernel, *weights, given=words.astype("<u4").tobytes()
            )
            assert (code, err) == (0, ""), kernel
            check(out, words)


def test_no_records_give_the_header_alone(bnn_exec: Path) -> None:
    nothing = (0, "class,name,margin\n", "")
    assert run(bnn_exec, "-u", "nic", given=HEADER.encode() + b"\n") == nothing
    assert run(bnn_exec, "-p") == nothing


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("size,rate\n", "no column named duration, us"),
        (HEADER + ",size\n", "line 1, column 6: this feature stands in the header twice"),
        ('"size\n', "line 1, column 1: a quoted name does not end"),
        (HEADER + "\n1,2,3,4,5\n1,2,x,4,5\n", "line 3, column 3: not a number"),
        (HEADER + "\n1,2,3,4,-5\n", "line 2, column 5: negative"),
        (HEADER + "\n1,,3,4,5\n", "line 2, column 2: a number is missing"),
        (HEADER + "\n1,2,3,4,4294967296\n", "line 2, column 5: larger than 4294967295"),
        (HEADER + "\n1,2,3,4," + "9" * 99 + "\n", "line 2, column 5: larger"),
        (HEADER + "\n1.5,2,3,4,5\n", "line 2, column 1: not an integer"),
        (HEADER + "\n1,2,3,4\n", "line 2: fewer than the 5 columns"),
        (HEADER + "\n1,2,3,4,5,6\n", "line 2: more than the 5 columns"),
        (HEADER + '\n1,"2,3,4,5\n', "line 2, column 2: a quoted value does not end"),
        (HEADER + '\n1,"2"x,3,4,5\n', "line 2, column 2: a quoted value does not end"),
        (HEADER + "\n1,2,3\0,4,5\n", "zero byte"),
        (HEADER + "\n" + "1" * (1 << 20) + "1\n", "line 2: longer than 1048576 bytes"),
    ],
)
def test_bad_csv_names_line_and_column(bnn_exec: Path, text: str, words: str) -> None:
    code, _, err = run(bnn_exec, "--units", "nic", given=text.encode())
    assert code == 1
    assert words in err
    assert err.startswith("bnn-exec: standard input: ")
    assert err.count("\n") == 1


def test_rows_before_a_bad_one_are_written(bnn_exec: Path) -> None:
    text = HEADER + "\n" + "1,2,3,4,5\n" * 10 + "x,2,3,4,5\n"
    code, out, _ = run(bnn_exec, "-u", "nic", "-n", "4", given=text.encode())
    assert code == 1
    assert out.count("\n") == 1 + 8


def test_bad_binary_records(bnn_exec: Path) -> None:
    code, _, err = run(bnn_exec, "-p", given=bytes(4 * MODEL.input.n_words * 2 + 5))
    assert code == 1
    assert "record 3 is cut short: 5 of" in err
    set_padding = bytes(4 * MODEL.input.n_words * 2 - 1) + b"\x80"
    code, _, err = run(bnn_exec, "-p", given=set_padding)
    assert code == 1
    assert "record 2: a bit above" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-n", "0"], 2, "1 to 1000000"),
        (["-n", "many"], 2, "1 to 1000000"),
        (["-k", "sse9"], 2, "no kernel"),
        (["-x"], 2, "usage"),
        (["a", "b"], 2, "usage"),
        (["--units", "metric"], 2, "--units metric: expected nic or source"),
        (["-f", "--units", "source"], 2, "binary records hold the integers of a NIC"),
        (["/nonexistent/flows.csv"], 1, "/nonexistent/flows.csv: No such file"),
        (["-w", "/nonexistent/w"], 1, "/nonexistent/w: No such file"),
        (["-w", "/dev/null"], 1, "cut short"),
        (["-w", "/"], 1, "/: Is a directory"),
        (["-u", "nic", "/"], 1, "/: cannot read: Is a directory"),
    ],
)
def test_bad_arguments(bnn_exec: Path, arguments: list[str], code: int, words: str) -> None:
    got, _, err = run(bnn_exec, *arguments)
    assert got == code
    assert words in err


def test_help(bnn_exec: Path) -> None:
    code, out, _ = run(bnn_exec, "-h")
    assert code == 0
    assert out.startswith("usage: bnn-exec")


def test_a_reader_that_leaves_is_no_error(bnn_exec: Path, tmp_path: Path) -> None:
    path = tmp_path / "flows.csv"
    path.write_text(HEADER + "\n" + "1,2,3,4,5\n" * 20_000)
    with subprocess.Popen(
        [bnn_exec, "-u", "nic", "-n", "10", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error(bnn_exec: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [bnn_exec, "-u", "nic"],
            input=HEADER.encode() + b"\n1,2,3,4,5\n",
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 1
    assert b"cannot write: No space left" in done.stderr


@pytest.mark.parametrize(
    ("shape", "density"),
    [((256, 32, 16, 2), None), ((33, 16, 2), None), ((1100, 40, 17), 0.5), ((1, 2), None)],
)
def test_other_networks_under_the_sanitizers(
    bnn_exec: Path, tmp_path: Path, shape: tuple[int, ...], density: float | None
) -> None:
    model = random_model(shape, np.random.default_rng(9), density=density)
    weights = tmp_path / "w.bin"
    weights.write_bytes(blob.dump(model))
    words = verification_vectors(model, 100)
    _, listed, _ = run(bnn_exec, "-l")
    for line in listed.splitlines():
        if not line.startswith("kernel ") or "not on this CPU" in line:
            continue
        code, out, err = run(
            bnn_exec,
            *("-p", "-s", "-w", weights, "-k", line.split()[1]),
            given=words.astype("<u4").tobytes(),
        )
        assert (code, err) == (0, "")
        got = [[int(s) for s in row.split(",")[3:]] for row in out.splitlines()[1:]]
        assert np.array_equal(got, model.scores(words)), line


# --- units ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "arguments", "words"),
    [
        ("", [], "the units of this table are not known: run with --units nic (the integers"),
        ("# n3ic-units: nic\n", ["-u", "source"], "line 1 says nic, expected source"),
        ("# n3ic-units: source\n", ["-u", "nic"], "line 1 says source, expected nic"),
        ("# n3ic-units: nice\n", [], "line 1 says other units, expected nic or source"),
        ("# n3ic-units:\n", ["-u", "nic"], "line 1 says other units, expected nic"),
        ("# units: nic\n", [], "the units of this table are not known"),
    ],
)
def test_units_are_never_guessed(
    bnn_exec: Path, first: str, arguments: list[str], words: str
) -> None:
    text = f"{first}{HEADER}\n1,2,3,4,5\n"
    code, out, err = run(bnn_exec, *arguments, given=text.encode())
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("line", ["# n3ic-units: nic", "\ufeff#n3ic-units:nic \r"])
def test_the_first_line_or_the_option_tells_the_units(bnn_exec: Path, line: str) -> None:
    rows = f"{HEADER}\n1,2,3,4,5\n"
    output = run(bnn_exec, "-s", given=f"{line}\n{rows}".encode())
    assert output == run(bnn_exec, "-s", "--units", "nic", given=rows.encode())
    assert output[0] == 0
    _, _, err = run(bnn_exec, given=f"{line}\n{HEADER}\nx,2,3,4,5\n".encode())
    assert "line 3, column 1" in err


DECIMALS = [
    *("0", "-0.0", "+1", ".5", "1.", "1e-7", "-1e9", "0.0000004", "0.0000005", "4.5e-7", "5e-324"),
    *("0.5", "1.5", "2.5", "3.49999999999999999", "0.49999999999999994", "4294967294.5", "1E3"),
    *("4294967295", "4294967295.5", "1e300", "1e-300", "9007199254740993", "0.0000010000000001"),
    *(f"{k}.{k}5e-6" for k in range(9)),
    *(f"{k / 2:.7f}" for k in range(9)),
]
WHOLE = ["7", "007", "7.0", "7e0", "-0", "+7", "4294967295", "4294967294.0", " 7 "]


def as_python_reads(path: Path, units: Units | None = None) -> Words | None:
    """Packed inputs of a table, as ``n3ic predict`` makes them; None where it refuses it."""
    try:
        return MODEL.encode(read_features(path, MODEL, units=units))
    except DataError:
        return None


def test_source_units_become_the_integers_of_the_model(bnn_exec: Path, tmp_path: Path) -> None:
    """The same file gives the same in both programs: halves to even, no positive value to 0."""
    names = MODEL.input.features
    scaled = names.index("duration, us")
    rows = [
        [cell if k == scaled else WHOLE[(i + k) % len(WHOLE)] for k in range(len(names))]
        for i, cell in enumerate(DECIMALS)
    ]
    path = tmp_path / "flows.csv"
    lines = ["# n3ic-units: source", HEADER, *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    code, out, err = run(bnn_exec, "-s", path)
    assert (code, err) == (0, "")
    words = as_python_reads(path)
    assert words is not None
    check(out, words)
    integers = to_integer([float(row[scaled]) for row in rows], 1e6)
    assert np.array_equal(read_features(path, MODEL)["duration, us"], integers)


def test_a_table_of_integers_is_read_by_both_programs(bnn_exec: Path, tmp_path: Path) -> None:
    values = columns(60)
    path = tmp_path / "features.csv"
    assert write_features(path, values) == 60
    code, out, err = run(bnn_exec, "-s", path)
    assert (code, err) == (0, "")
    check(out, MODEL.encode(values))
    words = as_python_reads(path)
    assert words is not None
    assert np.array_equal(words, MODEL.encode(values))


@pytest.mark.first_case
@pytest.mark.parametrize("units", ["nic", "source", None])
@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize(
    "cell",
    [
        *("x", "0x10", "inf", "nan", "1 2", "--1", "1_0", "1e999", "-1e999", "", "-1", "-0.5"),
        *("3.5", "4294967296", "4294967295.5", "9223372036854775808", "1e300", *WHOLE),
    ],
)
def test_both_programs_refuse_the_same_and_read_the_same(
    bnn_exec: Path, tmp_path: Path, units: Units | None, column: int, cell: str
) -> None:
    path = tmp_path / "flows.csv"
    row = ["1", "2", "3", "4", "5"]
    row[column] = cell
    units_line = f"# n3ic-units: {units}\n" if units else ""
    path.write_text(f"{units_line}{HEADER}\n{','.join(row)}\n")
    words = as_python_reads(path)
    code, out, err = run(bnn_exec, "-s", path)
    assert (code == 0) == (words is not None), err
    if words is not None:
        check(out, words)


def test_without_scales_both_units_are_the_same(bnn_exec: Path, tmp_path: Path) -> None:
    """Such a table needs no line of units, and may hold more than a NIC's integers do."""
    fields = tuple(replace(field, scale=1.0) for field in MODEL.input.fields)
    model = replace(MODEL, input=InputSpec(fields))
    (tmp_path / "w.bin").write_bytes(blob.dump(model))
    path = tmp_path / "flows.csv"
    path.write_text(f"{HEADER}\n1,2,3,4,5\n9,8,7,6,1e18\n")
    code, out, err = run(bnn_exec, "-s", "-w", tmp_path / "w.bin", path)
    assert (code, err) == (0, "")
    check(out, model.encode(read_features(path, model)))


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        *((text, "not a number") for text in ("x", "1,5", "0x10", "inf", "nan", "1 2", "--1")),
        *((text, "not a finite number") for text in ("1e999", "-1e999")),
        ("", "a number is missing"),
    ],
)
def test_what_is_no_number_in_source_units_is_refused(
    bnn_exec: Path, cell: str, words: str
) -> None:
    text = f'{HEADER}\n1,"{cell}",3,4,5\n'
    code, _, err = run(bnn_exec, "-u", "source", given=text.encode())
    assert code == 1
    assert f"line 2, column 2: {words}" in err


def test_the_list_names_the_model(bnn_exec: Path) -> None:
    _, listed, _ = run(bnn_exec, "-l")
    assert f"model {MODEL.digest}\n" in listed


def test_names_steer_neither_terminal_nor_spreadsheet(bnn_exec: Path, tmp_path: Path) -> None:
    names = ("=1+1", "\x1b[2J\n\x9bé")
    model = replace(MODEL, input=InputSpec(tuple(replace(f) for f in MODEL.input.fields)))
    # n3ic refuses such names, but the weights may come from elsewhere.
    object.__setattr__(model, "classes", names)
    object.__setattr__(model.input.fields[0], "feature", "a\x1b[0m")
    weights = tmp_path / "w.bin"
    weights.write_bytes(blob.dump(model))
    _, listed, _ = run(bnn_exec, "-l", "-w", weights)
    assert "class 0 =1+1\nclass 1 ?[2J??é\n" in listed
    assert "feature 0 a?[0m\n" in listed
    _, _, err = run(bnn_exec, "-u", "nic", "-w", weights, given=HEADER.encode() + b"\n")
    assert err.endswith("the header has no column named a?[0m\n")
    words = verification_vectors(model, 50)
    _, out, _ = run(bnn_exec, "-p", "-w", weights, given=words.astype("<u4").tobytes())
    assert "0,'=1+1," in out
    rows = list(csv.reader(io.StringIO(out, newline="")))
    assert {row[1].removeprefix("'") for row in rows[1:]} <= set(names)


def test_weights_for_the_nfp_are_refused(bnn_exec: Path, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(build_nfp(MODEL).to_bytes())
    code, _, err = run(bnn_exec, "-w", tmp_path / "weights.bin", "-l")
    assert code == 1
    assert "weights for the NFP; the host reads those of n3ic export --target host" in err


def test_fuzzed_blobs_under_the_sanitizers(bnn_exec: Path, tmp_path: Path) -> None:
    weights = blob.dump(MODEL)
    rng = np.random.default_rng(0)
    path = tmp_path / "w.bin"
    seen = set()
    for _ in range(25):
        data = weights
        for _ in range(int(rng.integers(1, 4))):
            value = rng.choice([0, 1, 2, 31, 70, 2**16, 2**31, 2**32 - 1, rng.integers(2**32)])
            data = put_word(data, int(rng.integers(len(weights) // 4 - 1)), int(value))
        if rng.random() < 0.3:
            data = data[: int(rng.integers(len(data)))]
        path.write_bytes(data)
        done = subprocess.run(
            [bnn_exec, "-p", "-w", path],
            input=bytes(4 * 64),
            capture_output=True,
            timeout=600,
        )
        assert done.returncode in (0, 1), done.stderr.decode()
        assert b"Sanitizer" not in done.stderr
        assert b"runtime error" not in done.stderr
        seen.add(done.returncode)
    assert 1 in seen


def test_a_flow_below_the_threshold_is_shunted(bnn_exec: Path, tmp_path: Path) -> None:
    model = MODEL.with_shunt(3)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(blob.dump(model))
    words = verification_vectors(model, 300)
    code, out, err = run(bnn_exec, "-p", "-s", "-w", weights, given=words.astype("<u4").tobytes())
    assert (code, err) == (0, "")
    want = model.infer(words)
    rows = list(csv.reader(io.StringIO(out)))[1:]
    assert [int(r[0]) for r in rows] == want.verdicts.tolist()
    assert [r[1] for r in rows] == [(*CLASSES, "shunt")[v] for v in want.verdicts]
    assert [int(r[2]) for r in rows] == want.margins.tolist()
    assert 0 < sum(r[1] == "shunt" for r in rows) < len(rows)
    code, out, _ = run(bnn_exec, "-l", "-w", weights)
    assert "shunt below margin 3\n" in out
    assert "shunt" not in run(bnn_exec, "-l")[1]
