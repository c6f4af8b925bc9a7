/** The timeline of a job: a stretch of its events, which follows the end or stays where one reads. */

import { article, close, ending, QUESTION } from './articles.js';
import { button, choice, duration, finder, h, isPressed, option, put } from './dom.js';

/** The events and characters of a stretch, and how far it grows before it is cut. */
const MOST = 12_000;
const MOST_SIZE = 50_000_000;
const SLACK = 500;
/** Articles that stand alone; further ones come in groups, so that the browser passes over what is out of sight. */
const ALONE = 500;
const GROUP = 100;
const SLICE_MS = 8;
const PAUSE_MS = 50;
const STILL_MS = 200;

function tell(story, event) {
	story.ts = event.ts ?? story.ts;
	if (event.kind === 'progress') story.progress = event.body;
	if (event.kind === 'end') story.end = event;
}

/**
 * @param {Place} place
 * @param {string} id
 * @param {(event: any) => void} onevent is told of each event once, and with null if one moves through time
 */
export function makeTimeline(place, id, onevent) {
	const { client, query } = place;
	/** The stretch, how many events come before it, and its characters. */
	let events = [];
	let [first, size] = [0, 0];
	/** Its articles, and how many of them were held against the filter. */
	let articles = [];
	let checked = 0;
	/** How many events came since the last load began, and how many the job has. */
	let [next, total] = [0, 0];
	let loads = 0;
	let loading = false;
	let follows = true;
	/** How many events the one to bring into sight ends. */
	let goal = 0;
	let top = 0;
	let timer = 0;
	/** Why events that were asked for are not here. */
	let trouble = '';
	/** @type {Story} */
	let before = {};
	/** @type {Story} */
	const whole = {};
	/** Calls of tools by their ids. */
	const calls = new Map();
	/** Questions by their ids: the box of each, and how it ended. */
	const questions = new Map();
	let began = NaN;
	/** Seconds of the axis of calls. */
	let axis = 10;

	const log = h('div', { role: 'log', 'aria-label': 'Timeline', 'aria-live': 'off', class: 'timeline', tabindex: '0' });
	log.dataset.moves = '0';
	const find = finder();
	const kinds = choice('Kind', 'all kinds');
	const slider = h('input', { type: 'range', 'aria-label': 'Event', min: '0', max: '0', value: '0' });
	const position = h('output');
	const note = h('p', { class: 'note' });
	const earlier = button('Show earlier events', () => move(first));
	const later = button('Show later events', () => move(first + events.length));
	const filters = h('div', { class: 'filters' }, find, kinds, h('label', { class: 'slider' }, slider, position));
	const element = h('section', { class: 'past', 'aria-label': 'Events' }, filters, note, earlier, log, later);
	find.addEventListener('input', filter);
	kinds.addEventListener('change', filter);
	slider.addEventListener('input', () => travel(false));
	slider.addEventListener('change', () => travel(true));
	log.addEventListener('scroll', scrolled);

	/** Get the events, with a stretch around one of them, or with the last ones. */
	async function load(wanted = chosen()) {
		loads += 1;
		const mine = loads;
		if (mine > 1) client.unsubscribe(id);
		loading = true;
		const { accepted } = await client.subscribe(id, { history: true });
		if (mine !== loads) return accepted;
		loading = false;
		trouble = '';
		follows = wanted === Infinity;
		goal = follows ? 0 : wanted;
		const history = (accepted.subscribed_from ?? 0) - client.lastSeq;
		first = Math.max(0, Math.min(wanted - MOST / 2, history - MOST));
		[events, articles, before] = [[], [], {}];
		size = checked = next = 0;
		log.replaceChildren();
		schedule();
		return accepted;
	}

	/** Show other events; where they are refused, say why. */
	async function move(wanted) {
		try {
			await load(wanted);
		} catch (error) {
			trouble = `These events cannot be shown: ${error.message}.`;
			say();
		}
	}

	function leave() {
		loads += 1;
		loading = true;
		clearTimeout(timer);
		client.unsubscribe(id);
	}

	/** Take the next event of the job. */
	function take(event) {
		if (loading) return;
		const index = next;
		next += 1;
		if (next > total) {
			total = next;
			tell(whole, event);
			know(event);
			onevent(event);
		}
		const hasRoom = events.length < MOST && size < MOST_SIZE && index === first + events.length;
		if (index < first) tell(before, event);
		else if (follows || index < goal || hasRoom) {
			event.size = JSON.stringify(event).length;
			events.push(event);
			size += event.size;
			if (events.length > MOST + SLACK || size > MOST_SIZE) cut();
		}
		schedule();
	}

	/** Let go of the first events of the stretch. */
	function cut() {
		let count = 0;
		for (; events.length - count > (size > MOST_SIZE ? 1 : MOST); count += 1) {
			tell(before, events[count]);
			size -= events[count].size;
		}
		events.splice(0, count);
		for (const each of articles.splice(0, count)) {
			const group = each.parentElement;
			each.remove();
			if (group !== log && !group.firstChild) group.remove();
		}
		first += count;
		checked = Math.max(0, checked - count);
	}

	/** Know what later articles need. */
	function know(event) {
		const { kind, body, ts } = event;
		const at = Date.parse(ts);
		if (total === 1) began = at;
		if (!Array.from(kinds.options).some((each) => each.value === kind)) kinds.append(option(kind));
		if (kind === QUESTION) questions.set(body.question_id, {});
		if (kind === 'end') for (const each of questions.values()) settle(each, event);
		else if (kind === 'tool_result' && questions.has(body.call_id)) settle(questions.get(body.call_id), event);
		if (kind === 'tool_call') calls.set(body.call_id, { tool: body.tool, at });
		if (calls.size > MOST) calls.delete(calls.keys().next().value ?? '');
	}

	/** Take the buttons of a question that has ended. */
	function settle(asked, event) {
		asked.answered ??= ending(event);
		if (asked.box && (event.kind !== 'end' || asked.box.matches('.open'))) close(asked.box, asked.answered);
	}

	// -- into the page

	function schedule(pause = PAUSE_MS) {
		timer ||= setTimeout(work, pause); // a page in the background would get no frames
	}

	/** Make articles and hold them against the filter, for no longer than a reader notices. */
	function work() {
		clearTimeout(timer);
		timer = 0;
		if (isPressed()) return schedule();
		const until = performance.now() + SLICE_MS;
		const inTime = () => performance.now() < until;
		for (; checked < events.length && inTime(); checked += 1) {
			if (checked === articles.length) add(events[checked]);
			check(articles[checked]);
		}
		// What one is about to answer stays where it is.
		if (follows && log.querySelector('.open:is(:hover, :focus-within)')) schedule(STILL_MS);
		else if (follows) follow();
		else if (goal && goal <= first + articles.length) {
			articles[goal - first - 1]?.scrollIntoView({ block: 'end' });
			goal = 0;
		}
		say();
		if (checked < events.length) schedule(0);
	}

	function follow() {
		const before = log.scrollTop;
		log.scrollTop = log.scrollHeight;
		if (log.scrollTop !== before) log.dataset.moves = String(Number(log.dataset.moves) + 1); // not by the reader
	}

	function add(event) {
		const asked = event.kind === QUESTION ? questions.get(event.body.question_id) : null;
		const made = article(event, place, id, { ran: ran(event), answered: asked?.answered });
		if (asked) asked.box = made.querySelector('.question');
		let group = articles.length < ALONE ? log : log.lastElementChild;
		if (group.matches('article') || (group !== log && group.childElementCount >= GROUP)) {
			group = h('div', { role: 'presentation', hidden: true });
			log.append(group);
		}
		group.append(made);
		articles.push(made);
	}

	/** When the call ran that ends with this event. */
	function ran({ kind, body, ts }) {
		const call = kind === 'tool_result' && calls.get(body.call_id);
		if (!call) return;
		const [from, to] = [call.at, Date.parse(ts)].map((each) => (each - began) / 1000);
		while (axis < to) axis *= 2;
		return { tool: call.tool, from, to };
	}

	/** Hide an article that is not wanted. */
	function check(each) {
		const words = find.value.toLowerCase();
		each.hidden = !(
			first + checked < chosen() &&
			(!kinds.value || events[checked].kind === kinds.value) &&
			(!words || each.textContent.toLowerCase().includes(words))
		);
		each.parentElement.hidden &&= each.hidden;
	}

	function filter() {
		checked = 0;
		for (const each of log.children) each.hidden = true;
		work();
	}

	/** Say which events are here. */
	function say() {
		const last = first + events.length;
		earlier.hidden = first === 0;
		later.hidden = last >= total;
		log.style.setProperty('--axis', String(axis));
		log.classList.toggle('follows', follows);
		const part = `Events ${first + 1} to ${last} are in the page; Find looks at these. `;
		const bars = `Bars show when tools ran, on an axis of ${duration(1000 * axis)}.`;
		const words = trouble || (events.length < total ? part : '') + (calls.size ? bars : '');
		if (note.textContent !== words) put(note, words);
		slider.max = total;
		slider.value = count();
		put(position, `${count()} of ${total}`);
	}

	function scrolled() {
		const { scrollTop, clientHeight, scrollHeight } = log;
		const atEnd = scrollTop + clientHeight >= scrollHeight - 8;
		if (atEnd) follows = first + events.length >= total && chosen() === Infinity;
		else if (scrollTop < top) follows = false;
		top = scrollTop;
	}

	// -- time travel

	/** How many events the reader wants to see. */
	function chosen() {
		return Number(query.get('at') ?? Infinity);
	}

	/** How many there are to see. */
	function count() {
		return Math.min(chosen(), total);
	}

	/** Whether the reader looks at the past. */
	function travels() {
		return chosen() < total;
	}

	/** What the events tell that the reader wants to see. */
	function story() {
		if (!travels()) return whole;
		const told = { ...before };
		for (const each of events.slice(0, Math.max(0, chosen() - first))) tell(told, each);
		return told;
	}

	/** @param {boolean} arrived whether the slider is let go of */
	function travel(arrived) {
		const at = Number(slider.value);
		place.setQuery({ at: at < total ? String(at) : null });
		const last = first + events.length;
		if (at >= first && at <= last && (travels() || last === total)) {
			follows = !travels();
			goal = at;
			filter();
		} else if (arrived) move(chosen());
		onevent(null);
	}

	return {
		element,
		load,
		leave,
		take,
		travels,
		story,
		total: () => total,
		count,
		backlog: () => events.length - articles.length,
	};
}
