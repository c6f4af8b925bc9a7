/**
 * Open a session; the promise is rejected with an `ArcpError` if the runtime refuses it.
 * @param {string} url such as `ws://127.0.0.1:7777/arcp`
 * @param {Options} options
 * @returns {Promise<Client>}
 */
export function connect(url: string, options: Options): Promise<Client>;
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
    /** @param {string} url @param {Options} options */
    constructor(url: string, options: Options);
    url: string;
    /** @type {State} */
    state: State;
    /** When the next attempt to connect is made, as of `Date.now()`. @type {number | null} */
    retryAt: number | null;
    /** @type {string | null} */
    sessionId: string | null;
    /** The number of the last event that was handed on. */
    lastSeq: number;
    /** What the runtime said in its welcome. @type {Fields} */
    welcome: Fields;
    /** Fulfilled once the session is open. @type {Promise<void>} */
    opened: Promise<void>;
    /** Fulfilled at the end: with the reason if the session is lost, with null if it was closed.
     * @type {Promise<Error | null>} */
    closed: Promise<Error | null>;
    /** The agents of the runtime, with their versions. @returns {Fields[]} */
    get agents(): Fields[];
    /** The features in effect. @returns {string[]} */
    get features(): string[];
    /** What the inputs of agents must be, in JSON Schema, by `name@version`. @returns {Fields} */
    get inputSchemas(): Fields;
    /**
     * Submit a job (§7.1). It is repeated under its key after a loss, so that it starts one job.
     * @param {string} agent `name` or `name@version`
     * @param {Json} [input]
     * @param {SubmitOptions} [options]
     * @returns {Promise<Job>}
     */
    submit(agent: string, input?: Json, options?: SubmitOptions): Promise<Job>;
    /**
     * Follow a job that was submitted elsewhere (§7.6), with what happened before if `history`.
     * @param {string} jobId
     * @param {{ history?: boolean }} [options]
     * @returns {Promise<Job>}
     */
    subscribe(jobId: string, { history }?: {
        history?: boolean;
    }): Promise<Job>;
    /** Follow a job no longer. @param {string} jobId */
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
     * @param {string} jobId
     * @param {string} [reason]
     */
    stop(jobId: string, reason?: string): Promise<void>;
    /**
     * Answer a question of a job; of an approval, the answer is `allow` or `deny`.
     * @param {string} jobId
     * @param {string} questionId
     * @param {Json} answer
     * @param {{ scope?: 'once' | 'job', reason?: string }} [options]
     */
    answer(jobId: string, questionId: string, answer: Json, options?: {
        scope?: "once" | "job";
        reason?: string;
    }): Promise<void>;
    /**
     * A token with which jobs can be looked at for a short time, and nothing else be done.
     * @param {number} seconds
     * @param {string} [jobId] the one job that can be looked at
     * @returns {Promise<string>}
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
    /** @param {Fields} accepted @param {boolean} keeps whether its events are kept until they are iterated over */
    constructor(accepted: Fields, keeps: boolean);
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
    /** @internal */
    _chunks: Chunks;
    /**
     * @internal
     * @param {JobEvent} event
     */
    _add(event: JobEvent): void;
    /**
     * @internal
     * @param {JobEnd} end
     */
    _finish(end: JobEnd): void;
    /**
     * @internal
     * @param {Error} error
     */
    _lose(error: Error): void;
    /** @returns {AsyncGenerator<JobEvent, void, void>} */
    [Symbol.asyncIterator](): AsyncGenerator<JobEvent, void, void>;
    #private;
}
export type Call = {
    kind: string;
    payload: Fields;
    jobId: string | null;
    resolve: (value: any) => void;
    reject: (error: Error) => void;
};
export type Json = null | boolean | number | string | any[] | {
    [name: string]: any;
};
export type Fields = {
    [name: string]: any;
};
/**
 * An event of a job (§8). `seq` is its number in this session.
 */
export type JobEvent = {
    jobId: string;
    seq: number;
    kind: string;
    body: any;
    ts: string | undefined;
};
export type State = "connecting" | "live" | "reconnecting" | "closed";
export type Options = {
    /**
     * the bearer token that authenticates the client
     */
    token: string;
    /**
     * what the client calls itself
     */
    name?: string;
    /**
     * gets the events and ends of all jobs, one
     * after the other, in order; jobs are not iterated then
     */
    onevent?: (event: JobEvent | JobEnd) => void;
    /**
     * is told when the connection is
     * lost, and when the session goes on; `retryAt` is the time of the next attempt, as of `Date.now()`
     */
    onstate?: (state: State, retryAt: number | null) => void;
    /**
     * another implementation than the global one
     */
    WebSocket?: new (url: string) => WebSocket;
};
export type SubmitOptions = {
    /**
     * what the job may do
     */
    lease?: {
        [capability: string]: string[];
    };
    /**
     * what it may spend
     */
    budget?: {
        [currency: string]: string;
    };
    /**
     * when the lease ends, in RFC 3339, in UTC
     */
    expiresAt?: string;
    /**
     * submitting again under the same key gives the same job
     */
    idempotencyKey?: string;
    /**
     * seconds after which the job ends, timed out
     */
    maxRuntime?: number;
};
/**
 * The end of a job. `error` is absent if it has succeeded.
 */
export type JobEnd = {
    jobId: string;
    seq: number;
    kind: "end";
    status: string;
    result?: any;
    error?: ArcpError;
    ts: string | undefined;
};
/** Puts streamed results together (§8.4): text, or bytes if they come in base64. */
declare class Chunks {
    /** @type {Map<string, { texts: string[], bytes: Uint8Array[] }>} */
    _results: Map<string, {
        texts: string[];
        bytes: Uint8Array[];
    }>;
    /** @param {Fields} body */
    add(body: Fields): void;
    /** @param {string} resultId */
    whole(resultId: string): string | Uint8Array<ArrayBuffer>;
}
export {};
