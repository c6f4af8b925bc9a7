"""The examples of the specification, and of the project's own messages, by type."""

from __future__ import annotations

from typing import Any

TO_RUNTIME_EXAMPLES: dict[str, dict[str, Any]] = {
    "session.hello": {
        "client": {"name": "examplectl", "version": "0.4.1"},
        "auth": {"scheme": "bearer", "token": "t"},
        "capabilities": {"encodings": ["json"], "features": ["heartbeat", "ack"]},
        "resume": {"session_id": "sess_1", "resume_token": "rt_4f8c", "last_event_seq": 1827},
    },
    "session.resume": {"resume_token": "rt_1", "last_event_seq": 3, "session_id": "sess_1"},
    "session.ping": {"nonce": "p_01J", "sent_at": "2026-05-13T19:42:13.000Z"},
    "session.pong": {"ping_nonce": "p_01J", "received_at": "2026-05-13T19:42:13.020Z"},
    "session.ack": {"last_processed_seq": 1827},
    "session.list_jobs": {
        "filter": {
            "status": ["running", "pending"],
            "agent": "code-refactor",
            "created_after": "2026-05-13T00:00:00Z",
        },
        "limit": 100,
    },
    "session.close": {"reason": "done"},
    "session.bye": {"reason": "client_shutdown"},
    "job.submit": {
        "agent": "code-refactor@2.0.0",
        "input": {"instruction": "x", "paths": ["/a"], "null": None},
        "lease_request": {"fs.read": ["/workspace/**"], "cost.budget": ["USD:5.00"]},
        "lease_constraints": {"expires_at": "2026-05-13T23:42:00Z"},
        "idempotency_key": "refactor-auth-2026-W19",
        "max_runtime_sec": 1800,
        "x-vendor.arcp-trio": {"forget": True},
    },
    "job.cancel": {"job_id": "job_1", "reason": "User requested cancel"},
    "x-vendor.arcp-trio.stop": {"job_id": "job_1", "reason": "It runs away"},
    "x-vendor.arcp-trio.token": {"seconds": 60, "job_id": "job_1", "replaces": "t"},
    "x-vendor.arcp-trio.answer": {
        "job_id": "job_1",
        "question_id": "call_1",
        "answer": {"to": ["x", None]},
    },
    "job.subscribe": {"job_id": "job_01JABC", "from_event_seq": 0, "history": True},
    "job.unsubscribe": {"job_id": "job_01JABC"},
}

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TO_CLIENT_EXAMPLES: dict[str, dict[str, Any]] = {
    "session.welcome": {
        "session_id": "sess_1",
        "runtime": {"name": "r", "version": "1.1.0"},
        "resume_token": "rt_4f8c",
        "resume_window_sec": 600,
        "heartbeat_interval_sec": 30,
        "accepted_at": "2026-05-13T19:30:00.000Z",
        "capabilities": {
            "encodings": ["json"],
            "features": ["heartbeat"],
            "agents": [
                {"name": "code-refactor", "versions": ["1.0.0", "2.0.0"], "default": "2.0.0"},
                {"name": "no-default", "versions": ["1"]},
            ],
        },
        "x-vendor.arcp-trio": {"store": "PostgreSQL", "nodes": ["a", "b"]},
    },
    "session.error": {
        "code": "AGENT_NOT_AVAILABLE",
        "message": "m",
        "retryable": False,
        "request_id": "r1",
        "job_id": "job_1",
        "details": {"a": 1},
    },
    "session.ping": TO_RUNTIME_EXAMPLES["session.ping"],
    "session.pong": TO_RUNTIME_EXAMPLES["session.pong"],
    "session.closed": {},
    "session.bye": {},
    "session.jobs": {
        "request_id": "r1",
        "jobs": [
            {
                "job_id": "job_1",
                "agent": "code-refactor@2.0.0",
                "status": "running",
                "lease": {},
                "parent_job_id": None,
                "created_at": "2026-05-13T19:30:00Z",
                "submitted_at": "2026-05-13T19:30:00Z",
                "trace_id": TRACE,
                "last_event_seq": 1822,
                "x-vendor.arcp-trio": {
                    "principal": "alice",
                    "started_at": "2026-05-13T19:30:01Z",
                    "error": {"code": "TIMEOUT", "message": "the job ran too long"},
                    "budget": {"USD": "5.00"},
                    "spent": {"USD": "0.25"},
                    "last_event": "calls shop.buy",
                    "progress": {"current": 3, "total": 10},
                },
                "x-vendor.arcp-trio.waiting": {
                    "questions": [
                        {"question_id": "call_1", "prompt": "Buy?", "options": ["yes", "no"]},
                        {
                            "question_id": "call_2",
                            "prompt": "How many?",
                            "schema": {"type": "integer"},
                            "to": "the shopper",
                            "expires_at": "2026-05-13T19:30:01.000Z",
                        },
                    ]
                },
            }
        ],
        "next_cursor": None,
    },
    "job.accepted": {
        "job_id": "job_1",
        "agent": "echo@1.0.0",
        "lease": {"cost.budget": ["USD:5.00"]},
        "lease_constraints": {"expires_at": "2026-05-13T23:42:00Z"},
        "budget": {"USD": 5.0},
        "credentials": [{"id": "cred_1", "scheme": "bearer", "value": "v", "endpoint": "u"}],
        "accepted_at": "2026-05-13T19:30:00Z",
        "trace_id": TRACE,
        "request_id": "r1",
    },
    "job.cancelled": {"job_id": "job_1", "reason": "why"},
    "x-vendor.arcp-trio.stopped": {"request_id": "r1", "job_id": "job_1", "reason": "why"},
    "x-vendor.arcp-trio.token_made": {
        "request_id": "r1",
        "token": "t",
        "expires_at": "2026-05-13T19:31:00Z",
    },
    "x-vendor.arcp-trio.answered": {
        "request_id": "r1",
        "job_id": "job_1",
        "question_id": "call_1",
    },
    "job.event": {"kind": "status", "ts": "2026-05-13T19:30:00Z", "body": {"phase": "running"}},
    "job.result": {
        "final_status": "success",
        "result_id": "res_1",
        "result_size": 31457280,
        "summary": "Generated report in 137 chunks.",
        "completed_at": "2026-05-13T19:50:00Z",
    },
    "job.error": {
        "code": "CANCELLED",
        "final_status": "cancelled",
        "message": "m",
        "retryable": False,
        "completed_at": "2026-05-13T19:50:00Z",
    },
    "job.subscribed": {
        "request_id": "r1",
        "job_id": "job_1",
        "current_status": "running",
        "agent": "code-refactor@2.0.0",
        "lease": {},
        "lease_constraints": {"expires_at": "2026-05-13T23:42:00Z"},
        "budget": {"USD": 3.58},
        "parent_job_id": None,
        "trace_id": TRACE,
        "subscribed_from": 1830,
        "replayed": False,
        "x-vendor.arcp-trio": {"created_at": "2026-05-13T19:30:00Z", "input": "null"},
    },
}
