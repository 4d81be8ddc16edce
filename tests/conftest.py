"""What every test can ask for."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow or busy machine is no failure: nothing here looks at a clock.
settings.register_profile("trnmodel", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trnmodel")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root():
    return ROOT


def pytest_generate_tests(metafunc):
    """A test with an argument `slug` runs once for each notebook, or for each chapter (mark `chapters`)."""
    if "slug" in metafunc.fixturenames:
        slugs = sorted(path.stem for path in (ROOT / "notebooks" / "py").glob("*.py"))
        left_out = {"index"} if metafunc.definition.get_closest_marker("chapters") else set()
        metafunc.parametrize("slug", [slug for slug in slugs if slug not in left_out])
