"""The list of claims in a page from a folder: choose, type, open, and come by an address."""

import pytest

pytestmark = pytest.mark.chapters


@pytest.fixture
def claims(site, open_page):
    """The chapter of the book, with the list that has a filter."""
    page = open_page("light")
    page.goto(f"{site.as_uri()}/chapters/claims.html")
    return page.locator(".trn-find[data-choices]")


def shown(claims):
    """What the items that are shown hold of verdict, topic and source."""
    return claims.evaluate(
        "place => [...place.querySelectorAll('.trn-folds > details:not([hidden])')].map(item => ({...item.dataset}))"
    )


def test_claims_are_chosen_by_verdict_topic_and_source(claims):
    every = shown(claims)
    assert len(every) > 236
    wanted = {"verdict": "agrees", "topic": "memory", "source": "trainium3-deep-dive"}
    for name, value in wanted.items():
        claims.locator(f"select[name={name}]").select_option(value)
    assert shown(claims) == [item for item in every if item == wanted] != []
    assert claims.locator("small").inner_text() == f"{len(shown(claims))} of {len(every)} rows"


def test_claims_are_found_by_words(claims):
    claims.locator("input").fill("oversubscription")
    assert 0 < len(shown(claims)) < 20
    claims.locator("input").fill("no such words")
    assert shown(claims) == []


def test_a_row_opens_to_its_derivation(claims):
    item = claims.locator("#NC009")
    assert not item.locator("dl").is_visible()
    item.locator("summary").click()
    assert item.locator("dl").is_visible()
    assert "1.152 TB/s" in item.inner_text()


def test_an_address_opens_a_claim(site, open_page):
    page = open_page("light")
    page.goto(f"{site.as_uri()}/chapters/claims.html#NC142")
    assert page.locator("#NC142 dl").is_visible()
