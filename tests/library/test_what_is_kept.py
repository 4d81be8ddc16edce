"""Caches know a machine by identity, solve a flow once for all rates of a layout, and let machines go."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.fabric import flow, wiring
from trnmodel.steps import setting

MANY = 530  # more than are kept
ASK = {"model": "llama-3.1-8b", "mapping": tm.Mapping(tp=8), "batch": 4, "context": 2048}


@pytest.fixture
def solves(monkeypatch):
    """The flows that are solved, counted from an empty cache, as if `data/` knew no layout."""
    counted, solve = [], flow.concurrent_flow
    monkeypatch.setattr(wiring, "answers", dict)
    monkeypatch.setattr(flow, "concurrent_flow", lambda graph: counted.append(graph) or solve(graph))
    for cached in (wiring.solved, wiring._wired):
        cached.cache_clear()
    yield counted
    for cached in (wiring.solved, wiring._wired):
        cached.cache_clear()


@pytest.mark.parametrize("name", ["trn3-nl32x2-pcie160", "hgx-h100", "mi300x-8"])
def test_a_flow_is_solved_once_whatever_the_rates_are(solves, name):
    where = tm.system(name)
    if where.fabric == "planes":
        faster = replace(where, lane_bytes_per_s_per_dir=2 * where.lane_bytes_per_s_per_dir)
        many = replace(where, lane_bytes_per_s_per_dir=where.lane_bytes_per_s_per_dir * np.array([1.0, 2.0, 3.5]))
    else:
        rate = where.chip.scaleup_bytes_per_s_per_dir
        faster, many = (
            replace(where, chip=replace(where.chip, scaleup_bytes_per_s_per_dir=rate * factor))
            for factor in (2.0, np.array([1.0, 2.0, 3.5]))
        )
    pair, twice, three = (tm.topology(spec).all_to_all_bytes_per_s_per_pair() for spec in (where, faster, many))
    assert twice == pytest.approx(2 * pair, rel=1e-12)
    np.testing.assert_allclose(three, pair * np.array([1.0, 2.0, 3.5]), rtol=1e-12)
    assert len(solves) == 1


def test_a_changed_latency_builds_no_graph():
    where = replace(tm.system("trn3-nl72x2-pcie160"), vcpus=1.0)  # a machine of its own, of which nothing is known yet
    tm.collective("all_to_all", 2**20, where)
    built = wiring._wired.cache_info().misses
    slower = replace(where, switch_s=3 * where.switch_s)
    assert tm.collective("all_to_all", 8, slower).time_s > tm.collective("all_to_all", 8, where).time_s
    assert wiring._wired.cache_info().misses == built


def test_another_layout_is_another_graph():
    where = tm.system("trn3-nl72x2-pcie160")
    fewer = where.with_switch_trays(9)
    assert tm.topology(fewer).switch_counts["backplane"] < tm.topology(where).switch_counts["backplane"]


def test_a_changed_graph_is_the_caller_s_own():
    net = tm.topology("trn2.48xlarge")
    before = tm.topology("trn2.48xlarge").all_to_all_bytes_per_s_per_pair("rack")
    net.graph.remove_nodes_from(net.chips[1:])
    assert len(tm.topology("trn2.48xlarge").graph) == 16
    assert tm.topology("trn2.48xlarge").all_to_all_bytes_per_s_per_pair("rack") == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stack", "chip", "system"])
def test_machines_that_nobody_holds_are_let_go(kind):
    where, stack = tm.system("trn2.48xlarge"), tm.efficiencies("trainium2")
    made_before = []
    for number in range(MANY):
        factor = 1 + number / MANY
        if kind == "stack":
            made = replace(stack, weight_stream_share=stack.weight_stream_share / factor)
            tm.decode_step(system=where, efficiencies=made, **ASK)
        else:
            chip = replace(where.chip, hbm_bytes_per_s=where.chip.hbm_bytes_per_s / factor)
            made = replace(where, chip=chip) if kind == "system" else chip
            tm.decode_step(system=made, efficiencies=stack, **ASK)
            tm.collective("all_gather", 2**20, made, ranks=8)
        made_before.append(weakref.ref(made))
    del made
    gc.collect()
    assert sum(found() is not None for found in made_before) <= setting.SETTINGS < MANY


def test_a_search_of_other_lengths_resolves_its_mappings_no_second_time():
    def plan(output_tokens):
        return tm.plan("llama-3.1-70b", tm.Request(2048, output_tokens, tokens_per_s_per_user=20), "trn2.48xlarge")

    plan(301)
    resolved = setting._saved.cache_info().misses
    plan(302)
    assert setting._saved.cache_info().misses == resolved


def test_a_mapping_of_arrays_is_known_by_itself_and_many_are_not_kept():
    few, many = (tm.Mapping(tp=np.resize([4.0, 8.0], n)) for n in (2, setting.SHARED + 1))
    for mapping, kept in ((few, 1), (few, 0), (tm.Mapping(tp=[4.0, 8.0]), 1), (many, 0)):
        before = setting._saved.cache_info().misses
        times = tm.decode_step(**ASK | {"mapping": mapping}, system="trn2.48xlarge").time_s
        assert setting._saved.cache_info().misses == before + kept, mapping.size
        alone = [tm.decode_step(**ASK | {"mapping": tm.Mapping(tp=tp)}, system="trn2.48xlarge").time_s for tp in (4, 8)]
        assert times[:2] == pytest.approx(np.array(alone, dtype=float), rel=1e-12)
