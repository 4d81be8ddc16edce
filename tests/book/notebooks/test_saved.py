"""Chapters stay as they are committed when jupytext syncs their pairs and when a Jupyter server saves them."""

import asyncio
import json
import os
import subprocess
import sys

import jupytext
import nbformat
import pytest

from trnbook.report import lab


@pytest.fixture
def checkout(git_checkout):
    return git_checkout("pyproject.toml", "notebooks")


@pytest.mark.parametrize("newer", ["*.ipynb", "py/*.py"])
def test_jupytext_finds_all_pairs_in_step_whichever_half_is_newer(checkout, git_status, newer):
    notebooks = checkout / "notebooks"
    for path in notebooks.glob(newer):
        os.utime(path, (2**31, 2**31))
    paths = sorted(notebooks.glob("*.ipynb"))
    subprocess.run([sys.executable, "-m", "jupytext", "--sync", *paths], cwd=checkout, check=True, capture_output=True)
    assert len(paths) > 10
    assert git_status(checkout) == ""


@pytest.fixture(params=["", "notebooks/"], ids=["in the notebooks", "in the project"])
def served(request, checkout, tmp_path, monkeypatch):
    """The contents manager of a server with jupytext that was started in either folder, and how it names notebooks."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", os.fspath(tmp_path))  # where it keeps signatures
    root = checkout if request.param else checkout / "notebooks"
    return jupytext.AsyncTextFileContentsManager(root_dir=os.fspath(root)), request.param


def test_a_save_through_the_server_changes_nothing(checkout, git_status, served):
    manager, prefix = served

    async def save_all():
        for path in sorted((checkout / "notebooks").glob("*.ipynb")):
            model = await manager.get(f"{prefix}{path.name}")
            sent = {"type": "notebook", "format": "json", "content": json.loads(json.dumps(model["content"]))}
            await manager.save(sent, f"{prefix}{path.name}")

    asyncio.run(save_all())
    assert git_status(checkout) == ""


def test_an_edit_through_the_server_reaches_both_halves(checkout, served):
    """Also through the server of `make lab`, which is started among the notebooks."""
    manager, prefix = served

    async def edit():
        model = await manager.get(f"{prefix}metrics.ipynb")
        model["content"]["cells"][0]["source"] += "\n\nA line of a reader."
        await manager.save({"type": "notebook", "content": model["content"]}, f"{prefix}metrics.ipynb")

    asyncio.run(edit())
    halves = [checkout / "notebooks" / name for name in ("metrics.ipynb", "py/metrics.py")]
    assert all("A line of a reader." in jupytext.read(half).cells[0].source for half in halves)


@pytest.mark.parametrize("chapter", [True, False])
def test_what_lab_adds_is_dropped_from_a_chapter_alone(root, chapter):
    """The version of a Python that is not ours and pictures of charts; other notebooks are saved as they are."""
    notebook = nbformat.read(root / "notebooks" / "memory.ipynb", 4)
    if not chapter:
        del notebook.metadata["trnmodel"]
    notebook.metadata.language_info["version"] = "3.99.1"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    for output in outputs:
        output["data"]["image/png"] = "iVBORw0KGgo="
    lab.drop_additions({"type": "notebook", "content": notebook})
    pictures = sum("image/png" in output["data"] for output in outputs)
    assert ("version" in notebook.metadata.language_info) is not chapter
    assert 0 < pictures < len(outputs) if chapter else pictures == len(outputs)


def test_a_file_that_is_no_notebook_is_saved_as_it_is():
    model = {"type": "file", "content": "import trnmodel"}
    lab.drop_additions(model)
    assert model == {"type": "file", "content": "import trnmodel"}


def test_the_kernel_is_called_as_ipykernel_calls_it(root):
    """JupyterLab writes the name under which ipykernel installs its kernel."""
    command = [sys.executable, "-m", "jupyter", "kernelspec", "list", "--json"]
    installed = json.loads(subprocess.check_output(command))["kernelspecs"]["python3"]["spec"]
    paths = list((root / "notebooks").glob("*.ipynb"))
    names = {nbformat.read(path, 4).metadata.kernelspec.display_name for path in paths}
    assert names == {installed["display_name"]}
