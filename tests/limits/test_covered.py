"""Every limit has a test that hits it, and a line in the documentation for operators."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import attrs
import pytest

from arcp_trio import Limits

ROOT = Path(__file__).parents[2]

HIT_BY = {
    "frame_bytes_in": "limits/test_frames.py::test_a_frame_is_bounded_in_bytes",
    "first_frame_bytes": "limits/test_frames.py::test_the_first_frame_is_bounded_in_bytes",
    "frame_bytes_out": "jobs/test_streaming_delivery.py::test_an_inline_result_has_to_fit",
    "json_depth": "limits/test_frames.py::test_nesting_is_bounded",
    "json_values": "limits/test_frames.py::test_values_are_bounded",
    "handshake_seconds": "sessions/test_hello.py::test_who_says_nothing_is_closed_in_time",
    "connections_before_handshake": "front/test_waiting.py::test_the_oldest_goes_at_once",
    "close_seconds": "sessions/test_hello.py::test_who_does_not_even_read_is_closed_in_time",
    "outbox_items": (
        "protocol/test_order_of_answers.py::test_what_waits_behind_a_slow_submit_is_bounded"
    ),
    "inbox_items": "sessions/test_heartbeat.py::test_silence_counts_only_while_somebody_listens",
    "inbox_bytes": "limits/test_inbox.py::test_large_commands_wait_before_they_are_read",
    "tail_frames": "flow/test_slow_readers.py::test_what_a_session_holds_is_bounded",
    "tail_bytes": "flow/test_slow_readers.py::test_what_a_session_holds_is_bounded",
    "outbox_bytes": "fairness/test_memory.py::test_answers_that_nobody_reads_are_bounded",
    "received_bytes_per_principal": (
        "fairness/test_memory.py::test_what_one_principal_sends_holds_up_no_other"
    ),
    "received_bytes_total": (
        "fairness/test_memory.py::test_what_one_principal_sends_holds_up_no_other"
    ),
    "tail_bytes_per_principal": (
        "fairness/test_memory.py::test_sessions_that_do_not_read_share_their_principals_bound"
    ),
    "input_bytes_per_principal": "fairness/test_memory.py::test_inputs_of_jobs_are_bounded",
    "input_bytes_total": "fairness/test_memory.py::test_inputs_of_jobs_are_bounded",
    "waiting_submits_per_principal": "fairness/test_claims.py::test_submits_that_wait_are_bounded",
    "waiting_submits": "fairness/test_claims.py::test_submits_that_wait_are_bounded",
    "tail_bytes_total": "flow/test_slow_subscribers.py::test_all_tails_together_are_bounded",
    "unacked_frames": "flow/test_ack.py::test_unacknowledged_frames_are_bounded",
    "stored_bytes_per_principal": "fairness/test_stored.py::test_a_disk_is_shared",
    "stored_bytes_total": "fairness/test_stored.py::test_a_disk_is_shared",
    "log_bytes": "fairness/test_logs.py::test_promises_are_bounded_in_bytes",
    "journal_bytes": "flow/test_slow_readers.py::test_a_job_waits_for_its_attached_submitter",
    "chunk_bytes": "jobs/test_streaming.py::test_any_text_in_any_pieces",
    "result_bytes": "jobs/test_streaming_delivery.py::test_a_result_has_its_bound",
    "sessions_per_principal": (
        "sessions/test_limits.py::test_connected_sessions_of_a_principal_are_bounded"
    ),
    "parked_sessions_per_principal": (
        "sessions/test_limits.py::test_parked_sessions_of_a_principal_are_bounded"
    ),
    "jobs_per_principal": (
        "jobs/test_submit.py::test_one_principal_does_not_use_up_the_places_of_another"
    ),
    "jobs": "jobs/test_submit.py::test_jobs_past_a_limit_are_refused_until_one_ends",
    "waiting_jobs": "questions/test_answering.py::test_jobs_that_wait_do_not_run",
    "waiting_jobs_per_principal": "questions/test_answering.py::test_jobs_that_wait_do_not_run",
    "agent_start_seconds": "proxies/acp/test_bounds.py::test_a_program_that_does_not_begin",
    "agent_line_bytes": "proxies/acp/test_bounds.py::test_a_line_has_a_bound",
    "agent_file_bytes": "proxies/acp/test_files.py::test_files_without_end",
    "terminals_per_job": "proxies/acp/test_terminals.py::test_many_commands",
    "terminal_bytes": "proxies/acp/test_terminals.py::test_output_is_cut_at_a_character",
    "agent_requests": "proxies/acp/test_bounds.py::test_requests_by_the_thousand",
    "agent_threads": "jobs/test_outside.py::test_all_threads_together_are_bounded",
    "agent_threads_per_principal": (
        "jobs/test_outside.py::test_the_threads_of_a_principal_are_bounded"
    ),
    "subscriptions_per_session": (
        "flow/test_subscription_bounds.py::test_subscriptions_are_limited"
    ),
    "malformed_frames": "sessions/test_limits.py::test_too_many_bad_frames_close_the_connection",
    "messages_per_second": (
        "limits/test_pace.py::test_a_burst_is_served_at_once_and_then_one_by_one"
    ),
    "failed_auth_per_minute": (
        "limits/test_wrong_tokens.py::test_too_many_wrong_tokens_are_refused_by_the_limit"
    ),
    "idempotency_seconds": "flow/test_idempotency_lifetimes.py::test_a_key_expires",
    "finished_job_seconds": (
        "flow/test_listing.py::test_ended_jobs_are_listed_for_their_retention"
    ),
    "finished_jobs": "flow/test_listing.py::test_only_so_many_ended_jobs_are_kept",
    "resume_window_seconds": "sessions/test_windows.py::test_a_session_lasts_as_long_as_its_window",
    "heartbeat_seconds": (
        "sessions/test_heartbeat.py::test_two_silent_intervals_are_a_loss_that_is_announced"
    ),
    "cancel_grace_seconds": "jobs/test_cancel.py::test_an_agent_that_shields_itself_is_cut_off",
    "lease_grace_seconds": "jobs/test_expiry.py::test_the_grace_is_configured",
    "delegation_depth": "jobs/test_refused_delegations.py::test_a_tree_has_a_bounded_depth",
    "children_per_job": (
        "jobs/test_refused_delegations.py::test_a_child_that_is_refused_keeps_none_of_the_money"
    ),
    "questions_per_job": "questions/test_answering.py::test_what_a_job_asks_at_once_is_bounded",
    "approval_seconds": "questions/test_approvals.py::test_nobody_decides",
    "question_bytes": "questions/test_answering.py::test_what_a_job_asks_at_once_is_bounded",
    "agent_home_seconds": "proxies/acp/test_homes.py::test_a_home_goes_when_nobody_uses_it",
    "memo_bytes": "durable/test_limits.py::test_what_a_job_remembers_is_bounded",
    "memos_bytes": "durable/test_limits.py::test_what_a_job_remembers_is_bounded",
    "jobs_begun_per_second": "durable/test_limits.py::test_jobs_go_on_at_a_pace",
    "runs_without_progress": "durable/test_limits.py::test_a_job_that_ends_the_process_is_ended",
    "release_seconds": "cluster/test_letting_go.py::test_a_silent_node",
    "node_seconds": "cluster/test_judging.py::test_a_node_without_beats_is_dead_after_its_time",
    "follow_seconds": ("cluster/test_lost_wake_ups.py::test_everything_is_looked_at_now_and_then"),
    "followed_jobs": "cluster/test_following.py::test_followed_jobs_are_bounded",
    "orphan_seconds": "cluster/test_leaving.py::test_a_durable_job_waits_for_no_longer_than_that",
    "command_seconds": "cluster/test_asking.py::test_a_node_that_does_not_answer",
    "issue_seconds": "limits/test_upstream.py::test_issuing_takes_no_longer",
    "revoke_seconds": "limits/test_upstream.py::test_an_end_waits_no_longer_for_revoking",
}


def test_each_limit_is_hit_by_a_test() -> None:
    """The table above has every limit."""
    assert set(HIT_BY) == {field.name for field in attrs.fields(Limits)}


@pytest.mark.parametrize("limit", HIT_BY)
def test_that_test_exists_and_configures_it(limit: str) -> None:
    """Each test of the table exists, and its file mentions the limit."""
    path, _, name = HIT_BY[limit].partition("::")
    source = (ROOT / "tests" / path).read_text()
    functions = {
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert name in functions, f"{path} has no {name}"
    assert re.search(rf"\b{limit}\b", source)


def test_operators_find_each_limit_and_its_default() -> None:
    """The table in `docs/operating.md` has every limit with its default."""
    table = (ROOT / "docs" / "operating.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))
    defaults: dict[str, float] = attrs.asdict(Limits())
    assert {name: written(name, default) for name, default in defaults.items()}.items() <= (
        told.items()
    )


def written(name: str, default: float) -> str:
    """Return a number as the documentation writes it."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if "bytes" in name and default % size == 0:
            return f"{int(default) // size} {unit}"
    return f"{default:,}"
