"""Who is signed in on the page: by a link, a one-time code or a token, and nobody afterwards."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, WebSocketRoute, expect

from tests.cli.clients import TOKEN, Commands
from tests.console.pages import Console, console

pytestmark = pytest.mark.real_tcp

BOBS = "bobs-s3cret"


def signed_in_as(shown: Console, name: str) -> None:
    """Expect that the page is live, and says as whom."""
    shown.wait_for("Live")
    expect(shown.page.get_by_role("banner").locator("#who")).to_have_text(name)


def test_a_link_of_the_command_is_good_once(browser: Browser, commands: Commands) -> None:
    """The link signs in without the token; another tab with the same link is told why not."""
    link = commands.run("console", "--print").out.rstrip()
    with console(browser, commands.url) as shown:
        page = shown.page
        page.goto(link)
        signed_in_as(shown, "alice")
        assert page.url == f"{shown.origin}/#/"
        page.reload()
        signed_in_as(shown, "alice")
        other = page.context.new_page()
        other.goto(link)
        refusal = "The link is not accepted: the code is not good: it is good once, for a minute"
        expect(other.get_by_role("alert")).to_contain_text(refusal)
        expect(other.get_by_role("form", name="Sign in")).to_be_visible()
    with console(browser, commands.url) as shown:  # a view says what it is
        shown.sign_in(commands.run("token").out.strip())
        signed_in_as(shown, "alice, for looking only")


def test_a_link_does_not_change_who_is_signed_in(browser: Browser, commands: Commands) -> None:
    """A link for somebody else asks first, and names both; one for the same principal does not."""
    with console(browser, commands.url) as shown:
        page = shown.page
        shown.sign_in(place="/new")
        expect(page.get_by_role("heading", level=1)).to_have_text("New job")
        page.evaluate("sessionStorage.setItem('arcp-input-job_1', 'of alice')")
        for words in ("Stay alice", "Escape"):
            page.goto(f"{shown.origin}/#token={BOBS}")
            dialog = page.get_by_role("dialog", name="Sign in as somebody else?")
            expect(dialog).to_contain_text("signed in as alice. The link is for bob.")
            assert BOBS not in page.url
            if words == "Escape":
                page.keyboard.press(words)
            else:
                dialog.get_by_role("button", name=words).click()
            expect(dialog).to_have_count(0)
            signed_in_as(shown, "alice")
            expect(page.get_by_role("heading", level=1)).to_have_text("New job")
            assert page.url == f"{shown.origin}/#/new"
        page.goto(commands.run("console", "--print").out.rstrip())
        signed_in_as(shown, "alice")
        assert page.evaluate("sessionStorage.getItem('arcp-input-job_1')") == "of alice"
        page.goto("about:blank")
        page.goto(f"{shown.origin}/#token={BOBS}")
        page.get_by_role("dialog").get_by_role("button", name="Sign in as bob").click()
        signed_in_as(shown, "bob")
        assert page.evaluate("sessionStorage.getItem('arcp-input-job_1')") is None
        page.reload()
        signed_in_as(shown, "bob")


@pytest.mark.parametrize("signed_in", [False, True])
def test_a_link_that_signs_nobody_in(
    browser: Browser, commands: Commands, *, signed_in: bool
) -> None:
    """A damaged link, and one with a wrong token, are answered; who is signed in stays so."""
    with console(browser, commands.url) as shown:
        page = shown.page
        if signed_in:
            shown.sign_in()
        for secret, words in (
            ("%", "The link is damaged"),
            ("", "The link is damaged"),
            ("wrong", "the token is not valid"),
        ):
            page.goto(f"{shown.origin}/#token={secret}")
            if signed_in:
                dialog = page.get_by_role("dialog", name="The link signs nobody in")
                expect(dialog).to_contain_text(words)
                expect(dialog).to_contain_text("This tab stays signed in as alice.")
                dialog.get_by_role("button", name="Close").click()
                signed_in_as(shown, "alice")
            else:
                expect(page.get_by_role("alert")).to_contain_text(words)
                expect(page.get_by_role("form", name="Sign in")).to_be_visible()
            assert page.url == f"{shown.origin}/#/"
            if not signed_in:
                page.goto("about:blank")


def test_nothing_is_kept_after_signing_out(browser: Browser, commands: Commands) -> None:
    """Signing out empties the storage, and what was under way writes nothing into it later."""
    held: list[tuple[WebSocketRoute, str]] = []
    with console(browser, commands.url) as shown:
        page = shown.page

        def connect(route: WebSocketRoute) -> None:
            server = route.connect_to_server()

            def hand_on(frame: str | bytes) -> None:
                if '"type":"job.accepted"' in str(frame):
                    held.append((route, str(frame)))
                else:
                    route.send(frame)

            server.on_message(hand_on)

        page.route_web_socket("**/arcp", connect)
        shown.sign_in(place="/new")
        page.get_by_role("combobox", name="Agent").select_option("parrot@1")
        page.get_by_role("textbox", name="Input").fill('"hello"')
        page.get_by_role("button", name="Submit").click()
        while not held:  # pytest-timeout bounds it
            page.wait_for_timeout(20)
        page.evaluate("sessionStorage.setItem('of a module', 'kept')")
        page.get_by_role("button", name="Sign out").click()
        shown.wait_for("Signed out")
        expect(page.locator("#who")).to_be_empty()
        for route, frame in held:
            route.send(frame)
        page.wait_for_timeout(200)
        assert page.evaluate("sessionStorage.length") == 0
        form = page.get_by_role("form", name="Sign in")
        form.get_by_role("textbox", name="Token").fill(TOKEN)
        page.keyboard.press("Enter")
        signed_in_as(shown, "alice")
