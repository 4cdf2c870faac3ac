# SPDX-License-Identifier: Apache-2.0
"""Fitted trees of other libraries as integer models: the class of their predict, or a refusal."""

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import n3ic
from n3ic.cli.main import command_line
from n3ic.data.table import Feature, FlowTable
from n3ic.errors import MissingDependencyError, ModelError, N3icWarning
from n3ic.families.trees.readers.columns import TreeColumns, read_columns
from n3ic.families.trees.readers.conversion import converted
from n3ic.families.trees.readers.cuts import least_right
from n3ic.families.trees.readers.ensemble import Ensemble, FittedTrees
from n3ic.meter.standard import standard_spec
from n3ic.model.family import family
from n3ic.model.inputs import UINT32_MAX

pytest.importorskip("treelite")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

ROWS = 600
FITS = {
    "tree": lambda: DecisionTreeClassifier(max_depth=7, random_state=1),
    "forest": lambda: RandomForestClassifier(25, max_depth=6, random_state=1),
    "grown forest": lambda: RandomForestClassifier(9, random_state=1),
    "extra trees": lambda: ExtraTreesClassifier(15, max_depth=6, random_state=1),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=12, random_state=1),
    "stopped boosting": lambda: GradientBoostingClassifier(
        n_estimators=150, n_iter_no_change=2, random_state=1
    ),
    "exponential loss": lambda: GradientBoostingClassifier(
        n_estimators=9, loss="exponential", random_state=1
    ),
    "histograms": lambda: HistGradientBoostingClassifier(max_iter=15, random_state=1),
    "standard scaler": lambda: make_pipeline(
        StandardScaler(), RandomForestClassifier(8, max_depth=5, random_state=1)
    ),
    "two scalers": lambda: make_pipeline(
        RobustScaler(), "passthrough", MinMaxScaler(),
        HistGradientBoostingClassifier(max_iter=6, random_state=1),
    ),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=12, n_jobs=1),
    "xgboost forest": lambda: xgboost.XGBRFClassifier(n_estimators=8, n_jobs=1),
    "xgboost dart": lambda: xgboost.XGBClassifier(
        n_estimators=9, booster="dart", rate_drop=0.5, n_jobs=1
    ),
    "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=12, n_jobs=1, verbose=-1),
    "lightgbm forest": lambda: lightgbm.LGBMClassifier(
        n_estimators=8, boosting_type="rf", bagging_freq=1, bagging_fraction=0.6, n_jobs=1,
        verbose=-1,
    ),
}  # fmt: skip


def rng(seed=0):
    return np.random.default_rng(seed)


def columns(rows=ROWS, seed=0):
    """Whole and fractional numbers, some below 0, some that float32 does not hold, few values."""
    draw = rng(seed)
    return np.stack([
        draw.integers(0, 1000, rows),
        draw.integers(2**31 - 300, 2**31 + 300, rows),
        np.round(30 * draw.random(rows), 3),
        draw.integers(-50, 50, rows),
        draw.integers(0, 3, rows),
    ], axis=1).astype(np.float64)  # fmt: skip


def labels(X, classes):
    noise = rng(9).random(len(X)) < 0.1
    facts = (X[:, 0] > 300, X[:, 2] > 15, noise, X[:, 3] < -10, X[:, 1] > 2**31)
    return np.sum(facts, axis=0) % classes


def frame(X):
    return pd.DataFrame(X, columns=["Size", "ticks", "Flow duration", "jitter", "kind"])


def classes_of(model, read, rows):
    """Class indices of rows in the fit's units, as a NIC reads them."""
    integers = np.rint(rows * read.scales).astype(np.int64)
    return model.infer(model.encode(read.features(integers))).classes


def around(fitted, X, draw):
    """Rows near every threshold of scikit-learn's trees: the integers beside it."""
    trees = [t.tree_ for t in np.ravel(getattr(fitted, "estimators_", fitted))]
    out = []
    for tree in trees:
        for column, threshold in zip(tree.feature, tree.threshold, strict=True):
            for step in (-2, -1, 0, 1, 2) if column >= 0 else ():
                row = X[draw.integers(len(X))].copy()
                unit = 1000 if column == 2 else 1
                row[column] = (np.floor(threshold * unit) + step) / unit
                out.append(row)
    rows = np.array(out)
    rows[:, [0, 1, 2, 4]] = np.maximum(rows[:, [0, 1, 2, 4]], 0)
    return rows


TWO_SCORES_OR_ONE = ("exponential loss", "boosting", "histograms", "xgboost", "lightgbm")
"""Boosted trees have one score for two classes, and a score a class for three."""


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        pytest.param(k, n, marks=[pytest.mark.slow] * (n == 2 and k not in TWO_SCORES_OR_ONE))
        for n in (2, 3)
        for k in FITS
    ],
)
def test_the_class_is_the_librarys_on_rows_that_it_never_saw(kind, classes):
    if kind == "exponential loss" and classes > 2:
        pytest.skip("of two classes only")
    X = columns()
    fitted = FITS[kind]().fit(X, labels(X, classes))
    model = n3ic.from_sklearn(fitted, X, name="mine")
    read = read_columns(X, None, (), 5)
    unseen = columns(2000, seed=5)
    for rows in (X, unseen):
        assert (classes_of(model, read, rows) == fitted.predict(rows)).all()
    if kind in ("tree", "forest", "grown forest", "extra trees", "boosting"):
        rows = around(fitted, X, rng(2))
        assert (classes_of(model, read, rows) == fitted.predict(rows)).all()
    assert model.name == "mine" and model.classes == tuple("012"[:classes])
    assert model.provenance["compared"].endswith("gives the same class to all")
    assert model == n3ic.from_sklearn(fitted, X, name="mine")  # the same bytes
    assert model == type(model).from_bytes(model.to_bytes())


def test_cuts_are_where_the_library_itself_turns():
    """Asked by ``apply``, which names the leaf: one integer below a cut is in another leaf."""
    X = columns()[:, 1:2]  # 2^31 and more, where a float32 holds every 128th integer or so
    tree = DecisionTreeClassifier(random_state=0).fit(X, rng(1).integers(0, 2, ROWS))
    model = n3ic.from_sklearn(tree, X)
    cuts = np.array([c for f in model.input.fields for c in f.cuts])
    assert len(cuts) > 1
    at, below = (tree.apply((cuts - step)[:, None].astype(np.float64)) for step in (0, 1))
    assert (at != below).all()
    one_leaf = np.concatenate([np.arange(a, b) for a, b in pairwise(cuts)])
    classes = tree.predict(one_leaf[:, None].astype(np.float64))
    assert (model.infer(model.encode({"x0": one_leaf})).classes == classes).all()


@pytest.mark.parametrize(
    ("precision", "strict", "threshold", "scale", "least"),
    [
        (np.float64, False, 3.0, 1, 4),
        (np.float64, True, 3.0, 1, 3),
        (np.float64, False, 0.3, 10, 4),  # 3 / 10 is 0.3
        (np.float64, True, 0.3, 10, 3),
        (np.float32, False, 0.1, 10, 1),  # float32(0.1) is above 0.1
        (np.float32, False, 2**24 + 1.0, 1, 2**24 + 2),  # 2^24 + 1 is 2^24 in float32
        (np.float32, False, 2**24 + 0.5, 1, 2**24 + 2),
        (np.float32, True, 2.0**25, 1, 2**25 - 1),  # rounds up to 2^25
        (np.float64, False, -0.5, 1, 0),
        (np.float64, False, float(UINT32_MAX), 1, UINT32_MAX + 1),
        (np.float32, False, float(UINT32_MAX), 1, UINT32_MAX - 127),
    ],
)
def test_a_threshold_is_the_least_integer_beyond_it(precision, strict, threshold, scale, least):
    source = FittedTrees(stump(threshold, precision=precision), "", None)
    cuts = least_right(source, np.array([float(scale)]), np.array([0]), np.array([threshold]),
                        np.array([strict]), np.array([0]))  # fmt: skip
    assert cuts.tolist() == [least]
    for n in range(max(0, least - 3), min(least + 3, UINT32_MAX + 1)):
        value = float(precision(n / scale))
        assert (value < threshold if strict else value <= threshold) == (n < least)


def stump(threshold=3.0, values=((0.25,), (-0.5,)), **other):
    """A tree of one node on one column; two classes."""
    return Ensemble(**{
        "columns": np.array([0]), "thresholds": np.array([threshold]),
        "strict": np.array([False]), "left": np.array([~0]), "right": np.array([~1]),
        "roots": np.array([0]), "leaves": np.array(values), "base": np.zeros(len(values[0])),
        "n_columns": 1, "n_classes": 2, "precision": np.float64,
    } | other)  # fmt: skip


def test_a_tie_goes_to_the_class_that_the_library_takes():
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 3, dtype=np.float64)
    y = np.logical_xor(X[:, 0], X[:, 1])
    boosted = GradientBoostingClassifier(n_estimators=1, max_depth=1, init="zero").fit(X, y)
    assert (boosted.decision_function(X) == 0).all() and boosted.predict(X).all()
    forest = RandomForestClassifier(1, max_depth=1, bootstrap=False).fit(X, y)
    assert not forest.predict(X).any()
    for fitted, winner in ((boosted, 1), (forest, 0)):
        try:
            model = n3ic.from_sklearn(fitted, X)
        except ModelError as error:  # no node tells rows apart, whose leaves are equal
            assert "no node of the trees" in str(error)
            continue
        assert model.classes == ("False", "True")
        inference = model.infer(model.encode({"x0": [0, 1], "x1": [0, 1]}))
        assert (inference.classes == winner).all()


def test_votes_that_tie_are_exact():
    X = columns()
    forest = RandomForestClassifier(6, max_depth=None, bootstrap=True, random_state=0)
    forest.fit(X, labels(X, 2))
    model = n3ic.from_sklearn(forest, X)
    assert model.provenance["rounding"] == "none: leaf values are whole in steps of 1/1"
    unseen = columns(4000, 7)
    assert (np.abs(forest.predict_proba(unseen)[:, 0] - 0.5) < 1e-9).sum() > 20  # ties
    classes = classes_of(model, read_columns(X, None, (), 5), unseen)
    assert (classes == forest.predict(unseen)).all()


def test_classes_of_every_type_have_their_texts():
    X = columns(200)
    y = labels(X, 2)
    for named in (["dns", "web"], [False, True], [3, 40]):
        tree = DecisionTreeClassifier(max_depth=3).fit(X, np.array(named)[y])
        assert n3ic.from_sklearn(tree, X).classes == tuple(str(n) for n in np.array(named))
    model = n3ic.from_sklearn(tree, X, classes=["benign", "attack"])
    assert model.classes == ("benign", "attack")
    with pytest.raises(ModelError, match="classes: expected 2 names"):
        n3ic.from_sklearn(tree, X, classes=["one"])


def test_a_frames_columns_units_and_signs_are_kept():
    X = frame(columns())
    y = np.array(["dns", "web"])[labels(X.to_numpy(), 2)]
    forest = RandomForestClassifier(9, max_depth=6, random_state=1).fit(X, y)
    model = n3ic.from_sklearn(forest, X)
    fields = {f.feature: f for f in model.input.fields}
    assert set(fields) <= {"size", "ticks", "flow_duration", "jitter", "jitter_negative", "kind"}
    assert fields["flow_duration"].unit == "1/1,000" and "jitter_negative" in fields
    unseen = frame(columns(500, 8))
    table = n3ic.predict(model, unseen)
    assert (table["class"].to_numpy() == forest.predict(unseen)).all()
    wider = unseen.assign(label="?")  # a column that the fit did not have
    assert n3ic.from_sklearn(forest, wider) is not None


def test_a_file_of_the_same_columns_is_predicted_and_evaluated(tmp_path):
    X = frame(columns())
    y = np.array(["dns", "web"])[labels(X.to_numpy(), 2)]
    forest = RandomForestClassifier(9, max_depth=6, random_state=1).fit(X, y)
    model = n3ic.from_sklearn(forest, X)
    unseen = frame(columns(500, 8))
    truth = np.array(["dns", "web"])[labels(unseen.to_numpy(), 2)]
    unseen.assign(label=truth).to_csv(tmp_path / "flows.csv", index=False)
    inference = n3ic.predict(model, tmp_path / "flows.csv")
    assert (np.array(model.classes)[inference.classes] == forest.predict(unseen)).all()
    (figures,) = n3ic.evaluate(model, tmp_path / "flows.csv").values()  # the column "label"
    assert figures.accuracy == pytest.approx((forest.predict(unseen) == truth).mean())


def test_given_names_and_units_take_the_place_of_inferred_ones():
    X = columns()
    forest = RandomForestClassifier(9, max_depth=6, random_state=1).fit(X, labels(X, 2))
    scales = {"a": 1, "b": 1, "seconds": 1e6, "d": 1, "e": 1}
    model = n3ic.from_sklearn(forest, X, inputs=scales)
    (field,) = (f for f in model.input.fields if f.feature == "seconds")
    assert field.cuts[-1] > 10**7
    assert n3ic.from_sklearn(forest, X, inputs=[*scales]).input.features[0] == "a"
    with pytest.raises(ModelError, match="inputs: expected 5 columns, got 1"):
        n3ic.from_sklearn(forest, X, inputs=["a"])
    with pytest.raises(ModelError, match="inputs: expected different names"):
        n3ic.from_sklearn(forest, X, inputs=["a"] * 5)
    with pytest.raises(ModelError, match="inputs: expected the names"):
        n3ic.from_sklearn(forest, X, inputs="abcde")


def test_coarse_units_change_classes_and_are_told():
    X = columns()
    forest = RandomForestClassifier(9, max_depth=6, random_state=1).fit(X, labels(X, 2))
    scales = {"a": 1, "b": 1, "seconds": 0.2, "d": 1, "e": 1}
    with pytest.warns(N3icWarning, match=r"rows \(\d+ of 600 given\).*two integers of a column"):
        model = n3ic.from_sklearn(forest, X, inputs=scales)
    assert "all but" in model.provenance["compared"]


def test_a_flow_table_gives_units_and_meter():
    spec = standard_spec()
    names = spec.feature_names[:3]
    values = {n: rng(i).integers(0, 5000, 300) for i, n in enumerate(names)}
    label = (values[names[0]] > values[names[1]]).astype(np.int64)
    catalogue = tuple(Feature(n, n, "", spec.units[n], 1.0, 32, True, "") for n in names)
    table = FlowTable("t", values, catalogue, label, ("a", "b"), False, "0" * 64, meter=spec)
    X = np.stack([values[n] for n in names], axis=1)
    forest = RandomForestClassifier(5, max_depth=5, random_state=0).fit(X, label)
    model = n3ic.from_sklearn(forest, table)
    assert model.meter == spec and {f.unit for f in model.input.fields} <= {*spec.units.values()}
    assert (model.infer(model.encode(values)).classes == forest.predict(X)).all()
    with pytest.raises(ModelError, match="rows: expected a table of the 3 columns"):
        n3ic.from_sklearn(forest, table, inputs=["a", "b", "c"])


def test_rows_of_float32_are_read_in_their_own_steps():
    X = columns()[:, [2]].astype(np.float32)
    tree = DecisionTreeClassifier(max_depth=4).fit(X, rng(1).integers(0, 2, ROWS))
    model = n3ic.from_sklearn(tree, X)
    assert model.input.fields[0].unit == "1/1,000"
    assert "all but" not in model.provenance["compared"]


def test_without_rows_the_columns_are_whole_numbers():
    X = frame(np.floor(np.abs(columns())))
    forest = RandomForestClassifier(5, max_depth=5, random_state=0).fit(X, labels(X.to_numpy(), 2))
    model = n3ic.from_sklearn(forest)
    assert model.provenance["compared"].startswith("0 rows given, ")
    assert "flow_duration" in model.input.features
    names = ("size", "ticks", "flow_duration", "jitter", "kind")
    features = {f: X[c].to_numpy().astype(int) for f, c in zip(names, X, strict=True)}
    classes = model.infer(model.encode(features)).classes
    assert (classes == forest.predict(X)).all()


def test_fractions_without_rows_are_told():
    X = np.round(rng(1).random((400, 3)), 3)
    X[:, 0] *= 9
    forest = RandomForestClassifier(5, random_state=0).fit(X, X[:, 0] > 9 * X[:, 1])
    with pytest.warns(N3icWarning, match=r"different thresholds, of which whole numbers tell \d+"):
        n3ic.from_sklearn(forest)
    n3ic.from_sklearn(forest, X)  # as fractions, without a warning
    n3ic.from_sklearn(forest, inputs={"a": 1000, "b": 1000, "c": 1000})


def test_few_bits_are_told_and_more_are_tried_by_default():
    X = columns()
    forest = RandomForestClassifier(25, max_depth=6, random_state=1).fit(X, labels(X, 3))
    with pytest.warns(N3icWarning, match="have another class than RandomForestClassifier.predict"):
        coarse = n3ic.from_sklearn(forest, X, leaf_bits=3)
    assert "the class can differ only where the best one leads by" in coarse.provenance["rounding"]
    fine = n3ic.from_sklearn(forest, X)
    assert fine.weight_bytes > coarse.weight_bytes
    for bits in (1, 33, "8"):
        with pytest.raises(ModelError, match="leaf_bits: expected 2 to 32"):
            n3ic.from_sklearn(forest, X, leaf_bits=bits)


def test_the_stated_bound_of_rounding_holds():
    X = columns()
    forest = RandomForestClassifier(25, max_depth=6, random_state=1).fit(X, labels(X, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", N3icWarning)
        coarse = n3ic.from_sklearn(forest, X, leaf_bits=4)
    bound = float(coarse.provenance["rounding"].partition("leads by ")[2].split()[0])
    rows = columns(4000, 3)
    sums = np.sort(len(forest.estimators_) * forest.predict_proba(rows), axis=1)
    differs = classes_of(coarse, read_columns(X, None, (), 5), rows) != forest.predict(rows)
    lead = sums[:, -1] - sums[:, -2]
    assert 0 < lead[differs].max() <= bound * 1.01
    assert bound < 25 / 4


def test_a_finer_scale_is_taken_where_a_row_needs_it():
    """Two trees whose sum is 0.00001: 16 bits of the largest leaf round it away."""
    two = stump(columns=np.array([0, 0]),
                thresholds=np.array([3.0, 3.0]), strict=np.array([False, False]),
                left=np.array([~0, ~2]), right=np.array([~1, ~3]), roots=np.array([0, 1]),
                leaves=np.array([[0.9], [0.9], [-0.9], [-0.89999]]))  # fmt: skip
    source = FittedTrees(two, "two", lambda rows: (rows[:, 0] > 3).astype(np.int64))
    model = converted(source, one_column(), ("a", "b"), name="m", kind="test")
    assert model.infer(model.encode({"x0": [3, 4]})).classes.tolist() == [0, 1]
    assert "the same class to all" not in model.provenance["compared"].replace("to all", "")
    assert float(np.abs(model.sum_bounds).max()) > 0


def one_column():
    return read_columns(np.arange(8.0)[:, None], None, (), 1)


def test_another_answer_than_the_trees_is_an_error_not_a_model():
    source = FittedTrees(stump(), "odd.predict", lambda rows: np.ones(len(rows), dtype=np.int64))
    with pytest.raises(ModelError, match=r"odd.predict gives class 'b' to the row .* no tie"):
        converted(source, one_column(), ("a", "b"), name="m", kind="test")


def test_ties_that_floats_break_are_counted():
    """0.1 + 0.2 - 0.3 is above 0 in float64, so the library says 1; in 8 bits it is a tie."""
    three = stump(columns=np.zeros(3, int), thresholds=np.full(3, 3.0), strict=np.zeros(3, bool),
                  left=~np.array([0, 2, 4]), right=~np.array([1, 3, 5]), roots=np.arange(3),
                  leaves=np.array([[0.1], [1], [0.2], [1], [-0.3], [1]]))  # fmt: skip
    source = FittedTrees(three, "p", lambda rows: np.ones(len(rows), dtype=np.int64))
    with pytest.warns(N3icWarning, match="are ties or nearly: the classes lead by at most"):
        converted(source, one_column(), ("a", "b"), name="m", kind="test", leaf_bits=8)


def test_leaves_that_are_not_finite_are_refused():
    source = FittedTrees(stump(values=((np.nan,), (1.0,))), "p", None)
    with pytest.raises(ModelError, match="a leaf value is not finite"):
        converted(source, one_column(), ("a", "b"), name="m", kind="test")


def test_trees_that_no_integer_splits_are_refused():
    for threshold in (-1.0, 1e12, 0.0):
        source = FittedTrees(stump(threshold, strict=np.array([threshold == 0])), "p", None)
        with pytest.raises(ModelError, match="no node of the trees tells two integers"):
            converted(source, one_column(), ("a", "b"), name="m", kind="test")


def fits(estimator, classes=2, X=None):
    X = columns(200) if X is None else X
    return estimator.fit(X, labels(X, classes))


def categories():
    X = columns(200)
    X[:, 4] = rng(1).integers(0, 9, 200)
    y = np.isin(X[:, 4], (1, 4, 8)).astype(int)
    return HistGradientBoostingClassifier(max_iter=3, categorical_features=[4]).fit(X, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomForestClassifier, "is a class: make one"),
        (lambda: RandomForestClassifier(), "RandomForestClassifier is not fitted"),
        (lambda: fits(RandomForestRegressor(3)), "a RandomForestRegressor is not read"),
        (lambda: fits(AdaBoostClassifier(n_estimators=2)), "a AdaBoostClassifier is not read"),
        (lambda: 7, "expected a fitted classifier, got int"),
        (lambda: fits(make_pipeline(PCA(2), DecisionTreeClassifier())), "step 'pca' .* is a PCA"),
        (categories, "a tree asks for categories"),
        (lambda: DecisionTreeClassifier().fit([[0], [1]], [1, 1]), "fitted to one class"),
        (
            lambda: RandomForestClassifier(2).fit(columns(50), np.ones((50, 2))),
            "several outputs",
        ),
        (lambda: fits(xgboost.XGBClassifier(n_estimators=2, missing=0)), "takes 0 for a missing"),
        (
            lambda: fits(lightgbm.LGBMClassifier(n_estimators=2, zero_as_missing=True, verbose=-1)),
            "takes zeros for missing",
        ),
        (
            lambda: fits(GradientBoostingClassifier(n_estimators=2, init=DecisionTreeClassifier())),
            "Treelite does not read it",
        ),
    ],
)
def test_what_is_not_read_says_why(make, message):
    with pytest.raises(ModelError, match=message):
        n3ic.from_sklearn(make())


def test_a_network_of_n3ic_points_to_its_model():
    network = n3ic.BinaryMLPClassifier(hidden_layer_sizes=4, epochs=1).fit(
        [[0], [1]] * 9, [0, 1] * 9
    )
    with pytest.raises(ModelError, match="has its integer model as model_"):
        n3ic.from_sklearn(network)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, :3], r"rows: expected the 5 columns of the fit, got the shape \(200, 3\)"),
        (lambda X: X[0], "rows: expected the 5 columns"),
        (lambda X: np.where(X[3, 2] == X, np.nan, X), r"column 2 of row 3 is blank \(NaN\)"),
        (lambda X: frame(np.where(X[3, 2] == X, np.inf, X)), "Flow duration of row 3 is infinite"),
        (lambda X: X.astype(str).astype(object) + "x", "rows: expected numbers"),
    ],
)
def test_rows_that_a_nic_cannot_have_are_refused(change, message):
    X = columns(200)
    tree = DecisionTreeClassifier(max_depth=3).fit(X, labels(X, 2))
    with pytest.raises(ModelError, match=message):
        n3ic.from_sklearn(tree, change(X))


def test_a_search_gives_what_it_found():
    X = columns(200)
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [2, 3]}, cv=2)
    search.fit(X, labels(X, 2))
    assert n3ic.from_sklearn(search, X) == n3ic.from_sklearn(search.best_estimator_, X)


def test_early_stopping_of_xgboost_keeps_the_trees_of_its_predict():
    X, y = columns(300), labels(columns(300), 2)
    fitted = xgboost.XGBClassifier(n_estimators=60, early_stopping_rounds=3, n_jobs=1)
    fitted.fit(X, y, eval_set=[(X[::-1], y)], verbose=False)
    assert fitted.best_iteration + 1 < len(fitted.get_booster().get_dump())
    model = n3ic.from_sklearn(fitted, X)
    assert (classes_of(model, read_columns(X, None, (), 5), X) == fitted.predict(X)).all()


def test_a_frame_that_xgboost_and_lightgbm_know_by_names():
    X = frame(columns(300))
    for fitted in (
        xgboost.XGBClassifier(n_estimators=5, n_jobs=1),
        lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1),
    ):
        fitted.fit(X, labels(X.to_numpy(), 2))
        for rows in (X, X.to_numpy()):
            model = n3ic.from_sklearn(fitted, rows)
            assert "flow_duration" in model.input.features or "Flow_duration" in str(model.input)


def saved(library, classes, folder):
    """The model file of a fitted classifier, its rows, and its own classes of others."""
    X = np.floor(np.abs(columns(300)))
    unseen = np.floor(np.abs(columns(2000, 3)))
    if library == "lightgbm":
        fitted = lightgbm.LGBMClassifier(n_estimators=6, n_jobs=1, verbose=-1)
        fitted.fit(frame(X), labels(X, classes)).booster_.save_model(folder / "trees.txt")
        return folder / "trees.txt", unseen, fitted.predict(frame(unseen))
    fitted = xgboost.XGBClassifier(n_estimators=6, n_jobs=1).fit(frame(X), labels(X, classes))
    fitted.save_model(folder / f"trees.{library}")
    return folder / f"trees.{library}", unseen, fitted.predict(frame(unseen))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("library", ["json", "ubj", "lightgbm"])
def test_the_command_imports_a_file_of_xgboost_or_lightgbm(library, classes, tmp_path):
    path, rows, wanted = saved(library, classes, tmp_path)
    words = ("import", str(path), "--out", str(tmp_path / "m.n3ic"))
    done = CliRunner().invoke(command_line(words), words)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "(read as decision-trees)" in done.output
    assert "gives the same class to all" in done.output
    model = n3ic.load(tmp_path / "m.n3ic")
    names = ("size", "ticks", "flow_duration", "jitter", "kind")
    features = dict(zip(names, rows.astype(np.int64).T, strict=True))
    assert (n3ic.predict(model, features).classes == wanted).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trees.json", "{}", "Treelite does not read it"),
        ("trees.json", "no JSON", "Treelite does not read it"),
        ("trees.ubj", "{", "Treelite does not read it"),
        ("trees.txt", "some text", "Treelite does not read it"),
    ],
)
def test_a_file_that_holds_no_trees_is_an_error(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        family("decision-trees").imported(tmp_path / name)
    with pytest.raises(ModelError, match="cannot read the model"):
        family("decision-trees").imported(tmp_path / "none.json")


def test_a_file_of_lightgbm_that_takes_zeros_for_missing_is_refused(tmp_path):
    fitted = fits(lightgbm.LGBMClassifier(n_estimators=2, zero_as_missing=True, verbose=-1))
    fitted.booster_.save_model(tmp_path / "trees.txt")
    with pytest.raises(ModelError, match="takes zeros for missing"):
        family("decision-trees").imported(tmp_path / "trees.txt")


def test_nodes_in_a_circle_are_refused():
    circle = stump(left=np.array([0]))
    with pytest.raises(ModelError, match="one way to each node and leaf"):
        converted(FittedTrees(circle, "p", None), one_column(), ("a", "b"), name="m", kind="test")


def test_too_many_nodes_are_refused(monkeypatch):
    monkeypatch.setattr("n3ic.families.trees.readers.conversion.MAX_NODES", 3)
    X = columns(200)
    with pytest.raises(ModelError, match="fit fewer or smaller trees"):
        n3ic.from_sklearn(DecisionTreeClassifier(max_depth=3).fit(X, labels(X, 2)), X)


def test_without_treelite_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "treelite", None)
    X = columns(100)
    with pytest.raises(MissingDependencyError, match=r"n3ic\[trees\]"):
        n3ic.from_sklearn(DecisionTreeClassifier(max_depth=2).fit(X, labels(X, 2)), X)


def test_columns_are_whole_in_their_units():
    read = read_columns(columns(), None, (), 5)
    assert isinstance(read, TreeColumns)
    assert read.scales.tolist() == [1, 1, 1000, 1, 1]
    assert (read.integers / read.scales == read.rows).all()
    assert [c.signed for c in read.columns] == [False, False, False, True, False]
