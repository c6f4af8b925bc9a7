/** One job: its head, its timeline with a slider through time, its money, and its children. */

import { ArcpError } from './arcp.js';
import { button, duration, h, money, option, put, shownJson, stateWord, time } from './dom.js';
import { Money } from './money.js';
import { article } from './timeline.js';

const VENDOR = 'x-vendor.arcp-trio';
const WORK_MS = 16;
const PAUSE_MS = 50;
/** Articles in the page; earlier ones are shown on demand. */
const MOST_SHOWN = 20_000;
const REFRESH_MS = 2000;
const HEAD_MS = 200;
const ENDED = ['success', 'error', 'cancelled', 'timed_out'];
const CROCKFORD = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** @param {import('./console.js').Place} place @param {string} id */
export async function showJob(place, id) {
	const { client, main } = place;
	/** The events, in order. @type {any[]} */
	const events = [];
	/** How many of them are in the page, from `first` on. */
	let shown = 0;
	let first = 0;
	let gone = false;
	let follows = true;
	let scheduled = false;
	let drawn = 0;
	let top = 0;
	/** The listing's entry. @type {any} */
	let entry = {};
	/** The answer to the subscription. @type {any} */
	let said = {};
	const calls = new Map();
	const purse = new Money();

	const head = h('div', { class: 'head' });
	const bar = h('progress', { 'aria-label': 'Progress', hidden: true });
	const tree = h('section', { 'aria-label': 'Delegated jobs', hidden: true });
	const log = h('div', { role: 'log', 'aria-label': 'Timeline', 'aria-live': 'off', class: 'timeline', tabindex: '0' });
	const find = h('input', { type: 'search', 'aria-label': 'Find', placeholder: 'Find  /' });
	const kinds = h('select', { 'aria-label': 'Kind' }, option('', 'all kinds'));
	const slider = h('input', { type: 'range', 'aria-label': 'Event', min: '0', max: '0', value: '0' });
	const at = h('output', {});
	const earlier = button('Show earlier events', showEarlier, { hidden: true });
	const cancel = button('Cancel job', ask);
	const result = h('section', { 'aria-label': 'Result', hidden: true });
	const buttons = h(
		'div',
		{ class: 'buttons' },
		cancel,
		button('Run again', again),
		button('Copy as command', copy),
		button('Download events', download),
	);
	const note = h('p', { role: 'alert', hidden: true });
	document.title = `${id} · arcp-trio`;
	put(
		main,
		h('h1', {}, id),
		head,
		bar,
		buttons,
		note,
		result,
		h('section', { 'aria-label': 'Budget' }, purse.element),
		tree,
		h('div', { class: 'filters' }, find, kinds, h('label', { class: 'slider' }, slider, at)),
		earlier,
		log,
	);

	place.onevent = (event) => {
		if (event.jobId !== id || gone) return;
		events.push(event);
		schedule();
	};
	const timer = setInterval(() => refresh().catch(() => {}), REFRESH_MS);
	const ticking = setInterval(drawHead, 1000);
	place.leave = () => {
		gone = true;
		clearInterval(timer);
		clearInterval(ticking);
		client.unsubscribe(id);
	};
	try {
		said = (await client.subscribe(id, { history: true })).accepted;
	} catch (error) {
		if (gone) return;
		const missing = error instanceof ArcpError && error.code === 'JOB_NOT_FOUND';
		put(
			head,
			missing
				? 'There is no such job. It may have been deleted after its time, or belong to somebody else.'
				: String(error),
		);
		buttons.hidden = true;
		return;
	}
	if (gone) return client.unsubscribe(id);
	refresh().catch(() => {});
	drawHead();

	// -- the timeline

	function schedule() {
		if (scheduled) return;
		scheduled = true;
		setTimeout(work, PAUSE_MS); // a page in the background would get no frames
	}

	/** Put new events into the page, for no longer than a reader notices. */
	function work() {
		if (gone) return;
		scheduled = false;
		const until = performance.now() + WORK_MS;
		const made = document.createDocumentFragment();
		while (first + shown < events.length && performance.now() < until) {
			made.append(make(first + shown));
			shown += 1;
		}
		log.append(made);
		while (follows && shown > MOST_SHOWN && log.firstChild) {
			log.firstChild.remove();
			first += 1;
			shown -= 1;
		}
		earlier.hidden = first === 0;
		if (performance.now() > drawn + HEAD_MS) drawHead();
		if (follows) log.scrollTop = log.scrollHeight;
		if (first + shown < events.length) schedule();
	}

	/** @param {number} index */
	function make(index) {
		const event = events[index];
		if (!event.counted) {
			event.counted = true;
			count(event);
		}
		const made = article(event, { calls, id, place });
		made.hidden = !isWanted(event, index, made);
		return made;
	}

	/** What an event changes beside the timeline. @param {any} event */
	function count(event) {
		if (event.kind === 'tool_call') calls.set(event.body.call_id, event);
		if (event.kind === 'metric') purse.add(event);
		if (!Array.from(kinds.options).some((each) => each.value === event.kind)) kinds.append(option(event.kind));
		if (event.kind === 'delegate') refresh().catch(() => {});
		if (event.kind === 'end') {
			showResult(event);
			drawHead();
			refresh().catch(() => {});
		}
	}

	/** @param {any} event @param {number} index @param {HTMLElement} made */
	function isWanted(event, index, made) {
		const words = find.value.toLowerCase();
		return (
			index < chosen() &&
			(!kinds.value || event.kind === kinds.value) &&
			(!words || (made.textContent ?? '').toLowerCase().includes(words))
		);
	}

	function filter() {
		Array.from(log.children).forEach((each, place_) => {
			const made = /** @type {HTMLElement} */ (each);
			made.hidden = !isWanted(events[first + place_], first + place_, made);
		});
		drawHead();
	}

	function showEarlier() {
		const from = Math.max(0, first - 2000);
		const height = log.scrollHeight;
		const made = document.createDocumentFragment();
		for (let index = from; index < first; index += 1) made.append(make(index));
		shown += first - from;
		first = from;
		log.prepend(made);
		earlier.hidden = first === 0;
		log.scrollTop += log.scrollHeight - height;
	}

	// -- time travel

	function chosen() {
		return Number(place.query.get('at') ?? Infinity);
	}

	function travels() {
		return place.query.has('at');
	}

	function moveSlider() {
		slider.max = String(events.length);
		slider.value = String(Math.min(chosen(), events.length));
		put(at, `${slider.value} of ${events.length}`);
	}

	slider.addEventListener('input', () => {
		const all = Number(slider.value) >= events.length;
		place.setQuery({ at: all ? null : slider.value });
		follows = all;
		filter();
	});
	find.addEventListener('input', filter);
	kinds.addEventListener('change', filter);
	log.addEventListener('scroll', () => {
		if (log.scrollTop + log.clientHeight >= log.scrollHeight - 8) follows = !travels();
		else if (log.scrollTop < top) follows = false;
		top = log.scrollTop;
	});

	// -- the head

	function past() {
		return !travels() ? events : events.slice(0, chosen());
	}

	function drawHead() {
		if (gone || !said.agent) return;
		drawn = performance.now();
		moveSlider();
		const seen = past();
		const brief = entry[VENDOR] ?? {};
		const last = seen[seen.length - 1];
		const end = last?.kind === 'end' ? last : null;
		const waits = !end && !travels() && entry[`${VENDOR}.waiting`];
		const state =
			end?.status ??
			(travels() ? 'running' : waits ? 'waiting' : ENDED.includes(entry.status) ? entry.status : 'running');
		const progress = seen.findLast?.((each) => each.kind === 'progress');
		bar.hidden = !progress;
		if (progress) {
			const { current, total } = progress.body;
			if (total) {
				bar.max = total;
				bar.value = Math.min(current, total);
			} else bar.removeAttribute('value');
		}
		purse.show(brief.budget ?? {}, seen);
		cancel.hidden = ENDED.includes(state) || Boolean(main.querySelector('dialog[open]'));
		const began = brief.started_at ?? entry.created_at;
		const ends = end?.ts ?? (ENDED.includes(entry.status) ? brief.finished_at : null);
		const until = travels() ? last?.ts : ends;
		const error = end?.error ?? (travels() ? null : brief.error);
		const facts = [
			['State', stateWord(state)],
			['Agent', said.agent],
			['Principal', brief.principal],
			['Node', brief.node],
			['Started', began && time(began)],
			['Took', began && duration((until ? Date.parse(until) : Date.now()) - Date.parse(began))],
			['Error', error && `${error.code}: ${error.message}`],
			['Money', money(brief.budget, travels() ? purse.spent(seen) : brief.spent)],
			['May', inWords(said.lease ?? {}, said.lease_constraints ?? {})],
			['Trace', said.trace_id],
			['Parent', said.parent_job_id && h('a', { href: `#/jobs/${said.parent_job_id}` }, said.parent_job_id)],
		];
		put(
			head,
			h(
				'dl',
				{},
				...facts.filter((each) => each[1]).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))),
			),
		);
	}

	/** @param {any} event */
	function showResult(event) {
		result.hidden = false;
		const text = event.error
			? `${event.error.code}: ${event.error.message}`
			: event.result instanceof Uint8Array
				? `${event.result.length} bytes`
				: shownJson(event.result);
		put(result, h('h2', {}, event.error ? 'Error' : 'Result'), h('pre', {}, text));
	}

	/** Fetch what the listing tells of the job, and its children. */
	async function refresh() {
		if (gone || client.state !== 'live') return;
		const born = bornAt(id);
		if (Number.isNaN(born)) return;
		const window = { created_after: new Date(born - 5000).toISOString() };
		const near = await client.page({ ...window, created_before: new Date(born + 5000).toISOString() }, { limit: 1000 });
		entry = near.jobs.find((each) => each.job_id === id) ?? entry;
		if (events.some((each) => each.kind === 'delegate')) {
			const below = (await client.page(window, { limit: 1000 })).jobs
				.filter((each) => each.parent_job_id === id)
				.reverse();
			tree.hidden = below.length === 0;
			put(
				tree,
				h('h2', {}, 'Delegated jobs'),
				h(
					'ul',
					{},
					...below.map((each) =>
						h(
							'li',
							{},
							stateWord(each.status),
							' ',
							h('a', { href: `#/jobs/${each.job_id}` }, each.job_id),
							' ',
							each.agent,
						),
					),
				),
			);
		}
		drawHead();
	}

	// -- buttons

	function ask() {
		const dialog = h(
			'dialog',
			{ 'aria-labelledby': 'sure' },
			h('h2', { id: 'sure' }, 'Cancel this job?'),
			h('p', {}, 'Its agent is asked to stop.'),
			button('Cancel job', () => stop(dialog)),
			button('Let it run', () => dialog.close()),
		);
		dialog.addEventListener('close', () => {
			dialog.remove();
			drawHead();
		});
		main.append(dialog);
		dialog.showModal();
		drawHead();
	}

	/** @param {any} dialog */
	async function stop(dialog) {
		dialog.close();
		try {
			await client.stop(id, 'cancelled in the console');
			note.hidden = true;
		} catch (error) {
			note.hidden = false;
			put(note, `It was not cancelled: ${/** @type {Error} */ (error).message}.`);
		}
	}

	function again() {
		sessionStorage.setItem(
			'arcp-again',
			JSON.stringify({ agent: said.agent, input: given(), lease: said.lease, budget: entry[VENDOR]?.budget }),
		);
		location.hash = '#/new';
	}

	/** Its input, if it was submitted in this tab: those who watch are not told. */
	function given() {
		return sessionStorage.getItem(`arcp-input-${id}`);
	}

	function copy() {
		const words = ['arcp-trio submit', quoted(said.agent)];
		const input = given();
		if (input) words.push('--input', quoted(input));
		for (const [capability, patterns] of Object.entries(said.lease ?? {})) {
			const flag = capability === 'cost.budget' ? '--budget' : '--lease';
			for (const each of /** @type {string[]} */ (patterns))
				words.push(flag, quoted(flag === '--lease' ? `${capability}=${each}` : each));
		}
		navigator.clipboard?.writeText(words.join(' '));
		note.hidden = false;
		put(note, words.join(' '), input ? '' : '  (its input is not told to those who watch)');
	}

	function download() {
		const lines = events.map(({ seq, jobId, kind, body, ts, status, result: value, error }) =>
			JSON.stringify(
				kind === 'end'
					? { seq, job_id: jobId, kind, status, result: value, error: error?.message, ts }
					: { seq, job_id: jobId, kind, body, ts },
			),
		);
		const address = URL.createObjectURL(new Blob([`${lines.join('\n')}\n`], { type: 'application/jsonl' }));
		h('a', { href: address, download: `${id}.jsonl` }).click();
		setTimeout(() => URL.revokeObjectURL(address), 10_000);
	}
}

/** When a job was created, by its id, which is a ULID. @param {string} id */
function bornAt(id) {
	const digits = Array.from(id.replace('job_', '').slice(0, 10), (each) => CROCKFORD.indexOf(each));
	return digits.length < 10 || digits.includes(-1) ? NaN : digits.reduce((sum, digit) => sum * 32 + digit, 0);
}

/** @param {string} text */
export function quoted(text) {
	return /^[\w@.:/=*-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * A lease as a sentence.
 * @param {{ [capability: string]: string[] }} lease
 * @param {{ expires_at?: string }} constraints
 */
function inWords(lease, constraints) {
	const verbs = /** @type {{ [capability: string]: string }} */ ({
		'fs.read': 'read',
		'fs.write': 'write',
		'net.fetch': 'fetch',
		'tool.call': 'call',
		'agent.delegate': 'delegate to',
		'model.use': 'use the models',
		'cost.budget': 'spend',
	});
	const parts = Object.entries(lease).map(([name, patterns]) => `${verbs[name] ?? name} ${patterns.join(', ')}`);
	if (!parts.length) return 'nothing that needs a lease';
	const until = constraints.expires_at ? ` until ${new Date(constraints.expires_at).toLocaleString()}` : '';
	return `${parts.join('; ')}${until}`;
}
