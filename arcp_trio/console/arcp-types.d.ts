/** What programs give to arcp.js, and get from it; no browser loads this file. */

export type Json = null | boolean | number | string | any[] | { [name: string]: any };
export type Fields = { [name: string]: any };
export type State = 'connecting' | 'live' | 'reconnecting' | 'closed';

export interface Options {
	/** The bearer token that authenticates the client. */
	token: string;
	/** What the client calls itself. */
	name?: string;
	/** Gets the events and ends of all jobs, one after the other, in order; jobs are not iterated then. */
	onevent?: (event: JobEvent | JobEnd) => void;
	/**
	 * Is told when the connection is lost, and when the session goes on; `retryAt` is the time of the next attempt, as
	 * of `Date.now()`.
	 */
	onstate?: (state: State, retryAt: number | null) => void;
	/** Another implementation than the global one, or one where there is none, as in Node before 22: of the package `ws`. */
	WebSocket?: new (url: string) => WebSocket;
}

export interface SubmitOptions {
	/** What the job may do. */
	lease?: { [capability: string]: string[] };
	/** What it may spend. */
	budget?: { [currency: string]: string };
	/** When the lease ends, in RFC 3339, in UTC. */
	expiresAt?: string;
	/** Submitting again under the same key gives the same job. */
	idempotencyKey?: string;
	/** Seconds after which the job ends, timed out. */
	maxRuntime?: number;
}

/** An event of a job (§8). */
export interface JobEvent {
	jobId: string;
	/** Its number in this session. */
	seq: number;
	kind: string;
	body: any;
	ts: string | undefined;
}

/** The end of a job. */
export interface JobEnd {
	jobId: string;
	seq: number;
	kind: 'end';
	status: string;
	result?: any;
	/** Absent if the job has succeeded. */
	error?: Error & { code: string; retryable: boolean; details: Fields };
	ts: string | undefined;
}
