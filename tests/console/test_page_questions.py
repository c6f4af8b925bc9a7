"""Questions and approvals on the page: nothing is answered by accident, nor once it is over."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, WebSocketRoute, expect

from tests.cli.clients import Commands
from tests.console.pages import Console, console, serving
from tests.console.test_names import AXE, serious

pytestmark = pytest.mark.real_tcp

AGENTS = """
from pathlib import Path
import arcp_trio, trio

agents = arcp_trio.Agents()

async def told(word):
    while not Path(word).exists():
        await trio.sleep(0.02)
    said = Path(word).read_text()
    Path(word).unlink()
    return said

async def say(job, count):
    for number in range(count):
        await job.log(f"line {number}")

@agents.agent("asker")
async def asker(job):
    async def talk():
        await say(job, int(await told("talk")))
    if job.input == "once told":
        await told("ask")
    if job.input == "after words":
        await say(job, 60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        answer = await job.ask("Which?", options=["this", "that"])
        nursery.cancel_scope.cancel()
    return answer

@agents.agent("late")
async def late(job):
    try:
        await job.ask("Which?", options=["this", "that"], expires_in=0.1)
    except arcp_trio.Unanswered:
        await trio.sleep_forever()

@agents.agent("careful")
async def careful(job):
    await job.emit("tool_call", {"tool": "edit", "call_id": "call_1", "args": job.input})
    await job.ask_approval("call_1", "edit", job.input, "tool.call", ["edit", "move"])
    told = dict(await job.decision("call_1"))
    await job.emit("tool_result", {"call_id": "call_1", "result": told})
    return told

@agents.agent("parent")
async def parent(job):
    child = await job.delegate("asker", lease=job.lease)
    return await child.result()

@agents.agent("sleeper")
async def sleeper(job):
    await trio.sleep_forever()
"""
ANSWER = "x-vendor.arcp-trio.answer"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Serve the agents above."""
    with serving(tmp_path_factory.mktemp("questions"), AGENTS) as to_run:
        yield to_run


def asking(commands: Commands, when: str = "at once") -> str:
    """Submit a job that asks at once, `once told`, or `after words` that fill its timeline."""
    return commands.detached("asker", "--lease=tool.call=human.ask", f'--input="{when}"')


def tell(commands: Commands, word: str, count: int = 0) -> None:
    """Have the job go on, and say so much."""
    ready = commands.folder / f"{word}.ready"
    ready.write_text(str(count), encoding="utf-8")
    ready.rename(commands.folder / word)


def stop_time(shown: Console) -> None:
    """Have the page's clock stand still from now on, but for `run_for`."""
    shown.page.clock.pause_at(shown.page.evaluate("Date.now()") + 1000)


def pass_until_shown(shown: Console, target: Locator) -> None:
    """Let the page's time pass until the target is in it."""
    while target.count() == 0:  # pytest-timeout bounds it
        shown.page.wait_for_timeout(20)
        shown.page.clock.run_for(60)


def click(shown: Console, target: Locator) -> None:
    """Click where the target is, as a person does who looks at nothing."""
    box = target.bounding_box()
    assert box is not None
    shown.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def press(shown: Console) -> None:
    """Press the mouse where it is, without moving it."""
    shown.page.mouse.down()
    shown.page.mouse.up()


def test_a_click_on_what_has_just_appeared_is_not_taken(
    browser: Browser, commands: Commands
) -> None:
    """For half a second a question's buttons are seen to take nothing; then they answer."""
    job_id = asking(commands, "once told")
    with console(browser, commands.url) as shown:
        shown.page.clock.install()
        shown.sign_in(place=f"/jobs/{job_id}")
        that = shown.page.get_by_role("button", name="that", exact=True)
        expect(shown.page.get_by_role("button", name="Cancel job")).to_be_visible()
        stop_time(shown)
        tell(commands, "ask")
        pass_until_shown(shown, that)
        click(shown, that)
        expect(that).to_be_disabled()
        shown.page.clock.run_for(400)
        click(shown, that)
        expect(that).to_be_disabled()
        shown.page.mouse.down()  # pressed too early, and let go of late enough
        shown.page.clock.run_for(200)
        shown.page.mouse.up()
        expect(that).to_be_enabled()
        assert not any(ANSWER in each for each in shown.frames)
        click(shown, that)
        expect(shown.page.get_by_role("status").get_by_text("answered")).to_be_visible()
        shown.page.clock.resume()
        expect(shown.page.get_by_role("region", name="Result")).to_contain_text("that")


def test_a_held_key_answers_nothing(browser: Browser, commands: Commands) -> None:
    """Keys that were pressed before a button was there do nothing to it, however long."""
    job_id = asking(commands)
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        this = page.get_by_role("button", name="this", exact=True)
        expect(this).to_be_enabled()
        for key in ("Enter", " "):
            this.blur()
            page.keyboard.down(key)
            this.focus()
            for _ in range(3):
                page.keyboard.down(key)
            page.keyboard.up(key)
        assert not any(ANSWER in each for each in shown.frames)
        page.keyboard.press("Enter")
        expect(page.get_by_role("region", name="Result")).to_contain_text("this")


def test_what_moves_takes_no_click(browser: Browser, commands: Commands) -> None:
    """Buttons that the page moves wait again, and so do those that slide under the pointer."""
    job_id = asking(commands, "after words")
    with console(browser, commands.url) as shown:
        shown.page.clock.install()
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        log = page.get_by_role("log")
        this = page.get_by_role("button", name="this", exact=True)
        expect(this).to_be_enabled()
        this.hover()
        before = this.bounding_box()
        tell(commands, "talk", 60)
        expect(shown.articles("log")).to_have_count(120)
        assert this.bounding_box() == before  # what one points at stays where it is
        stop_time(shown)
        page.mouse.move(0, 0)
        page.clock.run_for(300)
        assert this.bounding_box() != before  # the timeline has followed its end
        this.hover()
        page.clock.run_for(1000)
        log.evaluate("log => log.scrollBy(0, -10)")
        press(shown)
        page.clock.run_for(300)
        expect(this).to_be_disabled()
        press(shown)
        assert not any(ANSWER in each for each in shown.frames)
        page.clock.run_for(300)
        expect(this).to_be_enabled()
        log.evaluate("log => log.scrollBy(0, 25)")
        this.click()  # it is scrolled to, pointed at, and pressed
        page.clock.resume()
        expect(page.get_by_role("region", name="Result")).to_contain_text("this")


def test_what_the_page_moves_takes_no_click(browser: Browser, commands: Commands) -> None:
    """A button that the timeline moves as it follows its end waits again, wherever one points."""
    job_id = asking(commands, "after words")
    with console(browser, commands.url) as shown:
        shown.page.clock.install()
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        this = page.get_by_role("button", name="this", exact=True)
        expect(this).to_be_enabled()
        stop_time(shown)
        before = this.bounding_box()
        tell(commands, "talk", 3)
        while this.bounding_box() == before:  # pytest-timeout bounds it
            page.wait_for_timeout(20)
            page.clock.run_for(60)
        click(shown, this)
        page.clock.run_for(60)
        expect(this).to_be_disabled()
        assert not any(ANSWER in each for each in shown.frames)
        page.clock.run_for(600)
        click(shown, this)
        page.clock.resume()
        expect(page.get_by_role("region", name="Result")).to_contain_text("this")


def test_a_double_click_does_not_cancel(browser: Browser, commands: Commands) -> None:
    """What asks once more before a job is cancelled takes no click that came too soon."""
    job_id = commands.detached("sleeper")
    with console(browser, commands.url) as shown:
        shown.page.clock.install()
        shown.sign_in(place=f"/jobs/{job_id}")
        page = shown.page
        cancel = page.get_by_role("button", name="Cancel job")
        expect(cancel).to_be_visible()
        stop_time(shown)
        cancel.click()
        confirm = page.get_by_role("dialog").get_by_role("button", name="Cancel job")
        click(shown, confirm)
        page.keyboard.down("Enter")
        page.keyboard.down("Enter")
        page.keyboard.up("Enter")
        assert not any("arcp-trio.stop" in each for each in shown.frames if each[16:17] == ">")
        page.clock.run_for(600)
        click(shown, confirm)
        page.clock.resume()
        expect(shown.articles("end")).to_contain_text("cancelled")


def test_what_is_over_has_no_buttons(browser: Browser, commands: Commands) -> None:
    """A question says who answered it, elsewhere too, or that nobody did; then it has no button."""
    answered, ended = asking(commands), asking(commands)
    with console(browser, commands.url) as shown:
        shown.sign_in(place=f"/jobs/{answered}")
        page = shown.page
        buttons = page.get_by_role("button", name="that", exact=True)
        words = page.get_by_role("log").get_by_role("status")
        expect(buttons).to_be_enabled()
        assert commands.run("answer", answered, "that").code == 0
        expect(words).to_contain_text("answered by alice")
        expect(buttons).to_have_count(0)
        page.reload()
        expect(words).to_contain_text("answered by alice")
        expect(buttons).to_have_count(0)
        page.goto(f"{shown.origin}/#/jobs/{ended}")
        expect(buttons).to_be_enabled()
        assert commands.run("cancel", ended).code == 0
        expect(words).to_contain_text("no longer asked")
        expect(buttons).to_have_count(0)
        late = commands.detached("late", "--lease=tool.call=human.ask")
        page.goto(f"{shown.origin}/#/jobs/{late}")
        expect(words).to_contain_text("no longer asked: nobody")
        expect(buttons).to_have_count(0)


def test_a_question_of_a_child_is_seen_at_its_parent(browser: Browser, commands: Commands) -> None:
    """The parent stands first with the child that asks below it, and marks the hidden tab, too."""
    with console(browser, commands.url) as shown:
        page = shown.page
        page.clock.install()
        shown.sign_in(place="/?agent=")
        lease = ("--lease=tool.call=human.ask", "--lease=agent.delegate=asker")
        older = commands.detached("parent", *lease)
        newer = commands.detached("sleeper")
        expect(shown.row(newer)).to_be_visible()
        rows = shown.table.get_by_role("row").filter(has=page.get_by_role("link"))
        expect(rows.nth(0)).to_contain_text(older)
        expect(rows.nth(1).get_by_role("cell").first).to_have_text("waiting")
        shown.row(older).get_by_role("button", name="1 delegated").click()
        expect(rows.nth(1)).not_to_contain_text("waiting")
        expect(page).to_have_title("(1) Jobs · arcp-trio")
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")
        second = commands.detached("asker", "--lease=tool.call=human.ask")
        page.clock.fast_forward(10_000)
        expect(page).to_have_title("(2) Jobs · arcp-trio")
        page.goto(f"{shown.origin}/#/jobs/{older}")
        tree = page.get_by_role("region", name="Delegated jobs")
        expect(tree.get_by_role("listitem")).to_contain_text("waiting")
        page.goto(f"{shown.origin}/#/jobs/{second}")
        expect(page).to_have_title(f"(1) {second} · arcp-trio")
        for each in (older, newer, second):
            commands.run("cancel", each)


def test_an_approval_shows_what_it_allows(browser: Browser, commands: Commands) -> None:
    """All targets, the whole arguments, command and diff stand above the buttons, as text."""
    bad = "<img src=x onerror=alert(1)>\u202e"
    args = {"title": bad, "words": ["long"] * 2000, "last": "the end"}
    shown_too = {
        "shown": {
            "cwd": "/srv/shop\nFolder: /tmp",
            "command": f"make test && rm -rf {'x' * 5000} {bad}",
            "changes": [
                {"path": "/srv/a.py", "diff": f"@@ -1 +1 @@\n-{bad}\n+two\n", "note": "new"},
                {"path": "/srv/b.py"},
            ],
        },
        "for_job": "tool.call of edit and move, with any arguments",
        "truncated": True,
    }

    def amend(frame: str) -> str:
        """Return a frame of the server with what an approval may tell in its question."""
        told = json.loads(frame)
        if told["payload"].get("kind") == "x-vendor.arcp-trio.question":
            told["payload"]["body"] |= shown_too
        return json.dumps(told)

    lease = (
        "--lease=x-vendor.arcp-trio.ask.tool.call=edit",
        "--lease=x-vendor.arcp-trio.ask.tool.call=move",
    )
    job_id = commands.detached("careful", *lease, "--input", json.dumps(args))
    with console(browser, commands.url) as shown:
        page = shown.page

        def connect(route: WebSocketRoute) -> None:
            server = route.connect_to_server()
            server.on_message(lambda frame: route.send(amend(str(frame))))

        page.route_web_socket("**/arcp", connect)
        shown.sign_in(place=f"/jobs/{job_id}")
        asked = shown.articles("x-vendor.arcp-trio.question")
        allow = asked.get_by_role("button", name="Allow for this job")
        expect(allow).to_be_enabled()
        facts = asked.locator("dl")
        expect(facts.get_by_role("listitem")).to_have_text(["edit", "move"])
        text = facts.inner_text()
        for words in ("/srv/shop⟨000a⟩Folder: /tmp", "x" * 5000, "the end", "/srv/b.py", "(new)"):
            assert words in text
        for words in ("-<img src=x onerror=alert(1)>⟨202e⟩\n+two", "with any arguments"):
            assert words in text
        assert "longer than can be shown" in text
        assert asked.locator("img").count() == 0
        above, buttons = facts.bounding_box(), allow.bounding_box()
        assert above is not None
        assert buttons is not None
        assert above["y"] + above["height"] <= buttons["y"]
        if AXE.exists():
            assert serious(page, AXE) == []
        asked.get_by_role("textbox", name="Reason").fill("it is mine")
        allow.click()
        expect(asked.get_by_role("status")).to_contain_text("allowed by alice")
        expect(asked.get_by_role("button")).to_have_count(0)
        result = json.loads(page.get_by_role("region", name="Result").locator("pre").inner_text())
        assert result["reason"] == "it is mine"
