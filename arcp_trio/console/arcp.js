/**
 * A client of ARCP 1.1 for browsers, as one module without dependencies; docs/console.md shows how to use it.
 * After a loss it connects again and resumes: no event is missing or comes twice, and calls that wait are repeated.
 */

/** @import { Fields, JobEnd, JobEvent, Json, Options, State, SubmitOptions } from './arcp-types.d.ts' */

const FEATURES = (
	'heartbeat ack list_jobs subscribe lease_expires_at cost.budget model.use progress result_chunk agent_versions ' +
	'x-vendor.arcp-trio.stop x-vendor.arcp-trio.questions x-vendor.arcp-trio.tokens'
).split(' ');
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;
const OPENING_MS = 15_000;
const ACK_MS = 250;
const MOST_GAPS = 3;
/** How many events of a job are kept: those that every iteration has read, and those that one has yet to read. */
const MOST_READ = 10_000;
const MOST_UNREAD = 100_000;
/** The code with which a node closes whose clients are to go elsewhere. */
const ELSEWHERE = 1012;
/** Refusals of a resume that are worth another try. */
const NOT_YET = ['INTERNAL_ERROR', 'PERMISSION_DENIED', 'HEARTBEAT_LOST'];

/** A refusal of the runtime, or the end of a job that has failed (§12). */
export class ArcpError extends Error {
	/** @param {Fields} payload */
	constructor(payload) {
		super(String(payload.message ?? ''));
		this.name = 'ArcpError';
		/** @type {string} */
		this.code = String(payload.code ?? 'INTERNAL_ERROR');
		/** @type {boolean} */
		this.retryable = payload.retryable === true;
		/** @type {Fields} */
		this.details = payload.details ?? {};
	}
}

/**
 * Open a session, or throw the `ArcpError` with which the runtime refuses it. Several addresses, such as those of a
 * cluster's nodes, are tried in turn.
 * @param {string | string[]} url @param {Options} options
 */
export async function connect(url, options = /** @type {any} */ ({})) {
	const client = new Client(url, options);
	await client.opened;
	return client;
}

/** A session with a runtime, over one connection after another; `connect` makes one. */
export class Client {
	/** @type {Options} */
	#options;
	/** The jobs whose streamed results are asked for. @type {Set<string>} */
	#asked = new Set();
	#opened = deferred();
	#closed = deferred();
	/** @type {WebSocket | null} */
	#socket = null;
	/** @type {string | null} */
	#resumeToken = null;
	/** Calls by the ids under which they were sent, and those without an answer. */
	#calls = new Map();
	#waiting = new Set();
	/** What comes of the jobs that go on. @type {Map<string, Stream>} */
	#jobs = new Map();
	/** Jobs that were submitted in this session. */
	#own = new Set();
	/** The ids of answers since the last number: a resume repeats some. */
	#answers = new Set();
	/** @type {string[]} */
	#urls;
	/** How many of the addresses have failed in a row. */
	#failed = 0;
	/** Jobs followed no longer, unless the runtime surely knows. */
	#left = new Set();
	#pause = FIRST_PAUSE_MS;
	#lostAt = Date.now();
	#heardAt = Date.now();
	#ackDue = false;
	#gaps = 0;
	#timers = new Set();

	/** @param {string | string[]} url @param {Options} options */
	constructor(url, options = /** @type {any} */ ({})) {
		if (!options.WebSocket && !globalThis.WebSocket) {
			const advice = 'use Node 22 or later, or give one: connect(url, { token, WebSocket }), from the package ws';
			throw new Error(`there is no WebSocket here: ${advice}`);
		}
		this.#urls = [url].flat();
		/** The address that is used now. */
		this.url = this.#urls[0];
		/** @type {State} */
		this.state = 'connecting';
		/** When the next attempt to connect is made, as of `Date.now()`. @type {number | null} */
		this.retryAt = null;
		/** @type {string | null} */
		this.sessionId = null;
		/** The number of the last event that was handed on. */
		this.lastSeq = 0;
		/** How long the runtime took for its last answer, in milliseconds. @type {number | null} */
		this.lag = null;
		/** What the runtime said in its welcome. @type {Fields} */
		this.welcome = {};
		/** Fulfilled once the session is open. @type {Promise<void>} */
		this.opened = this.#opened.promise;
		/** Fulfilled at the end: with the reason if the session is lost, else with null. @type {Promise<Error | null>} */
		this.closed = this.#closed.promise;
		this.#options = options;
		this.#open();
	}

	/** The agents of the runtime, with their versions. @returns {Fields[]} */
	get agents() {
		return this.welcome.capabilities?.agents ?? [];
	}

	/** The features in effect. @returns {string[]} */
	get features() {
		return this.welcome.capabilities?.features ?? [];
	}

	/** What the inputs of agents must be, in JSON Schema, by `name@version`. @returns {Fields} */
	get inputSchemas() {
		return this.welcome['x-vendor.arcp-trio']?.input_schemas ?? {};
	}

	/** How long the oldest call without an answer has waited for it, in milliseconds. */
	get waited() {
		return Math.max(0, ...Array.from(this.#waiting, (call) => performance.now() - call.begunAt));
	}

	// -- calls

	/**
	 * Submit a job (§7.1) to `name` or `name@version`. After a loss it is repeated under its key, and so starts one job.
	 * @param {string} agent @param {Json} [input] @param {SubmitOptions} [options] @returns {Promise<Job>}
	 */
	async submit(agent, input = null, options = {}) {
		const { budget = {}, expiresAt, idempotencyKey = newId('key_') } = options;
		const amounts = Object.entries(budget).map(([name, most]) => `${name}:${most}`);
		const view = await this.#call('job.submit', {
			agent,
			input,
			idempotency_key: idempotencyKey,
			lease_request: amounts.length ? { ...options.lease, 'cost.budget': amounts } : options.lease,
			lease_constraints: expiresAt && { expires_at: expiresAt },
			max_runtime_sec: options.maxRuntime,
		});
		// Under a key of the program's the job may have ended before.
		return new Job(view, this.#history(view), Boolean(options.idempotencyKey));
	}

	/**
	 * Follow a job (§7.6), with what happened before if `history`.
	 * @param {string} jobId @param {{ history?: boolean }} [options] @returns {Promise<Job>}
	 */
	async subscribe(jobId, { history = false } = {}) {
		const view = await this.#call('job.subscribe', { job_id: jobId, history }, jobId);
		return new Job(view, history ? this.#history(view) : null);
	}

	/** What has a job's events come again. */
	#history({ accepted: { job_id } }) {
		return () => this.#call('job.subscribe', { job_id, history: true }, job_id);
	}

	/** Follow a job no longer: the iterations over it end. @param {string} jobId */
	unsubscribe(jobId) {
		if (!this.#own.has(jobId)) this.#jobs.get(jobId)?.leave();
		this.#jobs.delete(jobId);
		this.#left.add(jobId);
		this.#send('job.unsubscribe', { job_id: jobId });
	}

	/**
	 * One page of the jobs that may be observed, newest first (§6.6).
	 * @param {Fields} [filter] `status` (a list), `agent`, `created_after`, `created_before`
	 * @param {{ cursor?: string | null, limit?: number }} [options]
	 * @returns {Promise<{ jobs: Fields[], cursor: string | null }>}
	 */
	async page(filter = {}, { cursor = null, limit } = {}) {
		const listing = await this.#call('session.list_jobs', { filter, cursor: cursor ?? undefined, limit });
		return { jobs: listing.jobs, cursor: listing.next_cursor ?? null };
	}

	/** All of these jobs, asked for page by page. @param {Fields} [filter] */
	async *jobs(filter = {}) {
		/** @type {string | null} */
		let cursor = null;
		do {
			const page = await this.page(filter, { cursor, limit: 1000 });
			yield* page.jobs;
			cursor = page.cursor;
		} while (cursor);
	}

	/**
	 * End a job of one's own from any session; where the runtime does not offer that, cancel it.
	 * @param {string} jobId @param {string} [reason]
	 */
	async stop(jobId, reason) {
		const kind = this.features.includes('x-vendor.arcp-trio.stop') ? 'x-vendor.arcp-trio.stop' : 'job.cancel';
		await this.#call(kind, { job_id: jobId, reason }, jobId);
	}

	/**
	 * Answer a question of a job; of an approval, the answer is `allow` or `deny`.
	 * @param {string} jobId @param {string} questionId @param {Json} answer
	 * @param {{ scope?: 'once' | 'job', reason?: string }} [options]
	 */
	async answer(jobId, questionId, answer, options = {}) {
		const payload = { job_id: jobId, question_id: questionId, answer, ...options };
		await this.#call('x-vendor.arcp-trio.answer', payload, jobId);
	}

	/**
	 * A token with which jobs, or one job, can be looked at for a short time, and nothing else be done.
	 * @param {number} seconds @param {string} [jobId] @returns {Promise<string>}
	 */
	async tokenFor(seconds, jobId) {
		return (await this.#call('x-vendor.arcp-trio.token', { seconds, job_id: jobId })).token;
	}

	/** Close the session; its jobs go on. */
	close() {
		this.#send('session.close', {});
		this.#end(null);
	}

	/** @returns {Promise<any>} */
	#call(kind, payload, jobId) {
		const call = { kind, payload, jobId, begunAt: performance.now(), ...deferred() };
		if (this.state === 'closed') call.reject(new Error('the session is over'));
		else this.#waiting.add(call);
		if (this.state === 'live') this.#sendCall(call);
		return call.promise;
	}

	#sendCall(call) {
		call.sentAt = performance.now();
		this.#calls.set(this.#send(call.kind, call.payload, call.jobId), call);
	}

	#send(type, payload, jobId) {
		const id = newId('');
		const session_id = type === 'session.hello' ? undefined : (this.sessionId ?? undefined);
		const frame = { arcp: '1.1', id, type, session_id, job_id: jobId, payload };
		if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(frame));
		return id;
	}

	// -- connections

	#open() {
		this.#clearTimers();
		this.url = this.#urls[0];
		const socket = new (this.#options.WebSocket ?? WebSocket)(this.url);
		this.#socket = socket;
		this.#heardAt = Date.now();
		this.#later(OPENING_MS, () => this.#lost());
		socket.onopen = () => this.#hello();
		socket.onmessage = (message) => {
			if (this.#socket === socket) this.#take(JSON.parse(String(message.data)));
		};
		socket.onerror = () => this.#lost(socket);
		socket.onclose = ({ code }) => this.#lost(socket, code);
	}

	#hello() {
		const resume = { session_id: this.sessionId, resume_token: this.#resumeToken, last_event_seq: this.lastSeq };
		this.#send('session.hello', {
			client: { name: this.#options.name ?? 'arcp.js', version: '1' },
			auth: { scheme: 'bearer', token: this.#options.token },
			capabilities: { encodings: ['json'], features: FEATURES },
			resume: this.#resumeToken ? resume : undefined,
		});
	}

	#drop() {
		this.#clearTimers();
		const socket = this.#socket;
		this.#socket = null; // before, as some implementations tell at once that it is closed
		socket?.close();
	}

	#lost(socket = this.#socket, code = 0) {
		if (this.#socket !== socket || this.state === 'closed') return;
		this.#drop();
		const urls = this.#urls;
		if (this.state === 'live') this.#lostAt = Date.now();
		if (this.state !== 'live' || code === ELSEWHERE) {
			urls.push(/** @type {string} */ (urls.shift()));
			this.#failed += 1;
		}
		const more = this.#failed % urls.length > 0;
		if (this.state === 'connecting')
			return more ? this.#open() : this.#end(new Error(`no connection to ${urls.join(', ')}`));
		const window = 1000 * (this.welcome.resume_window_sec ?? 60);
		if (Date.now() > this.#lostAt + window) {
			return this.#end(new ArcpError({ code: 'RESUME_WINDOW_EXPIRED', message: 'lost for too long' }));
		}
		const pause = more ? 0 : this.#pause * (0.5 + Math.random() / 2);
		if (!more) this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
		this.#change('reconnecting', Date.now() + pause);
		this.#later(pause, () => this.#open());
	}

	/** Try to connect at once, as when the network is back. */
	retry() {
		if (this.state === 'reconnecting' && !this.#socket) this.#open();
	}

	#end(why) {
		if (this.state === 'closed') return;
		this.#drop();
		const error = why ?? new Error('the session was closed');
		for (const call of this.#waiting) call.reject(error);
		this.#waiting.clear();
		this.#calls.clear();
		for (const stream of this.#jobs.values()) stream.lose(error);
		this.#opened.reject(error);
		this.#change('closed', null);
		this.#closed.resolve(why);
	}

	#change(state, retryAt) {
		this.state = state;
		this.retryAt = retryAt;
		this.#options.onstate?.(state, retryAt);
	}

	#welcomed(frame) {
		const sessionId = frame.session_id ?? frame.payload.session_id;
		if (this.#resumeToken && sessionId !== this.sessionId) {
			return this.#end(new ArcpError({ code: 'RESUME_WINDOW_EXPIRED', message: 'another session' }));
		}
		this.welcome = frame.payload;
		this.sessionId = sessionId;
		this.#resumeToken = frame.payload.resume_token ?? this.#resumeToken;
		this.#pause = FIRST_PAUSE_MS;
		this.#failed = 0;
		this.#clearTimers();
		this.#change('live', null);
		for (const jobId of this.#left) this.#send('job.unsubscribe', { job_id: jobId });
		for (const call of this.#waiting) this.#sendCall(call);
		const interval = 1000 * (frame.payload.heartbeat_interval_sec ?? 0);
		if (interval) this.#watch(interval);
		this.#opened.resolve(null);
	}

	/** Take a connection on which nothing is heard for one that is lost. */
	#watch(interval) {
		this.#later(interval, () => {
			if (Date.now() - this.#heardAt > 2.5 * interval) this.#lost();
			else this.#watch(interval);
		});
	}

	#later(ms, act) {
		const timer = setTimeout(() => {
			this.#timers.delete(timer);
			act();
		}, ms);
		this.#timers.add(timer);
	}

	#clearTimers() {
		for (const timer of this.#timers) clearTimeout(timer);
		this.#timers.clear();
		this.#ackDue = false;
	}

	// -- frames

	#take(frame) {
		this.#heardAt = Date.now();
		const payload = frame.payload ?? {};
		if (typeof frame.event_seq === 'number' && !this.#counts(frame.event_seq)) return;
		switch (frame.type) {
			case 'session.welcome':
				return this.#welcomed(frame);
			case 'session.ping':
				return this.#send('session.pong', { ping_nonce: payload.nonce, received_at: new Date().toISOString() });
			case 'session.error':
				return this.#refused(payload);
			case 'job.accepted':
			case 'job.subscribed':
				if (this.#answers.has(frame.id)) return;
				this.#answers.add(frame.id);
				return this.#settle(payload.request_id, this.#begin(frame.type, payload));
			case 'job.cancelled':
				for (const call of this.#waiting) {
					const meant = call.kind === 'job.cancel' && call.jobId === (frame.job_id ?? payload.job_id);
					if (meant) this.#done(call).resolve();
				}
				return;
			case 'job.event':
				return this.#event(frame);
			case 'job.result':
			case 'job.error':
				return this.#terminal(frame);
			case 'session.closed':
			case 'session.bye':
				return this.#end(null);
			default:
				if (payload.request_id) this.#settle(payload.request_id, payload);
		}
	}

	/** Whether a number is the next one. After a gap the session is resumed. */
	#counts(seq) {
		if (seq <= this.lastSeq) return false;
		if (seq > this.lastSeq + 1) {
			this.#gaps += 1;
			if (this.#gaps > MOST_GAPS) this.#end(new Error(`events after ${this.lastSeq} are missing`));
			else this.#lost();
			return false;
		}
		this.#gaps = 0;
		this.#answers.clear();
		this.lastSeq = seq;
		if (!this.#ackDue && this.features.includes('ack')) {
			this.#ackDue = true;
			this.#later(ACK_MS, () => {
				this.#ackDue = false;
				this.#send('session.ack', { last_processed_seq: this.lastSeq });
			});
		}
		return true;
	}

	#refused(payload) {
		const error = new ArcpError(payload);
		if (this.state !== 'live') {
			const again = this.state === 'reconnecting' && NOT_YET.includes(error.code);
			return again ? this.#lost() : this.#end(error);
		}
		const call = this.#calls.get(payload.request_id);
		const stream = this.#jobs.get(payload.job_id);
		if (call) this.#done(call).reject(error);
		else if (stream) {
			stream.lose(error);
			this.#jobs.delete(payload.job_id);
		} else if (error.code === 'UNAUTHENTICATED') this.#end(error);
	}

	#settle(requestId, value) {
		const call = this.#calls.get(requestId);
		if (call) this.#done(call).resolve(value);
	}

	#done(call) {
		this.lag = performance.now() - call.sentAt;
		this.#waiting.delete(call);
		for (const [id, known] of this.#calls) if (known === call) this.#calls.delete(id);
		return call;
	}

	/** Take the answer to a submit or a subscription; return what its caller sees of the job. */
	#begin(type, payload) {
		const { job_id: id, current_status: status = 'pending', replayed = false, subscribed_from: until = 0 } = payload;
		const [call, known] = [this.#calls.get(payload.request_id), this.#jobs.get(id)];
		const submitted = type === 'job.accepted';
		const whole = submitted || call?.payload.history === true;
		this.#left.delete(id);
		const stream = known ?? new Stream(this.#options.onevent === undefined, whole);
		if (replayed || ['pending', 'running'].includes(status)) this.#jobs.set(id, stream);
		else if (!known) stream.lose(new Error(`the job had ended: ${status}`));
		let [start, generation] = [0, 0];
		if (known && !submitted) {
			if (replayed) stream.repeat(Math.max(1, until - this.lastSeq), Boolean(call));
			[start, generation] = [stream.end, stream.generation];
		} else if (known && call && !this.#own.has(id)) {
			// The events come from the first one on, also those that have come before.
			stream.repeat(Infinity, !stream.whole);
			[start, generation] = [stream.end, stream.generation];
		}
		if (submitted) this.#own.add(id);
		return { stream, accepted: payload, start, generation };
	}

	#event(frame) {
		const { kind, body, ts } = frame.payload;
		const event = { jobId: frame.job_id, seq: frame.event_seq, kind, body, ts };
		const stream = this.#jobs.get(frame.job_id);
		if (!stream || stream.add(event, frame.id)) this.#options.onevent?.(event);
	}

	#terminal(frame) {
		const { payload } = frame;
		const stream = this.#jobs.get(frame.job_id);
		this.#jobs.delete(frame.job_id);
		/** @type {JobEnd} */
		const end = {
			jobId: frame.job_id,
			seq: frame.event_seq,
			kind: 'end',
			status: payload.final_status ?? (frame.type === 'job.result' ? 'success' : 'error'),
			ts: payload.completed_at,
		};
		if (frame.type === 'job.error') end.error = new ArcpError(payload);
		else end.result = payload.result_id ? this.#streamed(stream, payload.result_id, frame.job_id) : payload.result;
		stream?.finish(end);
		this.#options.onevent?.(end);
	}

	/** A streamed result. If its chunks came before this session came to the job, they are asked for. */
	#streamed(stream, resultId, jobId) {
		if (!stream || stream.chunks.has(resultId)) return stream?.chunks.whole(resultId);
		if (this.#asked.has(jobId)) return Promise.reject(new Error('the chunks of the result are no longer stored'));
		this.#asked.add(jobId);
		return this.subscribe(jobId, { history: true })
			.then((job) => job.result)
			.finally(() => this.#asked.delete(jobId));
	}
}

/** A job of the session: iterate over it for its events, and await `result`. */
export class Job {
	/** What it sees of the job: its events from a place on. */
	#view;
	#again;
	#doubtful;

	/** @internal @param {any} view @param {any} again @param {boolean} [doubtful] */
	constructor(view, again, doubtful = false) {
		const { accepted, stream } = view;
		/** @type {string} */
		this.id = accepted.job_id;
		/** `name@version` @type {string} */
		this.agent = accepted.agent;
		/** What it may do, by capability. @type {Fields} */
		this.lease = accepted.lease ?? {};
		/** All that the runtime said when it was accepted, or subscribed to. @type {Fields} */
		this.accepted = accepted;
		/** Its result; rejected with an `ArcpError` if it fails. @type {Promise<any>} */
		this.result = stream.result;
		this.#view = view;
		this.#again = again;
		this.#doubtful = doubtful;
	}

	/** Each iteration gets every event; the runtime sends again what is no longer kept. @returns {AsyncGenerator<JobEvent, void, void>} */
	async *[Symbol.asyncIterator]() {
		let { stream, start, generation } = this.#view;
		if (!stream.keeps) throw new Error('onevent gets the events, so that jobs cannot be iterated over');
		let cursor = stream.read(start);
		let asked = false;
		try {
			for (;;) {
				const event = stream.next(cursor, generation);
				const missed = !event && cursor.place < stream.base;
				if (event) yield event;
				else if (missed || (stream.over && this.#doubtful && !stream.end)) {
					this.#doubtful = false;
					if (asked || cursor.place > start) throw new Error('too many events were not read in time');
					if (!this.#again) throw new Error('the events are no longer kept: subscribe with history');
					asked = true;
					this.#view = await this.#again();
					stream.cursors.delete(cursor);
					({ stream, start, generation } = this.#view);
					cursor = stream.read(start);
				} else if (stream.error) throw stream.error;
				else if (stream.over) return;
				else await stream.news.promise;
			}
		} finally {
			stream.cursors.delete(cursor);
		}
	}
}

/** What comes of one job, for its handles and their iterations: a log of events, in which each has its own place. */
class Stream {
	/** The kept events, each with the oldest generation of views that sees it. @type {{ event: JobEvent, from: number }[]} */
	#events = [];
	/** What the runtime sends again: until which id, how many at most, and whom it is for. @type {any[]} */
	#repeats = [];
	/** The id of the last event since the last repeat began. @type {string | null} */
	#lastId = null;
	#furthest = 0;
	#end = deferred();
	/** The place of the oldest kept event. */
	base = 0;
	generation = 0;
	/** @type {Set<{ place: number }>} */
	cursors = new Set();
	over = false;
	/** @type {Error | null} */
	error = null;
	news = deferred();
	chunks = new Chunks();

	/** @param {boolean} keeps whether events are kept for iterations @param {boolean} whole whether it has the first one */
	constructor(keeps, whole) {
		this.keeps = keeps;
		this.whole = whole;
		this.result = this.#end.promise;
	}

	/** The place after the last event. */
	get end() {
		return this.base + this.#events.length;
	}

	/** Begin an iteration at a place. @param {number} place */
	read(place) {
		const cursor = { place };
		this.cursors.add(cursor);
		return cursor;
	}

	/** The next event that a view of this generation sees. */
	next(cursor, generation) {
		while (cursor.place >= this.base && cursor.place < this.end) {
			const { event, from } = this.#events[cursor.place - this.base];
			cursor.place += 1;
			this.#furthest = Math.max(this.#furthest, cursor.place);
			if (from <= generation) return event;
		}
		return null;
	}

	/** Take an event; return whether `onevent` gets it. @param {JobEvent} event @param {string} id */
	add(event, id) {
		// That the client is behind is told to this session alone, and does not come again.
		const isNotice = event.kind === 'status' && event.body?.phase === 'back_pressure';
		const repeat = isNotice ? null : this.#repeats.at(-1);
		if (repeat) {
			repeat.left -= 1;
			if (id === repeat.lastId || repeat.left <= 0) this.#repeats.pop();
		}
		if (!isNotice) this.#lastId = id;
		if (event.kind === 'result_chunk' && (!repeat || repeat.builds)) this.chunks.add(event.body);
		if (this.keeps) {
			this.#events.push({ event, from: repeat ? repeat.generation + 1 : 0 });
			if (this.#events.length > MOST_READ) this.#forget();
			this.#wake();
		}
		return !repeat || repeat.told;
	}

	/** Up to `most` events come again, for the views from now on: the others do not see them. */
	repeat(most, told) {
		const builds = told && !this.whole;
		if (builds) {
			this.chunks = new Chunks();
			this.whole = true;
		}
		this.#repeats.push({ generation: this.generation, lastId: this.#lastId, left: most, told, builds });
		this.generation += 1;
		this.#lastId = null;
	}

	/** Forget what every iteration has read, or if that is little and there is too much, the older half. */
	#forget() {
		const reached = this.cursors.size ? Math.min(...Array.from(this.cursors, (each) => each.place)) : this.#furthest;
		const [read, kept] = [reached - this.base, this.#events.length];
		const gone = read > MOST_READ / 2 ? read : kept > MOST_UNREAD ? kept / 2 : 0;
		this.base += Math.floor(gone);
		this.#events.splice(0, Math.floor(gone));
	}

	/** @param {JobEnd} end */
	finish(end) {
		this.over = true;
		if (end.error) this.#end.reject(end.error);
		else this.#end.resolve(end.result);
		this.#wake();
	}

	/** @param {Error} error */
	lose(error) {
		this.error ??= error;
		this.#end.reject(error);
		this.#wake();
	}

	leave() {
		this.over = true;
		this.#end.reject(new Error('the job is followed no longer'));
		this.#wake();
	}

	#wake() {
		this.news.resolve(null);
		this.news = deferred();
	}
}

/** Puts streamed results together (§8.4): text, or bytes if they come in base64. */
class Chunks {
	/** By the ids of results. */
	#parts = new Map();

	add({ result_id, encoding, data }) {
		const part = encoding === 'base64' ? Uint8Array.from(atob(data), (each) => each.charCodeAt(0)) : data;
		const parts = this.#parts.get(result_id);
		if (parts) parts.push(part);
		else this.#parts.set(result_id, [part]);
	}

	/** @param {string} resultId */
	has(resultId) {
		return this.#parts.has(resultId);
	}

	whole(resultId) {
		const parts = this.#parts.get(resultId) ?? [];
		if (!(parts[0] instanceof Uint8Array)) return parts.join('');
		const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
		let place = 0;
		for (const part of parts) {
			joined.set(part, place);
			place += part.length;
		}
		return joined;
	}
}

/** A promise that is settled from outside. @returns {{ promise: Promise<any>, resolve: any, reject: any }} */
function deferred() {
	/** @type {any} */
	const made = {};
	made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
	made.promise.catch(() => {});
	return made;
}

function newId(prefix) {
	const bytes = crypto.getRandomValues(new Uint8Array(16));
	return prefix + Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
