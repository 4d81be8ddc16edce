"""The deployment of a plan: the chosen point, which gives the plan's own numbers again."""

import pytest

import trnmodel as tm


def test_the_deployment_of_a_plan_gives_the_numbers_of_its_best_choice():
    """A replica makes B E / t tokens a second of decoding alone, over its chips."""
    result = tm.plan("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=40), "trn2.48xlarge", precision="bf16")
    chosen, best = result.deployment, result.best
    assert (chosen.system.id, float(chosen.mapping.tp), float(chosen.mapping.ep)) == ("trn2.48xlarge", best.tp, best.ep)
    assert repr(chosen).startswith("Deployment(model='llama-3.1-8b', system='trn2.48xlarge', mapping=Mapping(tp=")
    assert len(repr(chosen)) < 250  # specs by their ids
    assert (chosen.batch, chosen.replicas, chosen.spares) == (best.batch, best.replicas_per_instance, 0)
    assert chosen.chips == best.chips * best.replicas_per_instance
    step = chosen.decode(batch=chosen.batch, context=1024 + 256 / 2, max_context=1024 + 256)
    assert best.option.tokens_per_step == 1
    assert float(step.tokens_per_s_per_chip) == pytest.approx(best.decode_tokens_per_s_per_chip, rel=1e-12)


def test_a_plan_of_what_fits_nowhere_has_no_deployment():
    result = tm.plan("llama-3.1-405b", tm.Request(64, 64, tokens_per_s_per_user=1), "trn1.2xlarge")
    assert result.deployment is None
