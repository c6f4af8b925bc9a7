/** One job: its head, its timeline with a slider through time, its money, and the jobs below it. */

import {
	ask,
	button,
	duration,
	h,
	isPressed,
	money,
	put,
	renew,
	say,
	setProgress,
	shownJson,
	stateWord,
	time,
	VENDOR,
	visible,
} from './dom.js';
import { Money } from './money.js';
import { makeTimeline } from './timeline.js';

const REFRESH_MS = 2000;
const HEAD_MS = 200;
const BUDGET = 'cost.budget';
const MOST_BELOW = 5000;
const ALIVE = ['pending', 'running', 'waiting'];

/** @param {Place} place @param {string} id */
export async function showJob(place, id) {
	const { client, main } = place;
	let [gone, delegates] = [false, false];
	let drawn = 0;
	/** The listing's entry. @type {any} */
	let entry = {};
	/** The answer to the subscription. @type {any} */
	let said = {};

	const timeline = makeTimeline(place, id, onevent);
	const purse = new Money();
	const head = h('dl');
	const bar = h('progress', { 'aria-label': 'Progress', hidden: true });
	const tree = h('section', { 'aria-label': 'Delegated jobs', hidden: true });
	const cancel = button('Cancel job', stop);
	const result = h('section', { 'aria-label': 'Result', hidden: true });
	const save = () => attempt('The events were not received', download);
	const copies = [button('Run again', again), button('Copy as command', copy), button('Download events', save)];
	// What they take along is known with the answer to the subscription.
	const buttons = h('div', { class: 'buttons', hidden: true }, cancel, ...copies);
	const [note, stale] = [1, 2].map(() => h('p', { role: 'alert', hidden: true }));
	const budget = h('section', { 'aria-label': 'Budget' }, purse.element);
	document.title = `${id} · arcp-trio`;
	put(main, h('h1', id), head, bar, buttons, note, stale, result, budget, tree, timeline.element);

	place.onevent = (event) => event.jobId === id && timeline.take(event);
	place.backlog = timeline.backlog;
	const timer = setInterval(refresh, REFRESH_MS);
	const tick = () => isPressed() || drawHead();
	const ticking = setInterval(tick, 1000);
	place.leave = () => {
		gone = true;
		clearInterval(timer);
		clearInterval(ticking);
		timeline.leave();
	};
	try {
		said = await timeline.load();
	} catch (error) {
		if (gone) return;
		const words = 'There is no such job. It may have been deleted after its time, or belong to somebody else.';
		timeline.leave();
		put(
			main,
			h('h1', id),
			h('p', { role: 'alert' }, error.code === 'JOB_NOT_FOUND' ? words : `The job cannot be shown: ${error.message}.`),
		);
		return;
	}
	refresh();
	drawHead();

	function onevent(event) {
		if (event?.kind === 'metric') purse.add(event, timeline.total());
		if (event?.kind === 'delegate') delegates = true;
		if (event?.kind === 'end') refresh();
		if (!event || event.kind === 'end' || performance.now() > drawn + HEAD_MS) tick();
	}

	function extras() {
		return said[VENDOR] ?? {};
	}

	// -- the head

	function drawHead() {
		if (gone || !said.agent) return;
		drawn = performance.now();
		buttons.hidden = false;
		const [travels, { end, progress, ts }, count] = [timeline.travels(), timeline.story(), timeline.count()];
		const brief = entry[VENDOR] ?? {};
		const known = travels ? 'running' : waits(entry) ? 'waiting' : (entry.status ?? said.current_status);
		const state = end?.status ?? known;
		const over = !ALIVE.includes(state);
		document.title = `${waits(entry) && !over ? '(1) ' : ''}${id} · arcp-trio`;
		bar.hidden = !progress;
		if (progress) setProgress(bar, progress);
		purse.show(brief.budget ?? {}, count);
		const spent = travels ? purse.spent(count) : brief.spent;
		cancel.hidden = over || travels || Boolean(document.querySelector('dialog[open]'));
		const began = brief.started_at ?? entry.created_at;
		const until = travels ? ts : (end?.ts ?? (over ? brief.finished_at : null));
		const error = end?.error ?? (travels ? null : brief.error);
		const facts = [
			['State', stateWord(state)],
			['Agent', said.agent],
			['Principal', brief.principal],
			['Node', brief.node],
			['Started', began && time(began)],
			['Ended', over && until && time(until)],
			['Took', began && duration((until ? Date.parse(until) : Date.now()) - Date.parse(began))],
			['Money', money(brief.budget, spent)],
			['Lease', inWords(said, brief.budget, spent)],
			['Trace', said.trace_id],
			['Parent', said.parent_job_id && link(said.parent_job_id)],
		].flatMap(([name, value]) => (value ? [h('div', h('dt', name), h('dd', value))] : []));
		renew(head, ...facts);
		result.hidden = !end && !error;
		const whole = end?.result instanceof Uint8Array ? `${end.result.length} bytes` : shownJson(end?.result);
		const text = error ? `${error.code}: ${error.message}` : whole;
		renew(result, h('h2', error ? 'Error' : 'Result'), h('pre', { tabindex: '0' }, text));
	}

	/** Fetch what the listing tells of the job, and of those below it. */
	async function refresh() {
		if (gone || !said.agent || client.state !== 'live') return;
		try {
			entry = (await look(client, id, extras().created_at)) ?? entry;
			if (delegates) await showTree();
			say(stale, '');
		} catch (error) {
			if (client.state === 'live') say(stale, `What is shown here may be old: ${error.message}.`);
		}
		tick();
	}

	async function showTree() {
		const near = [];
		const created_after = beside(extras().created_at, -1);
		for await (const each of client.jobs({ created_after })) {
			if (near.push(each) === MOST_BELOW) break;
		}
		if (isPressed()) return;
		const below = byParent(near);
		tree.hidden = !below.has(id);
		const list = (parent) => h('ul', ...(below.get(parent) ?? []).map(item));
		const item = (each) => {
			const { job_id, status, agent } = each;
			const state = stateWord(waits(each) ? 'waiting' : status);
			return h('li', state, ' ', link(job_id), ` ${agent}`, below.has(job_id) && list(job_id));
		};
		renew(tree, h('h2', 'Delegated jobs'), list(id));
	}

	// -- buttons

	async function stop() {
		const answer = ask('Cancel this job?', 'Its agent is asked to stop.', 'Cancel job', 'Let it run');
		drawHead();
		const sure = await answer;
		drawHead();
		if (sure) attempt('It was not cancelled', () => client.stop(id, 'cancelled in the console'));
	}

	async function attempt(failure, act) {
		try {
			await act();
			say(note, '');
		} catch (error) {
			say(note, `${failure}: ${error.message}.`);
		}
	}

	function again() {
		const { agent, lease } = said;
		sessionStorage.setItem('arcp-again', JSON.stringify({ id, agent, input: given(), lease }));
		location.hash = '#/new';
	}

	/** The job's input as JSON, if it was submitted in this tab or the runtime tells it. */
	function given() {
		return sessionStorage.getItem(`arcp-input-${id}`) ?? extras().input ?? null;
	}

	function copy() {
		const input = given();
		const words = command(said.agent, input, said.lease);
		navigator.clipboard?.writeText(words).catch(() => {}); // they can be copied from the page, too
		say(note, words + (input ? '' : '  (without the input, which the runtime does not tell)'));
	}

	async function download() {
		const href = URL.createObjectURL(new Blob(await journal(), { type: 'application/jsonl' }));
		h('a', { href, download: `${id}.jsonl` }).click();
		setTimeout(() => URL.revokeObjectURL(href), 10_000);
	}

	/** All events until now, as lines of JSON; the page may have a part of them only. */
	async function journal() {
		const lines = [];
		let enough = () => {};
		const add = ({ jobId: job_id, size, error, ...rest }) => {
			lines.push(`${JSON.stringify({ job_id, ...rest, error: error?.message })}\n`);
			enough();
		};
		await place.elsewhere(async (other) => {
			const { accepted } = await other.subscribe(id, { history: true });
			await new Promise((resolve, reject) => {
				other.closed.then(() => reject(new Error('the session is over')));
				enough = () => lines.length < accepted.subscribed_from || resolve(null);
				enough();
			});
		}, add);
		return lines;
	}
}

/** The listing's entry of a job, which is not told alone. @param {import('./arcp.js').Client} client */
export async function look(client, id, createdAt) {
	const wanted = { created_after: beside(createdAt, -1), created_before: beside(createdAt, 1) };
	for await (const each of client.jobs(wanted)) if (each.job_id === id) return each;
	return null;
}

/** Whether a job of the listing waits for a person. */
export function waits(entry) {
	return Boolean(entry[`${VENDOR}.waiting`]);
}

/** Listings leave out the very time. */
function beside(time, ms) {
	return new Date(Date.parse(time) + ms).toISOString();
}

/** Jobs, the newest first, by their parents, the oldest first. */
export function byParent(jobs) {
	const found = new Map();
	for (const each of jobs) found.set(each.parent_job_id, [each, ...(found.get(each.parent_job_id) ?? [])]);
	return found;
}

function link(id) {
	return h('a', { href: `#/jobs/${id}` }, id);
}

/** A word as a shell reads it back. What cannot be seen, or changes a terminal, is written by its bytes. */
function quoted(word) {
	if (/^[\w@.:/-][\w@.:/=-]*$/.test(word)) return word;
	if (visible(word) === word && !/[\t\n]/.test(word)) return `'${word.replaceAll("'", "'\\''")}'`;
	const bytes = (text) =>
		Array.from(new TextEncoder().encode(text), (each) => `\\${each.toString(8).padStart(3, '0')}`);
	return `$'${word.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\\'!]/gu, (each) => bytes(each).join(''))}'`;
}

/** What submits such a job. */
export function command(agent, input, lease, ...more) {
	const words = [agent, ...(input ? ['--input', input] : [])];
	for (const [name, patterns] of Object.entries(lease ?? {})) {
		for (const each of patterns) words.push(...(name === BUDGET ? ['--budget', each] : ['--lease', `${name}=${each}`]));
	}
	return ['arcp-trio submit', ...[...words, ...more].map(quoted)].join(' ');
}

const VERBS = {
	'fs.read': 'read',
	'fs.write': 'write',
	'net.fetch': 'fetch',
	'tool.call': 'call',
	'agent.delegate': 'delegate to',
	'model.use': 'use the models',
};

/** A lease as a sentence. */
function inWords({ lease, lease_constraints: constraints }, budget = {}, spent = {}) {
	const parts = Object.entries(lease ?? {})
		.filter(([name]) => name !== BUDGET)
		.map(([name, patterns]) => `may ${VERBS[name] ?? name} ${patterns.join(', ')}`);
	const left = { ...budget };
	for (const name in left) left[name] = Math.max(0, budget[name] - (spent[name] ?? 0));
	if (money(budget)) parts.push(`may spend ${money(budget, left)}`);
	const words = parts.join(', ') || 'may do nothing that needs a lease';
	const until = constraints?.expires_at;
	return until ? h('span', `${words}, until `, time(until)) : words;
}
