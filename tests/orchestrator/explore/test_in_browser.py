"""The explorer in a real browser: its pages work under their policy, and no other page reads or shows them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.session import open_database
from tests.db.filling import fill
from tests.orchestrator.explore.exploring import exploring
from tests.orchestrator.report.browser import Page, opened

READ = "fetch('{0}/interlace.json?sql=SELECT+1').then(() => 'read', () => 'refused')"
FRAME = """new Promise(done => {{
    const frame = document.createElement('iframe');
    frame.onload = () => done(frame.contentDocument === null ? 'kept out' : 'empty');
    frame.src = '{0}/interlace';
    document.body.append(frame);
}})"""
INJECTED = """new Promise(done => {
    document.body.insertAdjacentHTML('beforeend', '<img src="/-/static/none.png" onerror="window.ran = 1">');
    document.body.lastChild.addEventListener('error', () => done(typeof window.ran));
})"""
IMAGE = """new Promise(done => {{
    const image = new Image();
    image.onload = () => done('shown');
    image.onerror = () => done('refused');
    image.src = '{0}/-/static/favicon.png';
}})"""


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str, Path]]:
    folder = tmp_path_factory.mktemp("browsed")
    engine = open_database(str(folder / "interlace.db"))
    fill(engine)
    engine.dispose()
    (folder / "other.html").write_text("<p>another page</p>")
    with opened(folder / "other.html", folder / "profile") as page:
        with exploring(folder / "interlace.db", "--port", "0") as explorer:
            yield page, explorer.address, folder / "other.html"


def settled(page: Page, expression: str) -> object:
    """Return the result of a promise in the page."""
    answer = page.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
    return answer["result"].get("value")


def test_pages_work_under_their_policy(browsed: tuple[Page, str, Path]) -> None:
    page, address, _ = browsed
    page.visit(f"{address}/interlace?sql=SELECT+1")
    assert page.evaluate("document.querySelectorAll('.CodeMirror').length") == 1
    assert page.evaluate("document.querySelector('#sql-format').hidden") is False
    page.visit(f"{address}/interlace/run")
    assert page.evaluate("typeof DATASETTE_ALLOW_FACET") == "boolean"
    assert page.evaluate("document.querySelectorAll('style')[0].sheet !== null") is True
    assert settled(page, INJECTED) == "undefined"
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 2'}))")
    assert page.evaluate("typeof window.ran") == "undefined"


def test_another_page_cannot_read_show_or_frame_it(browsed: tuple[Page, str, Path]) -> None:
    page, address, other = browsed
    page.open(other)
    page.logged.clear()
    assert settled(page, READ.format(address)) == "refused"
    assert settled(page, IMAGE.format(address)) == "refused"
    assert settled(page, FRAME.format(address)) == "kept out"
    assert any("frame-ancestors" in line for line in page.logged)
