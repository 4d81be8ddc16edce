"""What a buyer can get: the status of each system, its source, and which systems are one drawing read twice."""

from dataclasses import replace

import pytest

import trnmodel as tm
from trnmodel.catalog import load, rents
from trnmodel.catalog.systems import AVAILABILITY, OFFERED, System, alternatives, on_offer

GEN1, GEN2 = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"
PRINTED = {  # status, and the sources that print it
    # AWS's price list, Capacity Blocks and on-demand prices; EC2's list of types read on 2026-10-03
    "for rent": """trn1.2xlarge trn1.32xlarge trn1n.32xlarge inf2.xlarge inf2.8xlarge inf2.24xlarge inf2.48xlarge
        trn2.3xlarge trn2.48xlarge trn2-ultraserver hgx-a100 hgx-h100 hgx-h200 hgx-b200 hgx-b300 gb200-nvl72 gb300-nvl72
        mi300x-8 mi355x-8 tpu-v4-pod tpu-v5e-pod tpu-v5p-pod tpu-v6e-pod tpu-v7-pod""",
    # trn3-arch L7 names the two UltraServers, AWS's guide Trn3pds; MI210 is a card that AMD sells
    "announced": f"{GEN1} {GEN2} trn3pds98.48xlarge mi210-4",
    # deep dive L108 (four racks), L343-381 (later switch trays and a backup)
    "analyst": """trn3-nl16-torus trn3-nl32x2-torus trn3-nl32x2-pcie320 trn3-nl32x2-ualink trn3-nl72x2-pcie320
        trn3-nl72x2-ualink trn3-nl72x2-pex90144""",
    # the lanes of trn3-arch L94-124 on boards derived here; a name in AWS's driver
    "our reading": "trn3-nl72x2-aws-lanes trn3pd98.3xlarge",
    # deep dive L142-152: two tracks of a chip that is announced; nobody announced their racks
    "roadmap": "trn4-ualink-roadmap trn4-nvlink-roadmap",
}
WITHOUT_A_PRICE = {"trn2-ultraserver", "tpu-v7-pod"}  # listed by their clouds, and no price is published


def test_every_system_has_the_status_that_its_source_prints():
    expected = {name: status for status, names in PRINTED.items() for name in names.split()}
    assert {name: tm.system(name).status for name in tm.systems(roadmap=True)} == expected
    assert tuple(PRINTED) == AVAILABILITY[:-1]


@pytest.mark.parametrize("name", tm.systems(roadmap=True))
def test_a_status_has_a_source_with_a_locator_and_a_note(name):
    for field in ("status", "alternative_of"):
        facts = [load.facts_rows()[fact_id] for fact_id in tm.system(name).sources.get(field, ())]
        assert len(facts) == (field == "status" or bool(tm.system(name).alternative_of))
        for fact in facts:
            assert fact.entity == name  # a status is no base's
            assert fact.locator
            assert fact.note
            assert fact.value_printed == getattr(tm.system(name), field)


def test_what_has_a_published_price_is_for_rent_and_the_rest_says_why():
    sold = {load.entities()[price.entity].base or price.entity for price in rents.prices()}
    priced = {name for name in tm.systems() if sold & {name, tm.system(name).chip.id}}
    assert priced == {name for name in tm.systems() if tm.system(name).status == "for rent"} - WITHOUT_A_PRICE
    for name in WITHOUT_A_PRICE:
        (fact,) = (load.facts_rows()[one] for one in tm.system(name).sources["status"])
        assert "no price" in fact.note


def test_general_availability_of_the_ultraservers_is_set_aside_with_a_reason():
    """The encyclopedia, L19, prints general availability; EC2 lists no trn3 type ten months later."""
    facts = tm.facts().set_index("id")
    for name in (GEN1, GEN2):
        row = facts.loc[f"{name}/status/trainium3-encyclopedia"]
        assert (row.value_printed, row.status) == ("for rent", "rejected")
        assert "EC2" in row.reason
        assert facts.loc[f"{name}/status/kiln-hardware"].value_printed == "announced"


def test_an_alternative_names_a_primary_system_of_the_same_chips():
    pairs = {name: tm.system(name).alternative_of for name in tm.systems() if tm.system(name).alternative_of}
    assert pairs == {"trn3-nl72x2-pex90144": GEN2, "trn3-nl72x2-aws-lanes": GEN2}
    for name, primary in pairs.items():
        one, other = tm.system(primary), tm.system(name)
        assert one.alternative_of == ""
        assert (one.chip.id, one.chips) == (other.chip.id, other.chips)
        assert AVAILABILITY.index(one.status) <= AVAILABILITY.index(other.status)
        assert alternatives(name)[0] == primary
        assert name in alternatives(primary)
    assert alternatives("Trn3 Gen2 UltraServer") == [*pairs]
    assert alternatives(tm.system("trn2.48xlarge")) == []


def test_on_offer_is_what_trainium_a_buyer_can_get():
    assert on_offer() == [
        name
        for name in tm.systems()
        if tm.system(name).chip.id.startswith("trainium")
        and tm.system(name).status in ("for rent", "announced")
        and not tm.system(name).alternative_of
    ]
    assert {GEN1, GEN2, "trn2.48xlarge"} <= set(on_offer())
    assert not {"trn3-nl72x2-ualink", "trn3-nl72x2-aws-lanes", "inf2.48xlarge", "hgx-h100"} & set(on_offer())
    assert AVAILABILITY[:2] == OFFERED


def test_a_system_of_a_caller_is_custom_and_a_changed_one_stays_what_it_was():
    own = System(id="mine", chip=tm.chip("trainium2"), fabric="single", domain_chips=1)
    assert (own.status, own.alternative_of) == ("custom", "")
    assert AVAILABILITY[-1] == "custom"
    assert tm.system("trn2.48xlarge", count=4).status == "for rent"
    assert replace(own, alternative_of="Trn2").alternative_of == "trn2.48xlarge"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"status": "sold out"},
            "status='sold out': allowed are analyst, announced, custom, for rent, our reading, roadmap",
        ),
        ({"status": ""}, "mine: status='': allowed are"),
        ({"status": None}, "mine: status=None: allowed are"),
        ({"status": ["for rent"]}, r"mine: status=\['for rent'\]: allowed are"),
        ({"alternative_of": "trn9"}, "mine: alternative_of='trn9' is unknown; nearest: "),
        ({"alternative_of": 5}, "mine: alternative_of=5"),
        ({"alternative_of": "trn3-nl72x2-aws-lanes"}, "is an alternative of another system itself"),
        ({"alternative_of": "trn2.48xlarge", "id": "trn2.48xlarge"}, "is this system itself"),
    ],
)
def test_what_is_no_status_or_no_primary_system_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        System(**{"id": "mine", "chip": tm.chip("trainium2"), "fabric": "single", "domain_chips": 1} | change)


def test_an_unknown_system_has_no_alternatives():
    with pytest.raises(ValueError, match="system_id='trn9' is unknown; nearest"):
        alternatives("trn9")
