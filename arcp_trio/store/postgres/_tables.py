"""The tables of version 1, but for the triggers."""

from __future__ import annotations

import re
from typing import Final

# Every row has one node that writes it, and `node` says which where that can change.
#
# - node: one start of one runtime. Its number is never used again, so it is also the epoch: a node
#   that is `gone` writes nothing more. `committed` is the number of its last group. It begins with
#   a random one, so that a node that a failover has made forgotten is not taken for another one.
# - beat: apart from `node`, so that a beat does not wait for a group, nor a group for a beat. When
#   the last one came, version 2 adds.
# - command: what the node `asker` asks of `node`. `number` counts what the asker has asked.
# - signing: the key with which all nodes sign short-lived tokens.
# - schema: `oldest_writer` is the oldest version of this program's tables that may still write.
_NODES: Final = (
    """CREATE TABLE schema (
        one boolean PRIMARY KEY CHECK (one),
        version int NOT NULL,
        oldest_writer int NOT NULL
    )""",
    """CREATE TABLE node (
        node bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL,
        state text NOT NULL DEFAULT 'up' CHECK (state IN ('up', 'draining', 'gone')),
        committed bigint NOT NULL DEFAULT floor(random() * 1e15),
        ordinal bigint NOT NULL DEFAULT 0,
        version text NOT NULL,
        at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 10)""",
    "CREATE UNIQUE INDEX node_name ON node (name) WHERE state <> 'gone'",
    """CREATE TABLE beat (
        node bigint PRIMARY KEY,
        beats bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 10)""",
    """CREATE TABLE signing (
        one boolean PRIMARY KEY CHECK (one),
        key bytea NOT NULL
    )""",
    """CREATE TABLE follow (
        jid bigint NOT NULL,
        node bigint NOT NULL,
        PRIMARY KEY (jid, node)
    )""",
    "CREATE INDEX follow_of_node ON follow (node)",
    """CREATE TABLE command (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        node bigint NOT NULL,
        asker bigint NOT NULL,
        number bigint NOT NULL,
        kind text NOT NULL,
        about text NOT NULL,
        body bytea NOT NULL,
        answer bytea,
        at timestamptz NOT NULL DEFAULT now()
    )""",
    "CREATE INDEX command_open ON command (node, id) WHERE answer IS NULL",
    "CREATE UNIQUE INDEX command_of_asker ON command (asker, number)",
)

# - session: parked if `node` is NULL. `moves` is how often a node has taken it, and `closes` is how
#   often its client has closed it.
# - watch, token: they go with their session. A job's acceptance begins watches for the sessions
#   that watch its parent, wherever these are.
# - log: which numbers of a session went to which entries, packed, a batch in each row.
_SESSIONS: Final = (
    """CREATE TABLE session (
        sid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session_id text NOT NULL UNIQUE,
        principal text NOT NULL,
        features text NOT NULL,
        dialect text NOT NULL,
        top bigint NOT NULL,
        floor bigint NOT NULL,
        rows bigint NOT NULL,
        acked boolean NOT NULL,
        log_bytes bigint NOT NULL,
        closes bigint NOT NULL DEFAULT 0,
        moves bigint NOT NULL DEFAULT 0,
        node bigint,
        parked_until timestamptz
    ) WITH (fillfactor = 50)""",
    "CREATE INDEX session_of_node ON session (node) WHERE node IS NOT NULL",
    "CREATE INDEX session_parked ON session (parked_until) WHERE node IS NULL",
    "CREATE INDEX session_of_principal ON session (principal)",
    """CREATE TABLE token (
        digest bytea PRIMARY KEY,
        sid bigint NOT NULL REFERENCES session ON DELETE CASCADE,
        place int NOT NULL
    )""",
    "CREATE INDEX token_of_session ON token (sid, place)",
    """CREATE TABLE watch (
        sid bigint NOT NULL REFERENCES session ON DELETE CASCADE,
        jid bigint NOT NULL,
        cursor bigint NOT NULL,
        last_seq bigint NOT NULL,
        observed boolean NOT NULL,
        PRIMARY KEY (sid, jid)
    ) WITH (fillfactor = 50)""",
    "CREATE INDEX watch_of_job ON watch (jid)",
    """CREATE TABLE log (
        sid bigint NOT NULL,
        last_place bigint NOT NULL,
        row bigint NOT NULL,
        items bytea NOT NULL,
        PRIMARY KEY (sid, last_place, row)
    )""",
    "CREATE TABLE log_waste (sid bigint PRIMARY KEY, below bigint NOT NULL)",
)

# - job: one past its retention is `expired`, and visible only to watches that are owed its end. A
#   durable job whose `node` is NULL waits for a node that has its agent, since `waits_since`.
#   `kept_by` is the parent that may be called again and ask for the job, whose retention begins
#   when it becomes NULL.
# - submitter: `told` once the log of the session has the acceptance. A session that was lost before
#   that is told when it comes back. `closes` are those of the session before it submitted the job:
#   if it was closed since, the job is no longer its own.
# - last_number: the last number that a job's first session gave to its entries. It is kept here
#   from the end of the session's watch on; before that, the watch has it.
# - journal: a job's entries, packed, a batch in each row.
# - journal_waste, log_waste: rows of these two are deleted in the background.
# - numbering: the numbers that a job's first session gave to its entries, moved here from the
#   batches of the log that are deleted.
# - memo: an index has no room for a long key, so it has 128 bits of hashes.
# - said: indexes and digests, packed, of deleted entries that a durable job is not to say again.
_JOBS: Final = (
    """CREATE TABLE job (
        jid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        job_id text NOT NULL UNIQUE,
        agent text NOT NULL,
        principal text NOT NULL,
        session_id text NOT NULL,
        sid bigint,
        parent_jid bigint,
        trace_id text NOT NULL,
        accepted bytea NOT NULL,
        request_id text,
        created_at float8 NOT NULL,
        status text NOT NULL,
        started_at float8,
        finished_at float8,
        terminal_ordinal bigint,
        cancelled text,
        stopped_by text,
        budget bytea,
        error bytea,
        spent bytea,
        last_event text,
        questions bytea,
        length bigint NOT NULL,
        base bigint NOT NULL DEFAULT 0,
        expired boolean NOT NULL DEFAULT false,
        kept_by text,
        node bigint,
        waits_since timestamptz
    ) WITH (fillfactor = 70)""",
    """CREATE INDEX job_of_principal ON job (principal, created_at, job_id) WHERE NOT expired""",
    """CREATE INDEX job_of_agent ON job (principal, agent, status, created_at, job_id)
       WHERE NOT expired""",
    "CREATE INDEX job_of_anyone ON job (created_at, job_id, status, agent) WHERE NOT expired",
    "CREATE INDEX job_unfinished ON job (node) WHERE finished_at IS NULL",
    "CREATE INDEX job_of_session ON job (sid)",
    "CREATE INDEX job_of_parent ON job (parent_jid) WHERE parent_jid IS NOT NULL",
    """CREATE INDEX job_finished ON job (principal, finished_at, terminal_ordinal)
       WHERE finished_at IS NOT NULL AND NOT expired AND kept_by IS NULL""",
    "CREATE INDEX job_expired ON job (jid) WHERE expired",
    "CREATE INDEX job_kept ON job (kept_by) WHERE kept_by IS NOT NULL",
    """CREATE VIEW retained AS SELECT jid, job_id, base FROM job WHERE NOT expired
       OR EXISTS (SELECT 1 FROM watch WHERE watch.jid = job.jid)""",
    """CREATE TABLE submitter (
        jid bigint NOT NULL,
        session_id text NOT NULL,
        told boolean NOT NULL,
        closes bigint NOT NULL,
        PRIMARY KEY (jid, session_id)
    )""",
    "CREATE INDEX submitter_untold ON submitter (session_id) WHERE NOT told",
    "CREATE TABLE last_number (jid bigint PRIMARY KEY, seq bigint NOT NULL)",
    """CREATE TABLE journal (
        jid bigint NOT NULL,
        last_index bigint NOT NULL,
        first_index bigint NOT NULL,
        first_ordinal bigint NOT NULL,
        entries bytea NOT NULL,
        PRIMARY KEY (jid, last_index)
    )""",
    "CREATE TABLE journal_waste (jid bigint PRIMARY KEY, below bigint NOT NULL)",
    """CREATE TABLE numbering (
        jid bigint NOT NULL,
        first_seq bigint NOT NULL,
        index_behind bigint NOT NULL,
        runs bytea NOT NULL,
        PRIMARY KEY (jid, first_seq)
    )""",
    """CREATE TABLE durable (
        jid bigint PRIMARY KEY,
        input bytea NOT NULL,
        max_runtime float8,
        sends_chunks boolean NOT NULL,
        wants_credentials boolean NOT NULL,
        forget boolean NOT NULL,
        run int NOT NULL,
        fruitless_runs int NOT NULL,
        spent bytea
    )""",
    """CREATE TABLE memo (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        jid bigint NOT NULL,
        key text NOT NULL,
        kind text NOT NULL,
        first_index bigint NOT NULL,
        value bytea NOT NULL
    )""",
    """CREATE UNIQUE INDEX memo_of_job ON memo
        (jid, hashtextextended(key, 0), hashtextextended(key, 1))""",
    """CREATE TABLE said (
        jid bigint NOT NULL,
        last_index bigint NOT NULL,
        digests bytea NOT NULL,
        PRIMARY KEY (jid, last_index)
    )""",
)

# - key: `due` is when an expiry looks at it; NULL once it has expired while its job is retained. It
#   is only claimed, by `node`, while `accepted` is NULL.
# - credential: provisioned ones that are not revoked, without their values.
# - share: what each principal has, as each node has booked it, so that no node waits for another.
#   The sum counts. Housekeeping books on node 0.
_REST: Final = (
    """CREATE TABLE key (
        principal text NOT NULL,
        key text NOT NULL,
        fingerprint bytea NOT NULL,
        job_id text NOT NULL,
        accepted bytea,
        expires_at float8 NOT NULL,
        due float8,
        node bigint,
        PRIMARY KEY (principal, key)
    )""",
    "CREATE INDEX key_due ON key (due) WHERE due IS NOT NULL",
    "CREATE INDEX key_of_job ON key (job_id)",
    """CREATE TABLE credential (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        row_id text NOT NULL UNIQUE,
        order_id text NOT NULL,
        job_id text NOT NULL,
        principal text NOT NULL,
        state text NOT NULL,
        handle text,
        credential_id text,
        node bigint NOT NULL
    )""",
    "CREATE INDEX credential_of_node ON credential (node)",
    """CREATE TABLE share (
        principal text NOT NULL,
        node bigint NOT NULL,
        finished_jobs bigint NOT NULL,
        stored_bytes bigint NOT NULL,
        PRIMARY KEY (principal, node)
    ) WITH (fillfactor = 50)""",
)

# Texts are compared and ordered by their bytes, whatever the locale of the database is: so their
# order is that of the other engines, and no new version of a system's locales breaks an index.
TABLES: Final = tuple(
    re.sub(r"\btext\b", 'text COLLATE "C"', statement)
    for statement in (*_NODES, *_SESSIONS, *_JOBS, *_REST)
)
