/**
 * A client of ARCP 1.1 for browsers, as one module without dependencies.
 *
 *     import { connect } from './arcp.js';
 *
 *     const client = await connect('ws://127.0.0.1:7777/arcp', { token });
 *     const job = await client.submit('countdown', { n: 3 });
 *     for await (const event of job) console.log(event.kind, event.body);
 *     console.log(await job.result);
 *
 * When the connection is lost, the client opens another one and resumes the session: no event is
 * missing, none comes twice, and calls that wait for their answers are repeated.
 */

/** @typedef {null | boolean | number | string | any[] | { [name: string]: any }} Json */
/** @typedef {{ [name: string]: any }} Fields */
/**
 * An event of a job (§8). `seq` is its number in this session.
 * @typedef {{ jobId: string, seq: number, kind: string, body: any, ts: string | undefined }} JobEvent
 */
/** @typedef {'connecting' | 'live' | 'reconnecting' | 'closed'} State */
/**
 * @typedef {object} Options
 * @property {string} token the bearer token that authenticates the client
 * @property {string} [name] what the client calls itself
 * @property {(event: JobEvent | JobEnd) => void} [onevent] gets the events and ends of all jobs, one
 *   after the other, in order; jobs are not iterated then
 * @property {(state: State, retryAt: number | null) => void} [onstate] is told when the connection is
 *   lost, and when the session goes on; `retryAt` is the time of the next attempt, as of `Date.now()`
 * @property {new (url: string) => WebSocket} [WebSocket] another implementation than the global one
 */
/**
 * @typedef {object} SubmitOptions
 * @property {{ [capability: string]: string[] }} [lease] what the job may do
 * @property {{ [currency: string]: string }} [budget] what it may spend
 * @property {string} [expiresAt] when the lease ends, in RFC 3339, in UTC
 * @property {string} [idempotencyKey] submitting again under the same key gives the same job
 * @property {number} [maxRuntime] seconds after which the job ends, timed out
 */
/**
 * The end of a job. `error` is absent if it has succeeded.
 * @typedef {{ jobId: string, seq: number, kind: 'end', status: string, result?: any,
 *   error?: ArcpError, ts: string | undefined }} JobEnd
 */

const FEATURES = [
	'heartbeat',
	'ack',
	'list_jobs',
	'subscribe',
	'lease_expires_at',
	'cost.budget',
	'model.use',
	'progress',
	'result_chunk',
	'agent_versions',
	'x-vendor.arcp-trio.stop',
	'x-vendor.arcp-trio.questions',
	'x-vendor.arcp-trio.tokens',
];
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

/**
 * Open a session; the promise is rejected with an `ArcpError` if the runtime refuses it.
 * @param {string} url such as `ws://127.0.0.1:7777/arcp`
 * @param {Options} options
 * @returns {Promise<Client>}
 */
export async function connect(url, options) {
	const client = new Client(url, options);
	await client.opened;
	return client;
}

/** A session with a runtime, over one connection after another; `connect` makes one. */
export class Client {
	/** @type {Options} */
	#options;
	/** @type {{ resolve: () => void, reject: (error: Error) => void } | undefined} */
	#opened;
	/** @type {((why: Error | null) => void) | undefined} */
	#closed;
	/** @type {WebSocket | null} */
	#socket = null;
	/** @type {string | null} */
	#resumeToken = null;
	/** By the ids under which each was sent. @type {Map<string, Call>} */
	#calls = new Map();
	/** @type {Set<Call>} */
	#waiting = new Set();
	/** @type {Map<string, Job>} */
	#jobs = new Map();
	#pause = FIRST_PAUSE_MS;
	#lostAt = Date.now();
	#heardAt = Date.now();
	#acked = 0;
	#ackDue = false;
	#gaps = 0;
	/** @type {Set<ReturnType<typeof setTimeout>>} */
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
		/** What the runtime said in its welcome. @type {Fields} */
		this.welcome = {};
		/** Fulfilled once the session is open. @type {Promise<void>} */
		this.opened = new Promise((resolve, reject) => {
			this.#opened = { resolve, reject };
		});
		this.opened.catch(() => {});
		/** Fulfilled at the end: with the reason if the session is lost, with null if it was closed.
		 * @type {Promise<Error | null>} */
		this.closed = new Promise((resolve) => {
			this.#closed = resolve;
		});
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

	// -- calls

	/**
	 * Submit a job (§7.1). It is repeated under its key after a loss, so that it starts one job.
	 * @param {string} agent `name` or `name@version`
	 * @param {Json} [input]
	 * @param {SubmitOptions} [options]
	 * @returns {Promise<Job>}
	 */
	async submit(agent, input = null, options = {}) {
		/** @type {Fields} */
		const payload = { agent, input, idempotency_key: options.idempotencyKey ?? newId('key_') };
		const budget = Object.entries(options.budget ?? {}).map(([name, most]) => `${name}:${most}`);
		const lease = { ...options.lease, ...(budget.length ? { 'cost.budget': budget } : {}) };
		if (Object.keys(lease).length) payload.lease_request = lease;
		if (options.expiresAt) payload.lease_constraints = { expires_at: options.expiresAt };
		if (options.maxRuntime) payload.max_runtime_sec = options.maxRuntime;
		return this.#call('job.submit', payload);
	}

	/**
	 * Follow a job that was submitted elsewhere (§7.6), with what happened before if `history`.
	 * @param {string} jobId
	 * @param {{ history?: boolean }} [options]
	 * @returns {Promise<Job>}
	 */
	async subscribe(jobId, { history = false } = {}) {
		return this.#call('job.subscribe', { job_id: jobId, history }, jobId);
	}

	/** Follow a job no longer. @param {string} jobId */
	unsubscribe(jobId) {
		this.#jobs.delete(jobId);
		this.#send('job.unsubscribe', { job_id: jobId });
	}

	/**
	 * One page of the jobs that may be observed, newest first (§6.6).
	 * @param {Fields} [filter] `status` (a list), `agent`, `created_after`, `created_before`
	 * @param {{ cursor?: string | null, limit?: number }} [options]
	 * @returns {Promise<{ jobs: Fields[], cursor: string | null }>}
	 */
	async page(filter = {}, { cursor = null, limit } = {}) {
		const payload = { filter, ...(cursor ? { cursor } : {}), ...(limit ? { limit } : {}) };
		const listing = await this.#call('session.list_jobs', payload);
		return { jobs: listing.jobs, cursor: listing.next_cursor ?? null };
	}

	/** All of these jobs, asked for page by page. @param {Fields} [filter] */
	async *jobs(filter = {}) {
		/** @type {string | null} */
		let cursor = null;
		do {
			const page = await this.page(filter, { cursor });
			yield* page.jobs;
			cursor = page.cursor;
		} while (cursor);
	}

	/**
	 * End a job of one's own from any session; where the runtime does not offer that, cancel it.
	 * @param {string} jobId
	 * @param {string} [reason]
	 */
	async stop(jobId, reason) {
		const kind = this.features.includes('x-vendor.arcp-trio.stop') ? 'x-vendor.arcp-trio.stop' : 'job.cancel';
		await this.#call(kind, { job_id: jobId, ...(reason ? { reason } : {}) }, jobId);
	}

	/**
	 * Answer a question of a job; of an approval, the answer is `allow` or `deny`.
	 * @param {string} jobId
	 * @param {string} questionId
	 * @param {Json} answer
	 * @param {{ scope?: 'once' | 'job', reason?: string }} [options]
	 */
	async answer(jobId, questionId, answer, options = {}) {
		const payload = { job_id: jobId, question_id: questionId, answer, ...options };
		await this.#call('x-vendor.arcp-trio.answer', payload, jobId);
	}

	/**
	 * A token with which jobs can be looked at for a short time, and nothing else be done.
	 * @param {number} seconds
	 * @param {string} [jobId] the one job that can be looked at
	 * @returns {Promise<string>}
	 */
	async tokenFor(seconds, jobId) {
		const payload = { seconds, ...(jobId ? { job_id: jobId } : {}) };
		return (await this.#call('x-vendor.arcp-trio.token', payload)).token;
	}

	/** Close the session; its jobs go on. */
	close() {
		this.#send('session.close', {});
		this.#end(null);
	}

	/** @param {string} kind @param {Fields} payload @param {string | null} [jobId] @returns {Promise<any>} */
	#call(kind, payload, jobId = null) {
		return new Promise((resolve, reject) => {
			if (this.state === 'closed') return reject(new Error('the session is over'));
			const call = { kind, payload, jobId, resolve, reject };
			this.#waiting.add(call);
			if (this.state === 'live') this.#sendCall(call);
		});
	}

	/** @param {Call} call */
	#sendCall(call) {
		this.#calls.set(this.#send(call.kind, call.payload, call.jobId), call);
	}

	/** @param {string} kind @param {Fields} payload @param {string | null} [jobId] */
	#send(kind, payload, jobId = null) {
		const id = newId('');
		/** @type {Fields} */
		const frame = { arcp: '1.1', id, type: kind };
		if (this.sessionId && kind !== 'session.hello') frame.session_id = this.sessionId;
		if (jobId) frame.job_id = jobId;
		frame.payload = payload;
		if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(frame));
		return id;
	}

	// -- connections

	#open() {
		this.#clearTimers();
		const Socket = this.#options.WebSocket ?? WebSocket;
		const socket = new Socket(this.url);
		this.#socket = socket;
		this.#heardAt = Date.now();
		this.#later(OPENING_MS, () => this.state !== 'live' && this.#lost(socket));
		socket.onopen = () => this.#hello();
		socket.onmessage = (message) => {
			if (this.#socket === socket) this.#take(JSON.parse(String(message.data)));
		};
		socket.onclose = () => this.#lost(socket);
		socket.onerror = () => this.#lost(socket);
	}

	#hello() {
		/** @type {Fields} */
		const payload = {
			client: { name: this.#options.name ?? 'arcp.js', version: '1' },
			auth: { scheme: 'bearer', token: this.#options.token },
			capabilities: { encodings: ['json'], features: FEATURES },
		};
		if (this.#resumeToken) {
			payload.resume = {
				session_id: this.sessionId,
				resume_token: this.#resumeToken,
				last_event_seq: this.lastSeq,
			};
		}
		this.#send('session.hello', payload);
	}

	#drop() {
		this.#clearTimers();
		const socket = this.#socket;
		this.#socket = null;
		if (!socket) return;
		socket.onclose = socket.onerror = socket.onmessage = null;
		socket.close();
	}

	/** @param {WebSocket} socket */
	#lost(socket) {
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

	/** @param {Error | null} why */
	#end(why) {
		if (this.state === 'closed') return;
		this.#drop();
		const error = why ?? new Error('the session was closed');
		for (const call of this.#waiting) call.reject(error);
		this.#waiting.clear();
		this.#calls.clear();
		for (const job of this.#jobs.values()) job._lose(error);
		this.#opened?.reject(error);
		this.#change('closed', null);
		this.#closed?.(why);
	}

	/** @param {State} state @param {number | null} retryAt */
	#change(state, retryAt) {
		this.state = state;
		this.retryAt = retryAt;
		this.#options.onstate?.(state, retryAt);
	}

	/** @param {Fields} frame */
	#welcomed(frame) {
		const resumed = this.#resumeToken !== null;
		const sessionId = frame.session_id ?? frame.payload.session_id;
		if (resumed && sessionId !== this.sessionId) {
			return this.#end(new ArcpError({ code: 'RESUME_WINDOW_EXPIRED', message: 'another session' }));
		}
		this.welcome = frame.payload;
		this.sessionId = sessionId;
		this.#resumeToken = frame.payload.resume_token ?? this.#resumeToken;
		this.#pause = FIRST_PAUSE_MS;
		this.#clearTimers();
		this.#change('live', null);
		for (const call of this.#waiting) this.#sendCall(call);
		const interval = 1000 * (frame.payload.heartbeat_interval_sec ?? 0);
		if (interval) this.#watch(interval);
		this.#opened?.resolve();
	}

	/** Take a connection on which nothing is heard for one that is lost. @param {number} interval */
	#watch(interval) {
		this.#later(interval, () => {
			const socket = this.#socket;
			if (socket && Date.now() - this.#heardAt > 2.5 * interval) this.#lost(socket);
			else this.#watch(interval);
		});
	}

	/** @param {number} ms @param {() => unknown} act */
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

	/** @param {Fields} frame */
	#take(frame) {
		this.#heardAt = Date.now();
		const payload = frame.payload ?? {};
		if (typeof frame.event_seq === 'number' && !this.#counts(frame.event_seq)) return;
		switch (frame.type) {
			case 'session.welcome':
				return this.#welcomed(frame);
			case 'session.ping':
				this.#send('session.pong', { ping_nonce: payload.nonce, received_at: new Date().toISOString() });
				return;
			case 'session.error':
				return this.#refused(payload);
			case 'job.accepted':
			case 'job.subscribed':
				return this.#settle(payload.request_id, this.#begin(payload));
			case 'job.cancelled':
				for (const call of this.#waiting) {
					if (call.kind === 'job.cancel' && call.jobId === (frame.job_id ?? payload.job_id)) {
						this.#done(call).resolve(undefined);
					}
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

	/** Whether a number is the next one. After a gap the session is resumed. @param {number} seq */
	#counts(seq) {
		if (seq <= this.lastSeq) return false;
		if (seq > this.lastSeq + 1) {
			this.#gaps += 1;
			if (this.#gaps > MOST_GAPS) this.#end(new Error(`events after ${this.lastSeq} are missing`));
			else if (this.#socket) this.#lost(this.#socket);
			return false;
		}
		this.#gaps = 0;
		this.lastSeq = seq;
		if (!this.#ackDue && this.features.includes('ack')) {
			this.#ackDue = true;
			this.#later(ACK_MS, () => this.#acknowledge());
		}
		return true;
	}

	#acknowledge() {
		this.#ackDue = false;
		if (this.lastSeq > this.#acked) {
			this.#acked = this.lastSeq;
			this.#send('session.ack', { last_processed_seq: this.lastSeq });
		}
	}

	/** @param {Fields} payload */
	#refused(payload) {
		const error = new ArcpError(payload);
		if (this.state !== 'live') {
			const again = this.state === 'reconnecting' && NOT_YET.includes(error.code);
			if (again && this.#socket) this.#lost(this.#socket);
			else this.#end(error);
			return;
		}
		const call = this.#calls.get(payload.request_id);
		if (call) this.#done(call).reject(error);
		else if (payload.job_id && this.#jobs.has(payload.job_id)) {
			this.#jobs.get(payload.job_id)?._lose(error);
			this.#jobs.delete(payload.job_id);
		} else if (error.code === 'UNAUTHENTICATED') this.#end(error);
	}

	/** @param {string | undefined} requestId @param {any} value */
	#settle(requestId, value) {
		const call = this.#calls.get(requestId ?? '');
		if (call) this.#done(call).resolve(value);
	}

	/** @param {Call} call */
	#done(call) {
		this.#waiting.delete(call);
		for (const [id, known] of this.#calls) if (known === call) this.#calls.delete(id);
		return call;
	}

	/** @param {Fields} payload */
	#begin(payload) {
		const known = this.#jobs.get(payload.job_id);
		const job = known ?? new Job(payload, this.#options.onevent === undefined);
		const ended = ['success', 'error', 'cancelled', 'timed_out'].includes(payload.current_status);
		if (!known && !(ended && !payload.replayed)) this.#jobs.set(job.id, job);
		if (!known && ended && !payload.replayed) job._lose(new Error(`the job had ended: ${payload.current_status}`));
		return job;
	}

	/** @param {Fields} frame */
	#event(frame) {
		const { kind, body, ts } = frame.payload;
		const event = { jobId: frame.job_id, seq: frame.event_seq, kind, body, ts };
		this.#jobs.get(frame.job_id)?._add(event);
		this.#options.onevent?.(event);
	}

	/** @param {Fields} frame */
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
	/** @type {(() => void)[]} */
	#readers = [];
	/** @type {{ resolve: (value: any) => void, reject: (error: Error) => void } | undefined} */
	#end;

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
		this.result = new Promise((resolve, reject) => {
			this.#end = { resolve, reject };
		});
		this.result.catch(() => {});
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
			else await new Promise((resolve) => this.#readers.push(() => resolve(undefined)));
		}
	}

	/**
	 * @internal
	 * @param {JobEvent} event
	 */
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

	/**
	 * @internal
	 * @param {JobEnd} end
	 */
	_finish(end) {
		this.#over = true;
		if (end.error) this.#end?.reject(end.error);
		else this.#end?.resolve(end.result);
		this.#wake();
	}

	/**
	 * @internal
	 * @param {Error} error
	 */
	_lose(error) {
		this.#error ??= error;
		this.#end?.reject(error);
		this.#wake();
	}

	#wake() {
		for (const wake of this.#readers.splice(0)) wake();
	}
}

/** Puts streamed results together (§8.4): text, or bytes if they come in base64. */
class Chunks {
	constructor() {
		/** @type {Map<string, { texts: string[], bytes: Uint8Array[] }>} */
		this._results = new Map();
	}

	/** @param {Fields} body */
	add(body) {
		const parts = this._results.get(body.result_id) ?? { texts: [], bytes: [] };
		this._results.set(body.result_id, parts);
		if (body.encoding === 'base64') {
			parts.bytes.push(Uint8Array.from(atob(body.data), (each) => each.charCodeAt(0)));
		} else parts.texts.push(body.data);
	}

	/** @param {string} resultId */
	whole(resultId) {
		const { texts, bytes } = this._results.get(resultId) ?? { texts: [], bytes: [] };
		if (!bytes.length) return texts.join('');
		const joined = new Uint8Array(bytes.reduce((size, part) => size + part.length, 0));
		let place = 0;
		for (const part of bytes) {
			joined.set(part, place);
			place += part.length;
		}
		return joined;
	}
}

/**
 * @typedef {{ kind: string, payload: Fields, jobId: string | null, resolve: (value: any) => void,
 *   reject: (error: Error) => void }} Call
 */

/** @param {string} prefix */
function newId(prefix) {
	const bytes = crypto.getRandomValues(new Uint8Array(16));
	return prefix + Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
