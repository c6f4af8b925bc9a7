"""The patterns of each capability (§9.2), and which of them can never match."""

from __future__ import annotations

from typing import Final

from arcp_trio.authority import urls
from arcp_trio.authority.agent_patterns import AgentPattern
from arcp_trio.authority.approvals import ASK, ASKABLE, behind
from arcp_trio.authority.patterns import FILES, URLS, Pattern, check_characters

DELEGATE: Final = "agent.delegate"


def parse_grant(capability: str, text: str) -> Pattern:
    """Read a pattern of a capability; `ValueError` says why the text is not one.

    URLs are written canonically (RFC 3986 §6), so that `HTTPS://Example.com:443/%7Euser` grants the
    same as its plainer spelling. Other patterns are taken as they are.
    """
    check_characters(text)
    capability = behind(capability)
    if capability == URLS and not _anywhere(text):
        text = urls.canonical_glob(text)
    return AgentPattern.parse(text) if capability == DELEGATE else Pattern.parse(text)


def never_matches(capability: str, pattern: Pattern) -> str | None:
    """Return why no target of the capability matches the pattern; None if one may.

    The answer is a proof: files are named by absolute paths, and agents by names of §7.5. Of
    tools, models and URLs any name may come to exist.
    """
    capability = behind(capability)
    if capability.startswith(ASK):
        return f"people can only be asked for {', '.join(ASKABLE)}"
    if capability in FILES and not (_anywhere(pattern.text) or pattern.text.startswith("/")):
        return "paths are absolute: begin with / or **/"
    if isinstance(pattern, AgentPattern) and not pattern.can_match:
        return "no agent can have such a name or version"
    return None


def _anywhere(text: str) -> bool:
    return text == "**" or text.startswith("**/")
