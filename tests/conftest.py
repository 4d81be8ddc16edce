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
    """A test with an argument `slug` runs once for each chapter."""
    if "slug" in metafunc.fixturenames:
        metafunc.parametrize("slug", sorted(path.stem for path in (ROOT / "notebooks" / "py").glob("*.py")))
