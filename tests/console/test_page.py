"""The console as its users see it, in a real browser."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, expect

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import ROOT, starter
from tests.cli.terminals import terminal
from tests.console.pages import console

pytestmark = pytest.mark.real_tcp


def test_from_the_printed_link_to_a_cancelled_job(browser: Browser, tmp_path: Path) -> None:
    """The link that `serve` prints opens the page, on which a job is submitted and cancelled."""
    here = Commands("", tmp_path, token=None)
    with terminal(here, "serve", "--port=0") as screen:
        screen.wait_for("try: ")
        link = next(line for line in screen.lines if line.startswith("open ")).removeprefix("open ")
        origin, _, token = link.partition("/#token=")
        with console(browser, origin.replace("http", "ws") + "/arcp") as shown:
            page = shown.page
            page.goto(link)
            shown.wait_for("Live")
            assert page.url == f"{origin}/#/"
            assert token not in page.content()
            expect(page.get_by_text("No jobs yet. Start one with:")).to_be_visible()
            page.get_by_role("link", name="New job").click()
            expect(page.get_by_role("heading", name="New job")).to_be_visible()
            page.get_by_role("combobox", name="Agent").select_option(label="sleeper")
            page.get_by_role("textbox", name="Input").fill('{"seconds": 600}')
            command = "arcp-trio submit sleeper@1.0.0 --input '{\"seconds\":600}'"
            expect(page.get_by_text(command)).to_be_visible()
            page.get_by_role("button", name="Submit").click()
            shown.cancel_job()
            expect(shown.articles("end")).to_contain_text("cancelled")
            job_id = shown.heading()
            page.get_by_role("button", name="Run again").click()
            expect(page.get_by_role("textbox", name="Input")).to_have_value('{"seconds":600}')
            expect(page.get_by_role("combobox", name="Agent")).to_have_value("sleeper@1.0.0")
            assert re.fullmatch("job_[0-9A-Z]{26}", job_id)
            page.get_by_role("link", name="Jobs").click()
            cell = shown.row(job_id).get_by_role("cell").first
            expect(cell).to_have_text("cancelled")
            page.reload()
            expect(shown.row(job_id)).to_contain_text("sleeper@1.0.0")
        screen.type("\x03")
        assert screen.end() == 0


def test_signing_in_and_out(browser: Browser, commands: Commands) -> None:
    """A wrong token is refused with its reason, a right one is forgotten at the end."""
    with console(browser, commands.url) as shown:
        page = shown.page
        page.goto(shown.origin)
        shown.wait_for("Signed out")
        form = page.get_by_role("form", name="Sign in")
        form.get_by_role("textbox", name="Token").fill("wrong")
        form.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("The token is not accepted")
        form.get_by_role("textbox", name="Token").fill(TOKEN)
        form.get_by_role("button", name="Sign in").click()
        shown.wait_for("Live")
        page.reload()
        shown.wait_for("Live")
        page.get_by_role("button", name="Sign out").click()
        shown.wait_for("Signed out")
        page.reload()
        expect(form).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_job_with_its_timeline(browser: Browser, commands: Commands) -> None:
    """A job is shown with the events of its journal, its lease in words, its money, its result."""
    shop = ("--lease", "tool.call=shop.*", "--budget", "USD:1.00")
    job_id = commands.detached("shopper", *shop)
    journal = [each for each in commands.run("watch", job_id, "--json").objects if "kind" in each]
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        expect(shown.articles()).to_have_count(len(journal) + 1)
        kinds = shown.articles().evaluate_all("all => all.map(each => each.dataset.kind)")
        assert kinds == [*(each["kind"] for each in journal), "end"]
        seqs = shown.articles().evaluate_all("all => all.map(each => Number(each.dataset.seq))")
        assert seqs == sorted(set(seqs))
        assert shown.heading() == job_id
        expect(page.get_by_text("may call shop.*, may spend 0.00 of 1.00 USD")).to_be_visible()
        expect(page.get_by_text("1.05 of 1.00 USD").first).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("Cost over time: 1.05 of"))).to_be_visible()
        page.get_by_role("searchbox", name="Find").fill("apples")
        assert shown.articles().filter(visible=True).count() == 1
        page.get_by_role("searchbox", name="Find").fill("")
        slider = page.get_by_role("slider", name="Event")
        slider.fill("3")
        assert shown.articles().filter(visible=True).count() == 3
        assert page.url.endswith("?at=3")
        page.reload()
        expect(shown.articles()).to_have_count(len(journal) + 1)
        assert shown.articles().filter(visible=True).count() == 3
        with page.expect_download() as download:
            page.get_by_role("button", name="Download events").click()
        lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["kind"] for line in lines] == kinds


def test_amounts_are_written_as_people_do(browser: Browser, commands: Commands) -> None:
    """Costs are added up exactly, and shown without what binary fractions bring in."""
    with console(browser, commands.url) as shown:
        job_id = commands.detached(
            "spender", "--budget", "USD:2", "--input", "[0.318, 0.318, 0.318]"
        )
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        expect(page.get_by_role("img", name="Cost over time: 0.954 of 2.00 USD")).to_be_visible()
        expect(page.get_by_role("definition").get_by_text("0.954 of 2.00 USD")).to_be_visible()
        expect(shown.articles("metric").get_by_text("speed 0.3 m/s")).to_be_visible()
        tiny = commands.detached("spender", "--budget", "USD:2", "--input", "[1e-7, 0.1, 0.2, 1.6]")
        page.goto(f"{shown.origin}/#/jobs/{tiny}")
        expect(page.get_by_role("img", name="Cost over time: 1.90 of 2.00 USD")).to_be_visible()


HARD_TEXT = st.text(
    st.one_of(
        st.sampled_from("'\"`$\\!*?[]{}()<>|&;#~=^ \t\n\r\x1b\x07\u202e\u200b漢😀-"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    )
)


def test_a_copied_command_means_the_same_to_a_shell(
    browser: Browser, commands: Commands, tmp_path: Path
) -> None:
    """The words of a shown command come back from a shell as they were, and nothing else is run."""
    (tmp_path / "tool.call=search.x").touch()  # what a pattern must not become

    with console(browser, commands.url) as shown:
        shown.page.goto(shown.origin)

        @settings(max_examples=30, deadline=None)
        @given(st.lists(st.lists(HARD_TEXT, min_size=1, max_size=4), min_size=1, max_size=50))
        @example([["search.*"], ["~", "=ls", "!!", "$(touch a)", "`touch b`", "'", "\\'", ""]])
        def check(lists: list[list[str]]) -> None:
            made = shown.page.evaluate(
                """async (lists) => {
                    const { command } = await import('/job.js');
                    return lists.map((each) => command('echo@1', '-5', { 'tool.call': each }));
                }""",
                lists,
            )
            script = "arcp-trio() { printf '%s\\0' \"$@\"; printf '\\0\\0'; }\n" + "\n".join(made)
            done = subprocess.run(
                ["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True
            )
            read = [each.split("\0") for each in done.stdout.decode().split("\0\0\0")[:-1]]
            expected = [
                ["submit", "echo@1", "--input", "-5"]
                + [word for each in words for word in ("--lease", f"tool.call={each}")]
                for words in lists
            ]
            assert read == expected
            assert [each.name for each in tmp_path.iterdir()] == ["tool.call=search.x"]

        check()


def test_questions_are_answered_in_place(browser: Browser, commands: Commands) -> None:
    """A job that waits stands first and marks the title; its questions are answered on its page."""
    job_id = commands.detached("cook", "--lease", "tool.call=human.ask")
    commands.detached("echo")
    with console(browser, commands.url) as shown:
        shown.sign_in()
        page = shown.page
        expect(shown.row(job_id).get_by_role("cell").first).to_have_text("waiting")
        expect(page).to_have_title(re.compile(r"\(1\) Jobs"))
        first = shown.table.get_by_role("row").filter(has=page.get_by_role("link")).first
        expect(first).to_contain_text(job_id)
        shown.row(job_id).get_by_role("link").click()
        page.get_by_role("button", name="stew").click()
        page.get_by_role("textbox", name="Answer").fill("99")
        page.get_by_role("button", name="Answer", exact=True).click()
        expect(shown.articles().get_by_text("expected at most 12")).to_be_visible()
        page.get_by_role("textbox", name="Answer").fill("4")
        page.get_by_role("button", name="Answer", exact=True).click()
        expect(page.get_by_role("region", name="Result")).to_contain_text('"people": 4')


def test_another_principal_sees_nothing(browser: Browser, commands: Commands) -> None:
    """With another principal's token neither the list nor a link shows a job."""
    job_id = commands.detached("waiting")
    with console(browser, commands.url) as shown:
        shown.sign_in("bobs-s3cret")
        expect(shown.page.get_by_text("No jobs yet.")).to_be_visible()
        assert shown.row(job_id).count() == 0
        shown.page.goto(f"{shown.origin}/#/jobs/{job_id}")
        expect(shown.page.get_by_text("There is no such job.")).to_be_visible()


def test_a_link_that_only_looks(browser: Browser, commands: Commands) -> None:
    """With a short-lived token the one job is shown; to cancel it is refused in words."""
    job_id = commands.detached("waiting")
    token = commands.run("token", job_id).out.strip()
    with console(browser, commands.url) as shown:
        shown.sign_in(token, f"/jobs/{job_id}")
        expect(shown.articles("log")).to_contain_text("begun")
        shown.cancel_job()
        expect(shown.page.get_by_role("alert")).to_contain_text("for looking only")


def test_the_form_of_a_schema(browser: Browser, commands: Commands) -> None:
    """An agent's input schema becomes fields, which write the input."""
    with console(browser, commands.url) as shown:
        shown.sign_in(place="/new")
        page = shown.page
        page.get_by_role("combobox", name="Agent").select_option("formal@1.0.0")
        page.get_by_label("name", exact=True).fill("Ada")
        page.get_by_label("size (optional)").fill("3")
        page.get_by_label("kind (optional)").select_option('"b"')
        written = page.get_by_role("textbox", name="Input")
        usual = {"loud": False, "share": 0.5, "tags": ["new"], "pace": "fast"}
        assert json.loads(written.input_value()) == {"name": "Ada", "size": 3, "kind": "b", **usual}
        page.get_by_label("size (optional)").fill("")
        page.get_by_label("kind (optional)").select_option("")
        page.get_by_label("loud (optional)").check()
        page.get_by_label("share (optional)").fill("0.25")
        page.get_by_label("tags (optional)").fill('["a", "b"]')
        page.get_by_label("place (optional)").fill('{"x": 3}')
        page.get_by_label("either (optional)").fill("seven")
        page.get_by_role("button", name="Submit").click()
        sent = {"name": "Ada", "loud": True, "share": 0.25, "tags": ["a", "b"], "pace": "fast"}
        sent |= {"place": {"x": 3}, "either": "seven"}
        result = page.get_by_role("region", name="Result").locator("pre")
        expect(result).to_contain_text('"either": "seven"')
        assert json.loads(result.inner_text()) == sent
        shown.page.goto(f"{shown.origin}/#/new")
        page.get_by_role("combobox", name="Agent").select_option("formal@1.0.0")
        page.get_by_label("name", exact=True).fill("Ada")
        page.get_by_label("place (optional)").fill('{"x": "here"}')
        page.get_by_role("button", name="Submit").click()
        expected = "expected integer @ $.payload.input.place.x"
        expect(page.get_by_role("alert")).to_contain_text(expected)
        page.get_by_role("textbox", name="Input").fill('{"name": 1}')
        page.get_by_role("button", name="Submit").click()
        expect(page.get_by_role("alert")).to_contain_text("expected string @ $.payload.input.name")
        page.get_by_role("textbox", name="Input").fill('{"name": ')
        page.get_by_role("button", name="Submit").click()
        expect(page.get_by_role("alert")).to_contain_text("The input is not JSON")


def test_the_form_of_a_demo_agent(browser: Browser, commands: Commands) -> None:
    """An input that may be left out has fields, too, which begin with the defaults."""
    with console(browser, commands.url) as shown:
        shown.sign_in(place="/new")
        page = shown.page
        page.get_by_role("combobox", name="Agent").select_option("countdown@1.0.0")
        written = page.get_by_role("textbox", name="Input")
        assert json.loads(written.input_value()) == {"n": 5, "delay": 0.2}
        page.get_by_label("n (optional)").fill("2")
        page.get_by_label("delay (optional)").fill("")
        assert json.loads(written.input_value()) == {"n": 2}
        page.get_by_role("button", name="Submit").click()
        result = page.get_by_role("region", name="Result").locator("pre")
        expect(result).to_contain_text('"done": 2')
        shown.page.goto(f"{shown.origin}/#/new")
        page.get_by_role("combobox", name="Agent").select_option("echo@1.0.0")
        assert written.input_value() == "null"


def test_filters_are_in_the_address(browser: Browser, commands: Commands) -> None:
    """Filters are in the address, so that the link shows the same again; keys move the choice."""
    failing = commands.detached("failing")
    echo = commands.detached("echo", "--input", '"zebra"')
    commands.run("watch", failing)
    with console(browser, commands.url) as shown:
        shown.sign_in()
        page = shown.page
        page.get_by_role("combobox", name="State").select_option("error")
        expect(shown.row(failing)).to_be_visible()
        expect(shown.row(echo)).to_have_count(0)
        assert page.url.endswith("#/?state=error")
        page.reload()
        expect(shown.row(failing)).to_be_visible()
        expect(shown.row(echo)).to_have_count(0)
        page.keyboard.press("/")
        page.keyboard.type("no such words")
        expect(page.get_by_text("No job is as the filters say.")).to_be_visible()
        page.get_by_role("searchbox", name="Find").fill(failing)
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(failing)
        page.keyboard.press("Escape")
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")


def test_the_example_page(browser: Browser, tmp_path: Path) -> None:
    """The page in examples/ has the client from the runtime, and follows a job to its end."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(ROOT / "examples"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages, starter(tmp_path) as start:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{pages.server_port}"
        options = ("--port=0", "--memory", f"--token=alice={TOKEN}", "--log-level=error")
        url = start("serve", *options, f"--allow-origin={origin}").url()
        runtime = url.replace("ws:", "http:").removesuffix("/arcp")
        page = browser.new_page()
        page.goto(f"{origin}/page.html?runtime={runtime}#wrong")
        expect(page.locator("output")).to_have_text("not connected: the token is not valid")
        page.goto(f"{origin}/page.html?runtime={runtime}&#{TOKEN}")
        page.get_by_role("button", name="Start").click()
        expect(page.locator("output")).to_have_text('done: {"done":5}')
        assert page.locator("progress").evaluate("bar => bar.value") == 5
        page.close()
        pages.shutdown()


def test_two_tabs(browser: Browser, commands: Commands) -> None:
    """Two tabs show the same job, and an end that one brings about is seen in both."""
    job_id = commands.detached("waiting")
    with console(browser, commands.url) as one, console(browser, commands.url) as other:
        for each in (one, other):
            each.sign_in(place=f"/jobs/{job_id}")
            expect(each.articles("log")).to_contain_text("begun")
        one.cancel_job()
        for each in (one, other):
            expect(each.articles("end")).to_contain_text("cancelled")
