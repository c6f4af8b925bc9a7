/** The table of jobs: live, filtered by the address, children folded under their parents. */

import { button, duration, h, money, option, put, stateWord, time } from './dom.js';

const ROW = 40;
const SPARE = 10;
const PAGE = 500;
const FRESH = 100;
const REFRESH_MS = 1000;
const VENDOR = 'x-vendor.arcp-trio';
const STATES = ['pending', 'running', 'success', 'error', 'cancelled', 'timed_out'];
const SINCE = /** @type {{ [name: string]: number }} */ ({ hour: 3_600_000, day: 86_400_000 });

/** @param {import('./console.js').Place} place */
export function showJobs(place) {
	const { client, query, main } = place;
	/** The jobs that are known, by id. @type {Map<string, any>} */
	const known = new Map();
	/** @type {Set<string>} */
	const unfolded = new Set();
	/** What the table shows: entries with their depths. @type {{ entry: any, depth: number, children: number }[]} */
	let rows = [];
	/** @type {string | null | undefined} */
	let cursor;
	let loading = false;
	let chosen = -1;
	let gone = false;
	let loaded = false;

	const find = h('input', { type: 'search', 'aria-label': 'Find', placeholder: 'Find  /', value: query.get('text') });
	const status = h(
		'select',
		{ 'aria-label': 'State' },
		option('', 'all states'),
		...STATES.map((each) => option(each, each.replace('_', ' '))),
	);
	const since = h(
		'select',
		{ 'aria-label': 'Started' },
		option('', 'at any time'),
		option('hour', 'in the last hour'),
		option('day', 'in the last day'),
	);
	const names = client.agents.map((each) => option(each.name ?? each));
	const agent = h('select', { 'aria-label': 'Agent' }, option('', 'all agents'), ...names);
	const who = h('input', { 'aria-label': 'Principal', placeholder: 'anybody', value: query.get('who') });
	status.value = query.get('state') ?? '';
	since.value = query.get('since') ?? '';
	agent.value = query.get('agent') ?? '';
	const body = h('tbody', {});
	const table = h(
		'table',
		{ 'aria-label': 'Jobs' },
		h(
			'thead',
			{},
			h(
				'tr',
				{},
				...['State', 'Job', 'Agent', 'Started', 'Took', 'Last event', 'Money', 'Who'].map((each) =>
					h('th', { scope: 'col', class: each.split(' ')[0].toLowerCase() }, each),
				),
			),
		),
		body,
	);
	const scroller = h('div', { class: 'scroller', tabindex: '0', role: 'region', 'aria-label': 'All jobs' }, table);
	const note = h('p', { class: 'note', role: 'note' });
	document.title = 'Jobs · arcp-trio';
	put(
		main,
		h('h1', {}, 'Jobs'),
		h('div', { class: 'filters', role: 'search' }, find, status, agent, who, since),
		note,
		scroller,
	);

	/** What the runtime is asked for. */
	function filter() {
		/** @type {any} */
		const wanted = {};
		if (status.value) wanted.status = [status.value];
		if (agent.value) wanted.agent = agent.value;
		if (since.value) wanted.created_after = new Date(Date.now() - SINCE[since.value]).toISOString();
		return wanted;
	}

	/** @param {any} entry */
	function isWanted(entry) {
		const brief = entry[VENDOR] ?? {};
		const words = find.value.toLowerCase();
		const text = [entry.job_id, entry.agent, entry.status, brief.principal, brief.last_event, brief.error?.message];
		return (
			(!status.value || entry.status === status.value) &&
			(!who.value || brief.principal === who.value) &&
			(!words || text.join(' ').toLowerCase().includes(words))
		);
	}

	/** @param {any[]} entries */
	function keep(entries) {
		for (const entry of entries) known.set(entry.job_id, entry);
	}

	/** Fetch what is new, and what may have changed. */
	async function refresh() {
		if (gone || client.state !== 'live' || document.hidden) return;
		const page = await client.page(filter(), { limit: FRESH });
		const running = await client.page({ ...filter(), status: ['pending', 'running'] }, { limit: 1000 });
		if (gone) return;
		const alive = new Set(running.jobs.map((each) => each.job_id));
		const ended = Array.from(known.values()).filter(
			(each) =>
				['pending', 'running'].includes(each.status) &&
				!alive.has(each.job_id) &&
				!page.jobs.some((other) => other.job_id === each.job_id),
		);
		keep(page.jobs);
		if (status.value === '' || ['pending', 'running'].includes(status.value)) keep(running.jobs.filter(isWanted));
		for (const each of ended.slice(0, 20)) await again(each);
		if (cursor === undefined) cursor = page.cursor;
		loaded = true;
		arrange();
	}

	/** Fetch one job again, by the instant at which it was created. @param {any} entry */
	async function again(entry) {
		const at = Date.parse(entry.created_at);
		const window = {
			created_after: new Date(at - 2).toISOString(),
			created_before: new Date(at + 2).toISOString(),
		};
		const found = (await client.page(window, { limit: 1000 })).jobs;
		const now = found.find((each) => each.job_id === entry.job_id);
		if (now) known.set(now.job_id, now);
		else known.delete(entry.job_id);
	}

	/** Fetch older jobs, when one scrolls to where they are. */
	async function older() {
		if (loading || !cursor || gone) return;
		loading = true;
		try {
			const page = await client.page(filter(), { cursor, limit: PAGE });
			keep(page.jobs);
			cursor = page.cursor;
			arrange();
		} finally {
			loading = false;
		}
	}

	/** Put the jobs that are wanted in order, and show them where the reader is. */
	function arrange() {
		let top = scroller.scrollTop;
		const before = rows[Math.floor(top / ROW)]?.entry.job_id;
		const wanted = Array.from(known.values()).filter(isWanted);
		wanted.sort(
			(a, b) =>
				Number(waits(b)) - Number(waits(a)) ||
				(a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : a.job_id < b.job_id ? 1 : -1),
		);
		const ids = new Set(wanted.map((each) => each.job_id));
		/** @type {Map<string, any[]>} */
		const children = new Map();
		for (const each of wanted) {
			if (ids.has(each.parent_job_id)) {
				children.set(each.parent_job_id, [each, ...(children.get(each.parent_job_id) ?? [])]);
			}
		}
		rows = [];
		const add = (/** @type {any} */ entry, /** @type {number} */ depth) => {
			const below = children.get(entry.job_id) ?? [];
			rows.push({ entry, depth, children: below.length });
			if (unfolded.has(entry.job_id)) for (const each of below) add(each, depth + 1);
		};
		for (const each of wanted) if (!ids.has(each.parent_job_id)) add(each, 0);
		const moved = top > 0 ? rows.findIndex((each) => each.entry.job_id === before) : -1;
		if (moved >= 0) top = moved * ROW + (top % ROW);
		const waiting = wanted.filter(waits).length;
		document.title = `${waiting ? `(${waiting}) ` : ''}Jobs · arcp-trio`;
		const filtered = query.size > 0;
		put(
			note,
			rows.length
				? null
				: !loaded
					? 'Looking…'
					: filtered
						? 'No job is as the filters say.'
						: 'No jobs yet. Start one with: arcp-trio submit echo',
		);
		draw(top);
		if (scroller.scrollTop !== top) scroller.scrollTop = top;
	}

	/** @param {any} entry */
	function waits(entry) {
		return Boolean(entry[`${VENDOR}.waiting`]);
	}

	/** Make the rows that can be seen. */
	function draw(top = scroller.scrollTop) {
		const first = Math.max(0, Math.floor(top / ROW) - SPARE);
		const last = Math.min(rows.length, Math.ceil((top + scroller.clientHeight) / ROW) + SPARE);
		table.setAttribute('aria-rowcount', String(rows.length + 1));
		const focused = document.activeElement?.closest('tr')?.dataset.job;
		body.replaceChildren(
			space(first),
			...rows.slice(first, last).map((row, index) => line(row, first + index)),
			space(rows.length - last),
		);
		if (focused)
			/** @type {any} */ (body.querySelector(`tr[data-job="${CSS.escape(focused)}"] a`))?.focus({
				preventScroll: true,
			});
		if (last > rows.length - 2 * SPARE) older();
	}

	/** @param {number} count */
	function space(count) {
		const row = h('tr', { 'aria-hidden': 'true', class: 'space' });
		row.style.height = `${count * ROW}px`;
		return row;
	}

	/** @param {{ entry: any, depth: number, children: number }} row @param {number} index */
	function line({ entry, depth, children }, index) {
		const brief = entry[VENDOR] ?? {};
		const id = entry.job_id;
		const end = brief.finished_at ? Date.parse(brief.finished_at) : Date.now();
		const open = unfolded.has(id);
		const turn = () => {
			if (open) unfolded.delete(id);
			else unfolded.add(id);
			arrange();
		};
		const label = { class: 'fold', 'aria-expanded': String(open), 'aria-label': `${children} delegated` };
		const fold = children > 0 && button(`${open ? '▾' : '▸'} ${children}`, turn, label);
		const words = brief.error ? `${brief.error.code}: ${brief.error.message}` : (brief.last_event ?? '');
		const name = h('td', { class: 'job' }, fold, h('a', { href: `#/jobs/${id}` }, id));
		name.style.paddingInlineStart = `${0.5 + 1.2 * Math.min(depth, 8)}rem`;
		return h(
			'tr',
			{ 'data-job': id, 'aria-rowindex': index + 2, 'aria-selected': index === chosen ? 'true' : null },
			h('td', { class: 'state' }, stateWord(waits(entry) ? 'waiting' : entry.status)),
			name,
			h('td', { class: 'agent' }, entry.agent),
			h('td', { class: 'started' }, time(brief.started_at ?? entry.created_at)),
			h('td', { class: 'took' }, brief.started_at ? duration(end - Date.parse(brief.started_at)) : ''),
			h('td', { class: 'last', title: words }, words),
			h('td', { class: 'money' }, money(brief.budget, brief.spent)),
			h('td', { class: 'who' }, brief.principal ?? ''),
		);
	}

	function restart() {
		place.setQuery({ text: find.value, state: status.value, agent: agent.value, who: who.value, since: since.value });
		known.clear();
		cursor = undefined;
		loaded = false;
		refresh().catch(() => {});
		arrange();
	}

	find.addEventListener('input', () => {
		place.setQuery({ text: find.value });
		arrange();
	});
	for (const each of [status, agent, who, since]) each.addEventListener('change', restart);
	scroller.addEventListener('scroll', () => requestAnimationFrame(() => draw()));
	place.onkey = (event) => {
		if (!['j', 'k', 'Enter'].includes(event.key) || !rows.length) return;
		if (event.key === 'Enter') {
			if (chosen >= 0 && !(/** @type {HTMLElement} */ (event.target).matches('a, button'))) {
				location.hash = `#/jobs/${rows[chosen].entry.job_id}`;
			}
			return;
		}
		chosen = Math.max(0, Math.min(rows.length - 1, chosen + (event.key === 'j' ? 1 : -1)));
		scroller.scrollTop = Math.min(
			Math.max(scroller.scrollTop, (chosen + 2) * ROW - scroller.clientHeight),
			chosen * ROW,
		);
		draw();
		/** @type {any} */ (body.querySelector('tr[aria-selected] a'))?.focus({ preventScroll: true });
	};
	let timer = 0;
	const loop = async () => {
		try {
			await refresh();
		} catch {
			// A refusal or a loss; the footer says which, and the next turn tries again.
		}
		if (!gone) timer = window.setTimeout(loop, REFRESH_MS);
	};
	place.leave = () => {
		gone = true;
		clearTimeout(timer);
	};
	arrange();
	loop();
}
