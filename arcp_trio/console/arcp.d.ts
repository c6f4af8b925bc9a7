/**
 * Open a session, or throw the `ArcpError` with which the runtime refuses it. Several addresses, such as those of a
 * cluster's nodes, are tried in turn.
 * @param {string | string[]} url @param {Options} options
 */
export function connect(url: string | string[], options?: Options): Promise<Client>;
/** A refusal of the runtime, or the end of a job that has failed (§12). */
export class ArcpError extends Error {
    /** @param {Fields} payload */
    constructor(payload: Fields);
    /** @type {string} */
    code: string;
    /** @type {boolean} */
    retryable: boolean;
    /** @type {Fields} */
    details: Fields;
}
/** A session with a runtime, over one connection after another; `connect` makes one. */
export class Client {
    /** @param {string | string[]} url @param {Options} options */
    constructor(url: string | string[], options?: Options);
    /** The address that is used now. */
    url: string;
    /** @type {State} */
    state: State;
    /** When the next attempt to connect is made, as of `Date.now()`. @type {number | null} */
    retryAt: number | null;
    /** @type {string | null} */
    sessionId: string | null;
    /** The number of the last event that was handed on. */
    lastSeq: number;
    /** How long the runtime took for its last answer, in milliseconds. @type {number | null} */
    lag: number | null;
    /** What the runtime said in its welcome. @type {Fields} */
    welcome: Fields;
    /** Fulfilled once the session is open. @type {Promise<void>} */
    opened: Promise<void>;
    /** Fulfilled at the end: with the reason if the session is lost, else with null. @type {Promise<Error | null>} */
    closed: Promise<Error | null>;
    /** The agents of the runtime, with their versions. @returns {Fields[]} */
    get agents(): Fields[];
    /** The features in effect. @returns {string[]} */
    get features(): string[];
    /** What the inputs of agents must be, in JSON Schema, by `name@version`. @returns {Fields} */
    get inputSchemas(): Fields;
    /** How long the oldest call without an answer has waited for it, in milliseconds. */
    get waited(): number;
    /**
     * Submit a job (§7.1) to `name` or `name@version`. After a loss it is repeated under its key, and so starts one job.
     * @param {string} agent @param {Json} [input] @param {SubmitOptions} [options] @returns {Promise<Job>}
     */
    submit(agent: string, input?: Json, options?: SubmitOptions): Promise<Job>;
    /**
     * Follow a job (§7.6), with what happened before if `history`.
     * @param {string} jobId @param {{ history?: boolean }} [options] @returns {Promise<Job>}
     */
    subscribe(jobId: string, { history }?: {
        history?: boolean;
    }): Promise<Job>;
    /** Follow a job no longer: the iterations over it end. @param {string} jobId */
    unsubscribe(jobId: string): void;
    /**
     * One page of the jobs that may be observed, newest first (§6.6).
     * @param {Fields} [filter] `status` (a list), `agent`, `created_after`, `created_before`
     * @param {{ cursor?: string | null, limit?: number }} [options]
     * @returns {Promise<{ jobs: Fields[], cursor: string | null }>}
     */
    page(filter?: Fields, { cursor, limit }?: {
        cursor?: string | null;
        limit?: number;
    }): Promise<{
        jobs: Fields[];
        cursor: string | null;
    }>;
    /** All of these jobs, asked for page by page. @param {Fields} [filter] */
    jobs(filter?: Fields): AsyncGenerator<Fields, void, unknown>;
    /**
     * End a job of one's own from any session; where the runtime does not offer that, cancel it.
     * @param {string} jobId @param {string} [reason]
     */
    stop(jobId: string, reason?: string): Promise<void>;
    /**
     * Answer a question of a job; of an approval, the answer is `allow` or `deny`.
     * @param {string} jobId @param {string} questionId @param {Json} answer
     * @param {{ scope?: 'once' | 'job', reason?: string }} [options]
     */
    answer(jobId: string, questionId: string, answer: Json, options?: {
        scope?: "once" | "job";
        reason?: string;
    }): Promise<void>;
    /**
     * A token with which jobs, or one job, can be looked at for a short time, and nothing else be done.
     * @param {number} seconds @param {string} [jobId] @returns {Promise<string>}
     */
    tokenFor(seconds: number, jobId?: string): Promise<string>;
    /** Close the session; its jobs go on. */
    close(): void;
    /** Try to connect at once, as when the network is back. */
    retry(): void;
    #private;
}
/** A job of the session: iterate over it for its events, and await `result`. */
export class Job {
    /** @internal @param {any} view @param {any} again @param {boolean} [doubtful] */
    constructor(view: any, again: any, doubtful?: boolean);
    /** @type {string} */
    id: string;
    /** `name@version` @type {string} */
    agent: string;
    /** What it may do, by capability. @type {Fields} */
    lease: Fields;
    /** All that the runtime said when it was accepted, or subscribed to. @type {Fields} */
    accepted: Fields;
    /** Its result; rejected with an `ArcpError` if it fails. @type {Promise<any>} */
    result: Promise<any>;
    /** Each iteration gets every event; the runtime sends again what is no longer kept. @returns {AsyncGenerator<JobEvent, void, void>} */
    [Symbol.asyncIterator](): AsyncGenerator<JobEvent, void, void>;
    #private;
}
import type { Options } from './arcp-types.d.ts';
import type { Fields } from './arcp-types.d.ts';
import type { State } from './arcp-types.d.ts';
import type { Json } from './arcp-types.d.ts';
import type { SubmitOptions } from './arcp-types.d.ts';
import type { JobEvent } from './arcp-types.d.ts';
