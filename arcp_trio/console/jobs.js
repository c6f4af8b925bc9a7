/** The table of jobs: live, filtered by the address, children folded under their parents. */

import {
	button,
	choice,
	duration,
	finder,
	h,
	isPressed,
	money,
	put,
	renew,
	setProgress,
	stateWord,
	time,
	VENDOR,
} from './dom.js';
import { byParent, look, waits } from './job.js';

const ROW = 40;
const SPARE = 10;
const PAGE = 500;
const FRESH = 100;
const REFRESH_MS = 1000;
const HIDDEN_MS = 10_000;
const MOST_KNOWN = 50_000;
const COLUMNS = ['State', 'Job', 'Agent', 'Started', 'Took', 'Last event', 'Money', 'Who'];
const ALIVE = ['pending', 'running'];
const STATES = [...ALIVE, 'success', 'error', 'cancelled', 'timed_out'];
const SINCE = { 'last hour': 3_600_000, 'last day': 86_400_000 };

/** @param {Place} place */
export function showJobs(place) {
	const { client, query, main } = place;
	/** The jobs that are known, by id. */
	const known = new Map();
	const unfolded = new Set();
	/** The jobs that waited when they were last put in order. */
	let asking = new Set();
	/** What the table shows. */
	let rows = [];
	let cursor;
	let [loading, loaded, gone] = [false, false, false];
	let refreshedAt = 0;
	let chosen = '';
	/** Why the runtime did not tell all that it was asked for. */
	let trouble = '';

	const find = finder();
	const status = choice('State', 'all states', STATES);
	const since = choice('Started', 'at any time', Object.keys(SINCE));
	const names = client.agents.map((each) => each.name);
	const agent = choice('Agent', 'all agents', names);
	const who = h('input', { 'aria-label': 'Principal', placeholder: 'anybody' });
	const fields = Object.entries({ text: find, state: status, agent, who, since });
	for (const [name, each] of fields) each.value = query.get(name) ?? '';
	const body = h('tbody');
	const [above, below] = [1, 2].map(() => h('tr', { 'aria-hidden': 'true', class: 'space' }));
	const heads = COLUMNS.map((each) => h('th', { scope: 'col', class: each.split(' ')[0].toLowerCase() }, each));
	const table = h('table', { 'aria-label': 'Jobs' }, h('thead', h('tr', ...heads)), body);
	const scroller = h('div', { class: 'scroller', tabindex: '0', role: 'region', 'aria-label': 'All jobs' }, table);
	const note = h('p', { class: 'note', role: 'note' });
	document.title = 'Jobs · arcp-trio';
	const filters = h('div', { class: 'filters', role: 'search' }, ...fields.map(([, each]) => each));
	put(main, h('h1', 'Jobs'), filters, note, scroller);

	/** What the runtime is asked for. */
	function filter() {
		return {
			status: status.value ? [status.value] : undefined,
			agent: agent.value || undefined,
			created_after: since.value ? new Date(Date.now() - SINCE[since.value]).toISOString() : undefined,
		};
	}

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

	function keep(entries) {
		for (const each of entries) known.set(each.job_id, each);
	}

	/** Say what is refused; the foot of the page says what is lost. Both are asked for again. */
	async function attempt(fetch) {
		try {
			await fetch();
			trouble = '';
		} catch (error) {
			if (gone || client.state !== 'live') return;
			trouble = error.message;
			put(note, inWords());
		}
	}

	/** Fetch what is new, and what may have changed. */
	async function refresh() {
		if (gone || client.state !== 'live') return;
		// A tab that is hidden still counts in its title the jobs that wait.
		if (document.hidden && performance.now() < refreshedAt + HIDDEN_MS) return;
		refreshedAt = performance.now();
		const page = await client.page(filter(), { limit: FRESH });
		const running = await client.page({ ...filter(), status: ALIVE }, { limit: 1000 });
		if (gone) return;
		const seen = new Set([...page.jobs, ...running.jobs].map((each) => each.job_id));
		const ended = Array.from(known.values()).filter((each) => ALIVE.includes(each.status) && !seen.has(each.job_id));
		keep(page.jobs);
		keep(running.jobs.filter(isWanted));
		for (const { job_id, created_at } of ended.slice(0, 20)) {
			const now = await look(client, job_id, created_at);
			if (now) known.set(job_id, now);
			else known.delete(job_id);
		}
		if (gone) return;
		if (cursor === undefined) cursor = page.cursor;
		loaded = true;
		if (!isPressed()) arrange();
	}

	/** Fetch older jobs, as one scrolls to them or searches. */
	async function older() {
		if (loading || !cursor || gone || known.size >= MOST_KNOWN) return;
		loading = true;
		const page = await client.page(filter(), { cursor, limit: PAGE }).finally(() => {
			loading = false;
		});
		keep(page.jobs);
		cursor = page.cursor;
		if (!isPressed()) arrange(); // which asks for more, if these do not fill the screen
	}

	/** Put the jobs that are wanted in order, and show them where the reader is. */
	function arrange() {
		let top = scroller.scrollTop;
		const before = rows[Math.floor(top / ROW)]?.entry.job_id;
		const wanted = Array.from(known.values()).filter(isWanted);
		const first = waitingFirst(wanted.filter(waits));
		// An id begins with the time at which the job was created.
		wanted.sort((a, b) => (a.job_id < b.job_id ? 1 : -1));
		const ids = new Set(wanted.map((each) => each.job_id));
		const children = byParent(wanted.filter((each) => ids.has(each.parent_job_id)));
		wanted.sort(first);
		rows = [];
		const add = (entry, depth) => {
			const below = (children.get(entry.job_id) ?? []).sort(first);
			rows.push({ entry, depth, children: below.length });
			if (unfolded.has(entry.job_id)) for (const each of below) add(each, depth + 1);
		};
		for (const each of wanted) if (!ids.has(each.parent_job_id)) add(each, 0);
		const moved = top > 0 ? rows.findIndex((each) => each.entry.job_id === before) : -1;
		if (moved >= 0) top = moved * ROW + (top % ROW);
		const waiting = wanted.filter(waits).length;
		document.title = `${waiting ? `(${waiting}) ` : ''}Jobs · arcp-trio`;
		const principals = new Set(wanted.map((each) => each[VENDOR]?.principal));
		table.classList.toggle('own', principals.size < 2);
		who.hidden = principals.size < 2 && !who.value;
		put(note, inWords());
		draw(top);
		if (scroller.scrollTop !== top) scroller.scrollTop = top;
	}

	/** Unfold what is above jobs that have begun to wait, and return the order that puts both first. */
	function waitingFirst(waiting) {
		const lifted = new Set();
		for (const { job_id, parent_job_id } of waiting) {
			lifted.add(job_id);
			for (let up = known.get(parent_job_id); up; up = known.get(up.parent_job_id)) {
				lifted.add(up.job_id);
				if (!asking.has(job_id)) unfolded.add(up.job_id);
			}
		}
		asking = new Set(waiting.map((each) => each.job_id));
		return (a, b) => Number(lifted.has(b.job_id)) - Number(lifted.has(a.job_id));
	}

	/** What the table does not show by itself. */
	function inWords() {
		const searches = find.value || who.value;
		if (trouble) return `Not all jobs are shown: ${trouble}.`;
		if (!loaded) return 'Looking…';
		if (searches && cursor) {
			const words = `Searched the newest ${known.size} jobs`;
			if (known.size >= MOST_KNOWN) return `${words}. Older ones are found by agent, state or time.`;
			return rows.length > SPARE ? `${words}; the others as one scrolls.` : `${words} so far…`;
		}
		if (rows.length) return '';
		return query.size > 0 ? 'No job is as the filters say.' : 'No jobs yet. Start one with: arcp-trio submit echo';
	}

	/** Make the rows that can be seen. Those that stay are not taken out: what is selected or focused in them stays, too. */
	function draw(top = scroller.scrollTop) {
		const first = Math.max(0, Math.floor(top / ROW) - SPARE);
		const last = Math.min(rows.length, Math.ceil((top + scroller.clientHeight) / ROW) + SPARE);
		table.setAttribute('aria-rowcount', String(rows.length + 1));
		above.style.height = `${first * ROW}px`;
		below.style.height = `${(rows.length - last) * ROW}px`;
		const lines = [above, ...rows.slice(first, last).map((row, index) => line(row, first + index)), below];
		for (const each of Array.from(body.rows)) if (!lines.includes(each)) each.remove();
		for (const [index, each] of lines.entries()) {
			if (each !== body.rows[index]) body.insertBefore(each, body.rows[index]);
		}
		if (last > rows.length - 2 * SPARE) attempt(older);
	}

	function focus(selector, within = body) {
		within.querySelector(selector)?.focus({ preventScroll: true });
	}

	function line({ entry, depth, children }, index) {
		const brief = entry[VENDOR] ?? {};
		const id = entry.job_id;
		const end = brief.finished_at ? Date.parse(brief.finished_at) : Date.now();
		const open = unfolded.has(id);
		const turn = () => {
			unfolded.delete(id) || unfolded.add(id);
			arrange();
		};
		const label = { class: 'fold', 'aria-expanded': String(open), 'aria-label': `${children} delegated` };
		const fold = children > 0 && button(`${open ? '▾' : '▸'} ${children}`, turn, label);
		const words = brief.error ? `${brief.error.code}: ${brief.error.message}` : (brief.last_event ?? '');
		const bar = brief.progress && !brief.finished_at && h('progress', { 'aria-label': 'Progress' });
		if (bar) setProgress(bar, brief.progress);
		const cells = {
			state: stateWord(waits(entry) ? 'waiting' : entry.status),
			job: h('span', '\u2003'.repeat(Math.min(depth, 8)), fold, h('a', { href: `#/jobs/${id}` }, id)),
			agent: entry.agent,
			started: time(brief.started_at ?? entry.created_at),
			took: brief.started_at && duration(end - Date.parse(brief.started_at)),
			last: h('span', { title: words }, bar, words),
			money: money(brief.budget, brief.spent),
			who: brief.principal,
		};
		const row = body.querySelector(`[data-job="${CSS.escape(id)}"]`) ?? h('tr', { 'data-job': id });
		row.ariaRowIndex = index + 2;
		row.ariaSelected = id === chosen || null;
		renew(row, ...Object.entries(cells).map(([name, each]) => h('td', { class: name }, each)));
		return row;
	}

	/** Show the place again, with other filters. */
	function restart({ target }) {
		place.setQuery(Object.fromEntries(fields.map(([name, each]) => [name, each.value])));
		place.leave?.();
		showJobs(place);
		focus(`[aria-label=${target.ariaLabel}]`, main);
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
			if (chosen && !(/** @type {HTMLElement} */ (event.target).matches('a, button')))
				location.hash = `#/jobs/${chosen}`;
			return;
		}
		const before = rows.findIndex((each) => each.entry.job_id === chosen);
		const index = Math.max(0, Math.min(rows.length - 1, before + (event.key === 'j' ? 1 : -1)));
		chosen = rows[index].entry.job_id;
		const lowest = (index + 2) * ROW - scroller.clientHeight;
		scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, lowest), index * ROW);
		draw();
		focus('tr[aria-selected] a');
	};
	let timer = 0;
	const loop = async () => {
		const began = performance.now();
		await attempt(refresh);
		const took = performance.now() - began; // a runtime with much to list is asked less often
		if (!gone) timer = window.setTimeout(loop, Math.max(REFRESH_MS, 4 * took));
	};
	place.leave = () => {
		gone = true;
		clearTimeout(timer);
	};
	arrange();
	loop();
}
