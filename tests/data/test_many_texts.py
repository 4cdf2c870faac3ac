# SPDX-License-Identifier: Apache-2.0
"""Columns of more than 64 texts: the frequent ones by number, the others by their hash."""

import subprocess
import sys
import zlib

import numpy as np
import pytest

import n3ic
from n3ic.data.column_inference import BUCKETS, INDICATORS
from n3ic.data.description import description_text
from n3ic.data.user_table import describe
from n3ic.errors import DataError, ModelError
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.load import load_model
from tests.support.public_layouts import LAYOUTS, made

pd = pytest.importorskip("pandas", reason="needs pandas (pip install 'n3ic[train]')")

RULE = ColumnRule("category", values=("http", "dns", ""), buckets=8, indicators=2)
HOSTILE = ['"', "a,b", "é\u4e2d\U0001f600", "'; --", "nan", "-", "0", "a" * 5000, " "]


def frame(rows=6000, seed=0, name="app_kind", many=90):
    """Flows whose class depends on a text of ``many`` values, some of them rare."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, many + 1) ** 1.2
    kind = rng.choice(many, rows, p=share / share.sum())
    attack = rng.random(rows) < 0.2 + 0.6 * np.random.default_rng(9).beta(0.5, 0.5, many)[kind]
    return pd.DataFrame(
        {
            "bytes": (rng.gamma(6.0, 40.0, rows) * (1 + 0.5 * attack)).astype(int),
            "pkts": rng.integers(1, 40, rows),
            name: [f"svc {k}" for k in kind],
            "label": np.where(attack, "attack", "normal"),
        }
    )


def described(folder, table, label="label"):
    path = folder / "flows.csv"
    table.to_csv(path, index=False)
    return describe(path, label, beside=False)[0], path


def test_frequent_texts_have_a_number_and_a_feature_and_others_a_bucket(tmp_path):
    table = frame()
    own, path = described(tmp_path, table)
    entry = own.toml["columns"]["app_kind"]
    assert (entry["kind"], entry["use"], entry["bits"]) == ("category", True, 7)
    assert (len(entry["values"]), entry["buckets"]) == (64, BUCKETS)
    counts = table["app_kind"].value_counts()
    assert counts[entry["values"]].tolist() == sorted(counts, reverse=True)[:64]
    features = own.load(path).features
    texts = table["app_kind"]
    expected = [
        entry["values"].index(t) if t in entry["values"] else 64 + zlib.crc32(t.encode()) % BUCKETS
        for t in texts
    ]
    assert features["app_kind"].tolist() == expected
    assert max(expected) > 64
    for i in range(INDICATORS):
        assert features[f"app_kind_is_{i}"].tolist() == (texts == entry["values"][i]).tolist()
    assert own.load(path).feature("app_kind_is_0").meaning == (
        f"app_kind is {entry['values'][0]!r}"
    )
    (tmp_path / "columns.toml").write_text(description_text(own.toml), "utf-8")
    assert describe(path, "label")[0].toml["columns"]["app_kind"] == entry


def test_a_field_of_some_hundred_texts_stays_one_of_evenly_spread_texts_too(tmp_path):
    table = frame()
    rng = np.random.default_rng(2)
    table["service"] = [f"s{i}" for i in rng.integers(0, 70, len(table))]
    table["proto"] = [f"p{i}" for i in rng.integers(0, 256, len(table))]
    table["history"] = [f"h{i}" for i in rng.zipf(1.6, len(table)) % 400]
    table["flags"] = [f"f{i}" for i in rng.integers(0, 400, len(table))]
    own, _ = described(tmp_path, table)
    used = {name: entry["use"] for name, entry in own.toml["columns"].items()}
    assert used == {
        "bytes": True, "pkts": True, "app_kind": True, "service": True, "proto": True,
        "history": True, "flags": False,
    }  # fmt: skip
    for name in ("service", "proto", "history"):
        assert own.rules.columns[name].buckets == BUCKETS


def test_the_hash_is_the_crc_of_zip_and_png():
    """Fixed numbers: models of today must read the same texts tomorrow."""
    texts = ["http", "dns", "", "ftp", "é", "x\x00y", "True", "true", "False", "false"]
    assert RULE.codes(texts) == [0, 1, 2, *(3 + zlib.crc32(t.encode()) % 8 for t in texts[3:6]),
                                 *[3 + zlib.crc32(b"True") % 8] * 2,
                                 *[3 + zlib.crc32(b"False") % 8] * 2]  # fmt: skip
    assert zlib.crc32(b"123456789") == 0xCBF43926  # the check value of CRC-32
    assert RULE.codes(["ftp", "é"]) == [9, 9]
    assert all(3 <= code < 11 for code in RULE.codes(HOSTILE))
    assert ColumnRule("category", values=("true",)).codes(["True", "no"]) == [0, 1]


def test_equal_in_every_process():
    code = (
        "from n3ic.model.columns import ColumnRule as R;"
        "print(R('category', values=('a',), buckets=99).codes(map(str, range(200))))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True,
            capture_output=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


@pytest.mark.parametrize(
    "column",
    [
        lambda rng, rows: [f"u{i}" for i in range(rows)],  # each row its own
        lambda rng, rows: [f"id {i}" for i in rng.integers(0, rows // 2, rows)],
        lambda rng, rows: [f"host-{i}.lan" for i in rng.integers(0, 200, rows)],  # none is frequent
        lambda rng, rows: [f"10.0.{i}.7" for i in rng.zipf(2.0, rows) % 100],
        lambda rng, rows: [f"0x{i:x}" for i in 900 + rng.zipf(2.0, rows) % 100],
        lambda rng, rows: [f"day{i * 100 // rows}" for i in range(rows)],  # a capture's stretches
    ],
)
def test_identifiers_are_no_features(tmp_path, column):
    rng = np.random.default_rng(3)
    table = frame(4000)
    table["what"] = column(rng, len(table))
    own, _ = described(tmp_path, table)
    assert not own.toml["columns"]["what"]["use"]


def test_a_text_of_many_values_that_tells_the_label_is_another_form_of_it(tmp_path):
    table = frame(4000)
    finer = np.random.default_rng(1).zipf(1.7, len(table)) % 100
    table["what"] = [f"{k} {c[0]}" for k, c in zip(finer, table["label"], strict=True)]
    own, _ = described(tmp_path, table)
    entry = own.toml["columns"]["what"]
    assert (entry["use"], entry["reason"]) == (False, "by its values another form of the label")
    assert [f.name for f in own.catalogue if f.name.startswith("what")] == ["what"]


@pytest.mark.parametrize("name", ["user", "src_user", "UserName", "user_id", "account", "email"])
def test_names_of_people_are_identifiers(tmp_path, name):
    own, _ = described(tmp_path, frame(name=name))
    entry = own.toml["columns"][{"UserName": "username"}.get(name, name)]
    assert (entry["use"], entry["reason"]) == (False, "an identifier of the flow or of its row")


def test_without_a_label_nothing_is_known_of_such_a_text(tmp_path):
    own, _ = described(tmp_path, frame().drop(columns="label"), "")
    assert own.toml["columns"]["app_kind"]["kind"] == "text"


def test_texts_that_are_too_long_for_a_rule_are_hashed(tmp_path):
    table = frame(many=70)
    table["app_kind"] = np.where(table["app_kind"] == "svc 0", "a" * 5000, table["app_kind"])
    own, path = described(tmp_path, table)
    entry = own.toml["columns"]["app_kind"]
    assert entry["buckets"] == BUCKETS
    assert "svc 1" in entry["values"]
    assert own.load(path).features["app_kind"].max() >= len(entry["values"])


def test_a_column_of_the_name_of_an_indicator_keeps_its_name(tmp_path):
    table = frame()
    table["app_kind_is_3"] = np.random.default_rng(0).integers(0, 50, len(table))
    own, path = described(tmp_path, table)
    assert "indicators" not in own.toml["columns"]["app_kind"]
    assert own.load(path).features["app_kind_is_3"].tolist() == table["app_kind_is_3"].tolist()
    with pytest.raises(ModelError, match="'app_kind_is_1' is a column and an indicator of"):
        TableRules({"app_kind": RULE, "app_kind_is_1": ColumnRule()})


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"buckets": -1}, "buckets"),
        ({"buckets": 257}, "buckets"),
        ({"buckets": True}, "buckets"),
        ({"buckets": 1.0}, "buckets"),
        ({"buckets": "8"}, "buckets"),
        ({"indicators": 4}, "indicators"),  # more than there are texts
        ({"indicators": -1}, "indicators"),
        ({"indicators": False}, "indicators"),
        ({"kind": "number", "values": []}, "buckets"),
        ({"kind": "number", "values": [], "buckets": 0}, "indicators"),
    ],
)
def test_wrong_rules_are_refused(wrong, name):
    assert ColumnRule.from_dict(RULE.to_dict()) == RULE
    with pytest.raises(ModelError, match=f"^{name}: "):
        ColumnRule.from_dict(RULE.to_dict() | wrong)


def test_a_description_may_say_them_and_is_checked(tmp_path):
    _, path = described(tmp_path, frame())
    text = '[columns.app_kind]\nkind = "category"\nvalues = ["svc 0"]\n'
    toml = tmp_path / "own.toml"
    toml.write_text(text + "buckets = 4\nindicators = 1\n")
    own, _ = describe(path, "label", toml)
    assert own.rules.columns["app_kind"].buckets == 4
    assert "app_kind_is_1" not in own.load(path).features
    assert own.load(path).features["app_kind"].max() <= 4
    toml.write_text(text + "buckets = 4\nindicators = 2\n")
    with pytest.raises(DataError, match="indicators: expected an integer from 0 to 1"):
        describe(path, "label", toml)


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_baselines):
    out = tmp_path_factory.mktemp("run") / "run"
    return n3ic.train(frame(2000), label="label", epochs=2, bits=64, hidden=(8,), out=out)


@pytest.mark.slow
def test_a_model_reads_a_file_as_a_frame_and_unseen_and_hostile_texts(run, tmp_path):
    model = load_model(next(iter(run.models.values())))
    rule = model.table.columns["app_kind"]
    assert rule.buckets == BUCKETS
    table = frame(4000, seed=5).drop(columns="label")
    table.loc[: 3 * len(HOSTILE) - 1, "app_kind"] = [*HOSTILE, *HOSTILE, *HOSTILE]
    table.loc[100:200, "app_kind"] = [f"unseen {i}" for i in range(101)]
    with pytest.raises(DataError, match="NUL byte"):
        run.predict(table.assign(app_kind="x\0y"))
    table.to_csv(tmp_path / "new.csv", index=False)
    of_frame = run.predict(table)
    of_file = run.predict(tmp_path / "new.csv")
    scores = of_frame[[f"score_{name}" for name in model.classes]].to_numpy()
    assert scores.tolist() == of_file.scores.tolist()
    codes = np.array(rule.codes(text.strip() for text in table["app_kind"]), dtype=np.int64)
    features = {"bytes": table["bytes"], "pkts": table["pkts"], "app_kind": codes}
    features |= {name: codes == i for i, name in enumerate(rule.single("app_kind"))}
    words = model.encode({n: np.asarray(v).astype(np.int64) for n, v in features.items()})
    assert scores.tolist() == model.scores(words).tolist()


def test_a_model_without_such_columns_keeps_its_bytes():
    assert ColumnRule("category", values=("a", "b")).to_dict() == {
        "kind": "category", "values": ["a", "b"],
    }  # fmt: skip


@pytest.mark.slow
def test_a_column_of_texts_raises_the_accuracy_on_a_layout_like_nsl_kdd(tmp_path):
    """Of each text most flows have one class; the other columns are noise."""
    boosting = pytest.importorskip("sklearn.ensemble").HistGradientBoostingClassifier
    table = made("NSL-KDD", rows=3000).drop(columns=["difficulty level"])
    rng, classes = np.random.default_rng(2), np.array(LAYOUTS["NSL-KDD"].classes)
    kind = rng.choice(80, len(table), p=(p := 1 / np.arange(2, 82)) / p.sum())
    table["class"] = classes[np.where(rng.random(len(table)) < 0.4, kind * 7 % 3,
                                      rng.integers(0, 3, len(table)))]  # fmt: skip
    table["service"] = [f"svc_{k}" for k in kind]
    own, path = described(tmp_path, table.rename(columns={"service": "what"}), "class")
    assert own.toml["columns"]["what"]["use"]
    flows = own.load(path)
    names = [n for n in flows.usable if n.startswith("what")]
    assert names == ["what", *(f"what_is_{i}" for i in range(INDICATORS))]

    def accuracy(columns):
        of, half = flows.matrix(columns), len(flows) // 2
        model = boosting(max_iter=20, random_state=0).fit(of[:half], flows.label[:half])
        return model.score(of[half:], flows.label[half:])

    others = [n for n in flows.usable if n not in names]
    assert accuracy([*others, *names]) > accuracy(others) + 0.08
