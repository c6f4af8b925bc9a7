"""Sessions: what outlives a connection, from a client's requests to its numbered events.

```
 Conversation ─ commands ─▶ Inbox ─▶ Clerk ─┬─▶ jobs
                                            └─ answers, promises ─┐
 Journal ─ hints ─▶ Watch ─────────────────────────────────────┐  │
                                                               ▼  ▼
                                          Outbox: the memory channel ◀─ stored groups ─ writer
                                                     │
                                            Scribe, its one consumer
                                             │ Batch: numbers      ▲
                                             ▼                     │ once the group is stored
                                     the store's queue         Publisher ─▶ Unsent ─▶ Sender
```

**Objects.** `Sessions` is the table: a session is awake, with a task of its own, or parked, as a
row. A `Session` has a `Record` (numbers, floor, resume tokens), an `Inbox`, an `Outbox`, and a
`Watch` for each job that it is owed events of. The `Clerk` executes commands in their order, and
`Submissions` those that may take long. The `Scribe` receives what is in the outbox and fills a
`Batch`, which takes the numbers; the `Publisher` has it stored, and hands its frames on when the
group comes back. An `Attachment` is what the session shares with its connection.

**A watch is a cursor.** History, live events, overflow, absence and restart are one case: the
cursor is behind the journal. A hint at the cursor is numbered, one below is skipped, and one above
has the scribe read the journals, all of them in the order of emission.

**Invariants.**

- *One task takes a session's numbers, at one place.* No ``await`` stands between taking numbers and
  putting the log row into the store's queue. The task can be cancelled at any checkpoint
  (`tests/ordering/test_one_consumer.py`).
- *Nothing is sent that is not stored.* The store's writer knows no session: it sends a stored group
  to the channels that asked for it.
- *A promise comes before what it leads to, and a terminal is last.* Whatever concerns the order of
  a client's frames is an item of the one channel, and keeps its place.
- *A session fails alone.* Its client is closed with 1011, and resumes.
- *All of it is bounded.* Hints past `outbox_items` are dropped, as the journal has the events; the
  clerk takes no command while as many answers wait; a client that does not read costs what `Unsent`
  may hold, and an absent one costs a row.
"""
