"""One hostile run for all tests of its page."""

import datetime as dt
from pathlib import Path

import pytest

from orchestrator.report.building import build_report
from orchestrator.report.document import Document
from orchestrator.report.loading import load_material
from orchestrator.report.material import Material
from orchestrator.report.render_html import render_page
from orchestrator.stored_run import StoredRun

from .runs import hostile_plan, poison, store

MADE_AT = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    planned = hostile_plan()
    database, run_id = store(tmp_path_factory.mktemp("report"), planned)
    poison(database, run_id)
    found = load_material(StoredRun.load(database, run_id))
    database.dispose()
    return found


@pytest.fixture(scope="session")
def report(material: Material) -> Document:
    return build_report(material, made_at=MADE_AT)


@pytest.fixture(scope="session")
def page(report: Document) -> str:
    return render_page(report)


@pytest.fixture(scope="session")
def page_file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "report.html"
    target.write_text(page, encoding="utf-8")
    return target
