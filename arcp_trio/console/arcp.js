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
/** Events of one job that nobody has iterated over. */
const MOST_UNREAD = 100_000;
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

/** Open a session, or throw the `ArcpError` with which the runtime refuses it. @param {string} url @param {Options} options */
export async function connect(url, options) {
	const client = new Client(url, options);
	await client.opened;
	return client;
}

/** A session with a runtime, over one connection after another; `connect` makes one. */
export class Client {
	/** @type {Options} */
	#options;
	#opened = deferred();
	#closed = deferred();
	/** @type {WebSocket | null} */
	#socket = null;
	/** @type {string | null} */
	#resumeToken = null;
	/** Calls by the ids under which they were sent, and those without an answer. */
	#calls = new Map();
	#waiting = new Set();
	#jobs = new Map();
	/** Jobs followed no longer, unless the runtime surely knows. */
	#left = new Set();
	#pause = FIRST_PAUSE_MS;
	#lostAt = Date.now();
	#heardAt = Date.now();
	#ackDue = false;
	#gaps = 0;
	#timers = new Set();

	/** @param {string} url @param {Options} options */
	constructor(url, options) {
		this.url = url;
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
		return this.#call('job.submit', {
			agent,
			input,
			idempotency_key: idempotencyKey,
			lease_request: amounts.length ? { ...options.lease, 'cost.budget': amounts } : options.lease,
			lease_constraints: expiresAt && { expires_at: expiresAt },
			max_runtime_sec: options.maxRuntime,
		});
	}

	/**
	 * Follow a job that was submitted elsewhere (§7.6), with what happened before if `history`.
	 * @param {string} jobId @param {{ history?: boolean }} [options] @returns {Promise<Job>}
	 */
	async subscribe(jobId, { history = false } = {}) {
		return this.#call('job.subscribe', { job_id: jobId, history }, jobId);
	}

	/** Follow a job no longer. @param {string} jobId */
	unsubscribe(jobId) {
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
		const socket = new (this.#options.WebSocket ?? WebSocket)(this.url);
		this.#socket = socket;
		this.#heardAt = Date.now();
		this.#later(OPENING_MS, () => this.#lost());
		socket.onopen = () => this.#hello();
		socket.onmessage = (message) => {
			if (this.#socket === socket) this.#take(JSON.parse(String(message.data)));
		};
		socket.onclose = socket.onerror = () => this.#lost(socket);
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
		this.#socket?.close();
		this.#socket = null;
	}

	#lost(socket = this.#socket) {
		if (this.#socket !== socket || this.state === 'closed') return;
		this.#drop();
		if (this.state === 'connecting') return this.#end(new Error(`no connection to ${this.url}`));
		if (this.state === 'live') this.#lostAt = Date.now();
		const window = 1000 * (this.welcome.resume_window_sec ?? 60);
		if (Date.now() > this.#lostAt + window) {
			return this.#end(new ArcpError({ code: 'RESUME_WINDOW_EXPIRED', message: 'lost for too long' }));
		}
		const pause = this.#pause * (0.5 + Math.random() / 2);
		this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE_MS);
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
		for (const job of this.#jobs.values()) job._lose(error);
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
				return this.#settle(payload.request_id, this.#begin(payload));
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
		const job = this.#jobs.get(payload.job_id);
		if (call) this.#done(call).reject(error);
		else if (job) {
			job._lose(error);
			this.#jobs.delete(job.id);
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

	#begin(payload) {
		this.#left.delete(payload.job_id);
		const known = this.#jobs.get(payload.job_id);
		const job = known ?? new Job(payload, this.#options.onevent === undefined);
		const { current_status: status = 'pending', replayed } = payload;
		if (replayed || ['pending', 'running'].includes(status)) this.#jobs.set(job.id, job);
		else if (!known) job._lose(new Error(`the job had ended: ${status}`));
		return job;
	}

	#event(frame) {
		const { kind, body, ts } = frame.payload;
		const event = { jobId: frame.job_id, seq: frame.event_seq, kind, body, ts };
		this.#jobs.get(frame.job_id)?._add(event);
		this.#options.onevent?.(event);
	}

	#terminal(frame) {
		const { payload } = frame;
		const job = this.#jobs.get(frame.job_id);
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
		else end.result = payload.result_id ? job?._chunks.whole(payload.result_id) : payload.result;
		job?._finish(end);
		this.#options.onevent?.(end);
	}
}

/** A job of the session: iterate over it for its events, and await `result`. */
export class Job {
	#keeps;
	/** @type {JobEvent[]} */
	#unread = [];
	/** How many of them were read. */
	#read = 0;
	#over = false;
	/** @type {Error | null} */
	#error = null;
	#news = deferred();
	#end = deferred();

	/** @param {Fields} accepted @param {boolean} keeps whether its events are kept until they are iterated over */
	constructor(accepted, keeps) {
		/** @type {string} */
		this.id = accepted.job_id;
		/** `name@version` @type {string} */
		this.agent = accepted.agent;
		/** What it may do, by capability. @type {Fields} */
		this.lease = accepted.lease ?? {};
		/** All that the runtime said when it was accepted, or subscribed to. @type {Fields} */
		this.accepted = accepted;
		/** Its result; rejected with an `ArcpError` if it fails. @type {Promise<any>} */
		this.result = this.#end.promise;
		this.#keeps = keeps;
		/** @internal */
		this._chunks = new Chunks();
	}

	/** @returns {AsyncGenerator<JobEvent, void, void>} */
	async *[Symbol.asyncIterator]() {
		for (;;) {
			const event = this.#unread[this.#read];
			if (event) {
				this.#read += 1;
				yield event;
			} else if (this.#read) {
				this.#unread = [];
				this.#read = 0;
			} else if (this.#error) throw this.#error;
			else if (this.#over) return;
			else await this.#news.promise;
		}
	}

	/** @internal @param {JobEvent} event */
	_add(event) {
		if (event.kind === 'result_chunk') this._chunks.add(event.body);
		if (!this.#keeps || this.#error) return;
		this.#unread.push(event);
		if (this.#unread.length - this.#read > MOST_UNREAD) {
			this.#unread = [];
			this.#read = 0;
			this.#error = new Error('too many events were not read');
		}
		this.#wake();
	}

	/** @internal @param {JobEnd} end */
	_finish(end) {
		this.#over = true;
		if (end.error) this.#end.reject(end.error);
		else this.#end.resolve(end.result);
		this.#wake();
	}

	/** @internal @param {Error} error */
	_lose(error) {
		this.#error ??= error;
		this.#end.reject(error);
		this.#wake();
	}

	#wake() {
		this.#news.resolve(null);
		this.#news = deferred();
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
