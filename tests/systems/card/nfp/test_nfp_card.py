# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants as one NFP firmware: islands, shares of CLS and contexts."""

from dataclasses import replace

import pytest

from n3ic.errors import CardError, MissingDependencyError, VerifyError
from n3ic.exporters.nfp.exporter import EXPORTER
from n3ic.model.network import BinaryModel
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import export_card
from n3ic.systems.card.frames import traffic
from n3ic.systems.card.nfp.image import divide, image_of
from n3ic.systems.card.nfp.target import CARDS
from n3ic.systems.card.nfp.verify import check_rates
from tests.support import software_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")


def document(*, join="both", regions=5, beta='"input", "b"'):
    text = cards.text("nfp", join=join, beta=beta)
    return text.replace('target = "nfp"', f'target = "nfp"\nregions = {regions}')


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    cards.models(folder)
    return folder


@pytest.mark.parametrize("regions", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_every_network_runs_in_its_island(folder, tmp_path, regions):
    """Branches and features, all networks in one island or spread."""
    done = export_card(cards.plan(folder, document(regions=regions)), tmp_path / "out", packets=30)
    if done.missing:
        pytest.skip(done.missing)
    assert done.check is not None
    assert done.check.graphs == {"alpha/paths": 30, "beta/attacks": 30}
    assert done.check.inferences >= 30 * 4


@pytest.fixture(name="ties", scope="module")
def ties_fixture(tmp_path_factory):
    """Networks of two classes, whose votes and margins often tie; one of them shunts."""
    folder = tmp_path_factory.mktemp("ties")
    cards.models(folder, (20, 8, 2))
    model = BinaryModel.load(folder / "a1.n3ic")
    replace(model, shunt=5).save(folder / "a1.n3ic")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("join", "old", "new"),
    [
        ("both", "return count;", "return 1;"),
        ("vote", "answers[i].result < answers[winner]", "answers[i].result > answers[winner]"),
        ("vote", "(most - second)", "most"),
        ("vote", "answers[0].model = answers[winner].model;", ""),
        ("most-certain", ".margin > answers", ".margin >= answers"),  # the last of a tie
        ("most-certain", ".margin > answers", ".margin < answers"),
        ("most-certain", "join == N3IC_JOIN_VOTE", "join != N3IC_JOIN_BOTH"),
    ],
)
def test_a_join_is_that_of_the_plan_and_a_wrong_one_is_found(ties, tmp_path, join, old, new):
    plan = cards.plan(ties, document(join=join, regions=1))
    done = export_card(plan, tmp_path / "out", packets=60)
    if done.missing:
        pytest.skip(done.missing)
    assert done.check is not None
    header = tmp_path / "out" / "n3ic_card_join.h"
    text = header.read_text()
    assert old in text
    header.write_text(text.replace(old, new))
    with pytest.raises(VerifyError, match="the join: alpha/paths: "):
        CARDS.verify_card(plan, tmp_path / "out", 60)


@pytest.mark.usefixtures("quick_micro_c")
@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("n3ic_card_rate.h", "tokens -= cost;", ";", "within the rates"),
        pytest.param(
            "n3ic_card_rate.h",
            "if (tokens > burst)",
            "if (0)",
            "within the rates",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "n3ic_card_rate.h",
            "bucket->filled += gone;",
            "",
            "within the rates",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "n3ic_card_rate.h",
            "tokens += gone * n3ic_rates[tenant].step;",
            "",
            "within the rates",
            marks=pytest.mark.slow,
        ),
        ("n3ic_card_rate.h", "n3ic_graphs[graph].tenant", "0 * graph", "within the rates"),
        (
            "n3ic_card_rate.h",
            "(uint64_t)bytes << 32",
            "(uint64_t)(bytes / 2) << 32",
            "within the rates",
        ),
    ],
)
def test_a_wrong_token_bucket_is_found(folder, tmp_path, name, old, new, said):
    plan = cards.plan(folder, document(regions=1))
    export_card(plan, tmp_path / "out", verify=False)
    image = image_of(plan, software_card(plan, "nfp"), EXPORTER.device)
    asked = traffic(image.card, 60)
    try:
        check_rates(tmp_path / "out", image, asked)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    path = tmp_path / "out" / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(VerifyError, match=said):
        check_rates(tmp_path / "out", image, asked)


def test_the_bucket_of_a_tenant_has_its_planned_rate(folder):
    plan = cards.plan(folder, document(regions=1))
    image = image_of(plan, software_card(plan, "nfp"), EXPORTER.device)
    assert image.tick_hz == 50_000_000
    for tenant, bucket in zip(image.card.tenants, image.buckets, strict=True):
        assert 0 <= tenant.rate - bucket.step * image.tick_hz / 2**32 < 0.012
        assert bucket.burst == tenant.burst
        assert bucket.full * bucket.step >= bucket.burst << 32 > (bucket.full - 1) * bucket.step


def test_contexts_are_divided_by_what_the_plan_gives(folder):
    plan = cards.plan(folder, document(regions=1))
    (island,) = image_of(plan, software_card(plan, "nfp"), EXPORTER.device).islands
    shares = dict(zip(island.networks, island.threads, strict=True))
    assert sum(island.threads) == 96
    assert shares["alpha/a0"] == pytest.approx(shares["alpha/a1"], abs=1)
    # beta's packets come twice as often, and its network is smaller
    needs = {name: plan.costs[name].needs["threads"].value for name in shares}
    ratio = 2 * needs["beta/b"] / needs["alpha/a0"]
    assert shares["beta/b"] / shares["alpha/a0"] == pytest.approx(ratio, rel=0.1)


def test_division_rounds_to_all_contexts_and_leaves_nobody_without():
    assert divide([1.0, 1.0, 1.0], 8) == (3, 3, 2)
    assert divide([1e9, 1.0], 96) == (95, 1)
    assert divide([0.0, 0.0], 4) == (2, 2)
    with pytest.raises(CardError, match="97 networks in an island of 96 contexts"):
        divide([1.0] * 97, 96)


def test_a_wrong_weight_is_found(folder, tmp_path):
    plan = cards.plan(folder, document(regions=1))
    if export_card(plan, tmp_path / "out", packets=4).missing:
        pytest.skip("needs a C compiler")
    weights = tmp_path / "out" / "n3ic_card_weights.h"
    lines = weights.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if "n3ic_island[" in line)
    words = lines[start + 5].split(", ")  # the first rows of the first network
    words[1] = f"0x{int(words[1].strip(' ,'), 16) ^ 0x5:08x}"
    lines[start + 5] = ", ".join(words)
    weights.write_text("\n".join(lines) + "\n")
    with pytest.raises(VerifyError, match=r"island 0: .*layer 0"):
        CARDS.verify_card(plan, tmp_path / "out", 30)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"beta": '"input", "b", "guard"'}, "target nfp has no policy"),
        ({"regions": 9}, "has 5 islands"),
    ],
)
def test_what_the_firmware_does_not_carry_is_refused(folder, tmp_path, given, said):
    plan = cards.plan(folder, document(**given))
    if "regions" in given:
        last = replace(plan.regions[-1], chain=("beta/b",))
        plan = replace(plan, regions=(*plan.regions[:-1], last))
    with pytest.raises(CardError, match=said):
        export_card(plan, tmp_path / "out", verify=False)


def test_an_island_that_is_too_small_is_refused(folder):
    plan = cards.plan(folder, document(regions=1))
    small = tuple(
        replace(m, bytes=20_000) if m.name == "cls" else m for m in EXPORTER.device.memories
    )
    device = replace(EXPORTER.device, memories=small)
    with pytest.raises(CardError, match=r"island 0: networks of .* bytes, CLS has"):
        image_of(plan, software_card(plan, "nfp"), device)
