/** Elements made of trusted names and untrusted texts, and how values are written for people. */

export const VENDOR = 'x-vendor.arcp-trio';

/** What cannot be seen, or changes how other text is. */
const HIDDEN = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** The text with such characters as their numbers. */
export function visible(text) {
	return String(text).replace(HIDDEN, (each) => `⟨${each.codePointAt(0)?.toString(16).padStart(4, '0')}⟩`);
}

/** The text, or its beginning if it is long. */
export function clipped(text, most = 200) {
	const whole = String(text ?? '');
	return visible(whole.length > most ? `${whole.slice(0, most)}…` : whole);
}

/**
 * Make an element: texts become text nodes, never markup. An object may come first, with attributes and handlers.
 * @returns {any}
 */
export function h(name, ...rest) {
	const element = document.createElement(name);
	const properties = rest[0]?.constructor === Object ? rest.shift() : {};
	for (const [key, value] of Object.entries(properties)) {
		if ((value ?? false) === false) continue;
		if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
		else element.setAttribute(key, value === true ? '' : String(value));
	}
	put(element, ...rest);
	return element;
}

/** Replace what an element contains. */
export function put(element, ...children) {
	const shown = children.filter((each) => (each ?? false) !== false);
	element.replaceChildren(...shown.map((each) => (each instanceof Node ? each : visible(each))));
}

/** Show words, if there are any. */
export function say(element, words) {
	element.hidden = !words;
	put(element, words);
}

/** Replace what has changed only, so that what is selected stays. */
export function renew(element, ...children) {
	children.forEach((each, index) => {
		const before = element.children[index];
		if (!before) element.append(each);
		else if (!before.isEqualNode(each)) before.replaceWith(each);
	});
	while (element.children.length > children.length) element.lastElementChild?.remove();
}

/** Whether a link or a button is pressed: nothing moves until it is let go of, or the click would get lost. */
export function isPressed() {
	const pressed = ':is(a, button, summary):active';
	return document.documentElement.matches(':active') && document.querySelector(pressed) !== null;
}

/** How long a button that acts at once must have stood still in sight. */
const STILL_MS = 500;

/** Where the pointer was last; browsers tell of a move, too, where something moves below it. */
let pointer = '';
const whereIs = ({ clientX, clientY }) => `${clientX},${clientY}`;
addEventListener('pointermove', (event) => {
	pointer = whereIs(event);
});

/**
 * Keep the buttons in a box from taking what was not meant for them: a press that began before they had stood still
 * in sight for a moment, or a key that is held down. They are `aria-disabled` until then, and again after each move.
 * One may scroll to a button and press it, unless it came under a pointer that rests.
 */
export function guard(box) {
	let [place, since, scrolled, slidAt, early] = ['', 0, 0, -Infinity, false];
	const measure = (now) => {
		const { x, y, width, height } = box.getBoundingClientRect();
		const modal = document.querySelector('dialog:modal');
		const seen = width > 0 && (!modal || modal.contains(box));
		let by = 0;
		for (let up = box.parentElement; up; up = up.parentElement) by += up.scrollTop;
		const moves = box.closest('[data-moves]')?.dataset.moves;
		const spot = seen ? [...[x, y + by, width, height].map(Math.round), moves].join() : '';
		if (spot !== place) since = now;
		else if (by !== scrolled) slidAt = now;
		[place, scrolled] = [spot, by];
	};
	const isStill = (now) => place !== '' && now - since >= STILL_MS;
	const isReady = (now) => isStill(now) && now - slidAt >= STILL_MS;
	const look = () => {
		if (!box.isConnected) return;
		const now = performance.now();
		measure(now);
		for (const each of box.querySelectorAll('button')) each.ariaDisabled = isReady(now) ? null : 'true';
		requestAnimationFrame(look);
	};
	const judge = (event) => {
		const now = performance.now();
		measure(now);
		if (event.type === 'pointermove') {
			if (whereIs(event) !== pointer) slidAt = -Infinity;
		} else if (event.type === 'pointerdown') early = !isReady(now);
		else if (event.type === 'keydown') early = event.repeat || !isStill(now);
		else if (event.target.closest('button')) {
			if (early || !isStill(now)) {
				event.preventDefault();
				event.stopPropagation();
			}
			early = false;
		}
	};
	for (const each of ['pointermove', 'pointerdown', 'keydown', 'click']) box.addEventListener(each, judge, true);
	for (const each of box.querySelectorAll('button')) each.ariaDisabled = 'true';
	requestAnimationFrame(look);
}

/** Ask something in a dialog: whether the first button was pressed. @returns {Promise<boolean>} */
export function ask(question, words, yes, no) {
	return new Promise((resolve) => {
		const dialog = h('dialog', { 'aria-label': question }, h('h2', question), h('p', words));
		const end = (said) => () => {
			resolve(said);
			dialog.close();
		};
		dialog.append(button(yes, end(true)), ...(no ? [button(no, end(false), { autofocus: true })] : []));
		dialog.addEventListener('close', () => {
			dialog.remove();
			resolve(false);
		});
		document.body.append(dialog);
		dialog.showModal();
		guard(dialog);
	});
}

/** A choice among names, or of all. */
export function choice(label, all, names = []) {
	return h('select', { 'aria-label': label }, option('', all), ...names.map((each) => option(each)));
}

export function finder() {
	return h('input', { type: 'search', 'aria-label': 'Find', placeholder: 'Find  /' });
}

export function option(value, words = value) {
	return h('option', { value }, words);
}

export function button(words, onclick, more) {
	return h('button', { type: 'button', onclick, ...more }, words);
}

/** A link if the address is one of the web, else its text. */
export function link(address) {
	const href = String(address);
	const words = clipped(href, 500);
	return /^https?:\/\//i.test(href) ? h('a', { href, target: '_blank', rel: 'noopener noreferrer' }, words) : words;
}

/** A time in the reader's zone, exact on hover. */
export function time(timestamp) {
	if (!timestamp) return '';
	const date = new Date(timestamp);
	const sameDay = date.toDateString() === new Date().toDateString();
	const text = sameDay
		? date.toLocaleTimeString()
		: date.toLocaleString(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' });
	return h('time', { datetime: timestamp, title: `${date.toLocaleString()} (${timestamp})` }, text);
}

export function duration(ms) {
	if (!(ms >= 0)) return '';
	if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
	const seconds = Math.round(ms / 1000);
	const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
	const two = (each) => String(each).padStart(2, '0');
	if (hours) return `${hours}:${two(minutes)}:${two(rest)}`;
	return minutes ? `${minutes}:${two(rest)}` : `${rest} s`;
}

const ICONS = {
	pending: '○',
	running: '●',
	waiting: '?',
	success: '✓',
	error: '✗',
	cancelled: '■',
	timed_out: '⧖',
};

/** A state as an icon and a word. */
export function stateWord(state) {
	const known = ICONS[state] ? state : '';
	return h('span', { class: known, 'data-icon': ICONS[state] ?? '·' }, state.replace('_', ' '));
}

/** What was spent of what was given, in words. */
export function money(budget, spent) {
	const names = new Set(Object.keys({ ...budget, ...spent }));
	return Array.from(names, (name) => {
		const gone = amount(spent?.[name] ?? 0);
		return budget?.[name] === undefined ? `${gone} ${name}` : `${gone} of ${amount(budget[name])} ${name}`;
	}).join(', ');
}

/** An amount of money as people write it. */
export function amount(value) {
	return Number(value).toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 6 });
}

export function setProgress(bar, { current, total }) {
	if (!total) return bar.removeAttribute('value');
	bar.max = total;
	bar.value = Math.min(current, total);
}

/** JSON for reading, at most so long. */
export function shownJson(value, most = 20_000) {
	return clipped(typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? ''), most);
}

/** What somebody has typed, as JSON if it is that. */
export function jsonOrText(text) {
	try {
		return JSON.parse(text);
	} catch {
		return text;
	}
}
