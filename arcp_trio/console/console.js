/** The console: signs in, keeps one session with the runtime, and shows the place of the address. */

import { ArcpError, Client } from './arcp.js';
import { duration, h, put } from './dom.js';
import { showJob } from './job.js';
import { showJobs } from './jobs.js';
import { showForm } from './new.js';

/**
 * What a place needs: the session, its address, and where its events go.
 * @typedef {object} Place
 * @property {Client} client
 * @property {URLSearchParams} query
 * @property {HTMLElement} main
 * @property {(changes: { [name: string]: string | null }) => void} setQuery
 * @property {(event: any) => void} [onevent]
 * @property {(act: (elsewhere: Client) => Promise<any>) => Promise<any>} elsewhere does something in a
 *   session of its own
 * @property {() => void} [leave]
 * @property {(event: KeyboardEvent) => void} [onkey]
 */

const TOKEN = 'arcp-token';
const main = /** @type {HTMLElement} */ (document.getElementById('main'));
const state = /** @type {HTMLElement} */ (document.getElementById('state'));
const facts = /** @type {HTMLElement} */ (document.getElementById('facts'));
const signOut = /** @type {HTMLButtonElement} */ (document.getElementById('sign-out'));
const socketUrl = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/arcp`;

/** @type {Client | null} */
let client = null;
/** @type {Place | null} */
let place = null;

/** Take the token out of the address, where it must not stay. */
function takeToken() {
	const found = /^#token=(.+)$/.exec(location.hash);
	if (found) {
		sessionStorage.setItem(TOKEN, decodeURIComponent(found[1]));
		history.replaceState(null, '', `${location.pathname}#/`);
	}
	return sessionStorage.getItem(TOKEN);
}

/** @param {string | null} [reason] */
function showSignIn(reason = null) {
	leavePlace();
	signOut.hidden = true;
	state.textContent = 'Signed out';
	put(facts);
	document.title = 'Sign in · arcp-trio';
	const field = h('input', {
		name: 'token',
		type: 'text',
		autocomplete: 'off',
		spellcheck: 'false',
		required: true,
		id: 'token',
	});
	const form = h(
		'form',
		{ 'aria-label': 'Sign in', class: 'panel' },
		h('h1', {}, 'Sign in'),
		reason && h('p', { role: 'alert' }, reason),
		h('p', {}, 'The runtime prints a token when it starts; arcp-trio console opens this page with it.'),
		h('label', { for: 'token' }, 'Token'),
		field,
		h('button', { type: 'submit' }, 'Sign in'),
	);
	form.addEventListener('submit', (/** @type {Event} */ event) => {
		event.preventDefault();
		sessionStorage.setItem(TOKEN, field.value.trim());
		begin();
	});
	put(main, form);
	field.focus();
}

function forget() {
	sessionStorage.clear();
	const session = client;
	client = null;
	session?.close();
}

/** Open a session with the token that is kept. */
async function begin() {
	const token = takeToken();
	if (!token) return showSignIn();
	put(main, h('p', {}, 'Connecting…'));
	const mine = new Client(socketUrl, {
		token,
		name: 'console',
		onevent: (event) => place?.onevent?.(event),
		onstate: () => client === mine && tell(),
	});
	client = mine;
	mine.closed.then((why) => client === mine && over(why));
	try {
		await mine.opened;
	} catch {
		return; // `closed` tells why
	}
	if (client === mine) {
		signOut.hidden = false;
		showPlace();
	}
}

/** @param {Error | null} why */
function over(why) {
	client = null;
	if (why instanceof ArcpError && why.code === 'UNAUTHENTICATED') {
		sessionStorage.removeItem(TOKEN);
		return showSignIn(`The token is not accepted: ${why.message}.`);
	}
	// The session is gone, or there was no connection: another session shows the same again.
	state.textContent = 'Reconnecting';
	put(facts, 'Lost the runtime, trying again in 4 s; nothing is missed.');
	setTimeout(() => client === null && sessionStorage.getItem(TOKEN) && begin(), 4000);
}

/** Say in the footer how the connection is. */
function tell() {
	if (!client) return;
	const live = client.state === 'live';
	const word = live ? 'Live' : client.state === 'closed' ? 'Signed out' : 'Reconnecting';
	if (state.textContent !== word) state.textContent = word;
	if (live) {
		const runtime = client.welcome.runtime ?? {};
		put(facts, `event ${client.lastSeq} · ${runtime.name ?? 'runtime'} ${runtime.version ?? ''}`);
	} else {
		const left = Math.max(0, (client.retryAt ?? Date.now()) - Date.now());
		put(facts, `Lost the runtime, trying again in ${duration(left)}; nothing is missed.`);
	}
}
setInterval(tell, 500);

// -- places

function leavePlace() {
	place?.leave?.();
	place = null;
}

function showPlace() {
	if (!client) return;
	leavePlace();
	const [path, query = ''] = location.hash.slice(1).split('?');
	/** @type {Place} */
	const here = {
		client,
		query: new URLSearchParams(query),
		main,
		setQuery: (changes) => {
			for (const [name, value] of Object.entries(changes)) {
				if (value) here.query.set(name, value);
				else here.query.delete(name);
			}
			const text = here.query.toString();
			history.replaceState(null, '', `#${path || '/'}${text ? `?${text}` : ''}`);
		},
		elsewhere,
	};
	place = here;
	const job = /^\/jobs\/([\w-]+)$/.exec(path);
	if (job) showJob(here, job[1]);
	else if (path === '/new') showForm(here);
	else showJobs(here);
	for (const each of document.querySelectorAll('nav a')) {
		const current = each.getAttribute('href') === `#${path || '/'}`;
		if (current) each.setAttribute('aria-current', 'page');
		else each.removeAttribute('aria-current');
	}
}

/**
 * Do something in a session of its own: what this page's session submits, it could not subscribe to.
 * @param {(elsewhere: Client) => Promise<any>} act
 */
async function elsewhere(act) {
	const other = new Client(socketUrl, { token: sessionStorage.getItem(TOKEN) ?? '', name: 'console' });
	try {
		await other.opened;
		return await act(other);
	} finally {
		other.close();
	}
}

window.addEventListener('hashchange', () => {
	if (location.hash.startsWith('#token=')) {
		forget();
		begin();
	} else showPlace();
});
window.addEventListener('online', () => client?.retry());
signOut.addEventListener('click', () => {
	forget();
	showSignIn();
});
window.addEventListener('keydown', (event) => {
	const target = /** @type {HTMLElement} */ (event.target);
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	if (event.key === 'Escape' && !document.querySelector('dialog[open]')) {
		if (target.matches('input, textarea, select')) target.blur();
		else if (location.hash.length > 2) location.hash = '#/';
	}
	if (target.matches('input, textarea, select')) return;
	if (event.key === '/') {
		event.preventDefault();
		/** @type {HTMLElement | null} */ (document.querySelector('input[type=search]'))?.focus();
	} else place?.onkey?.(event);
});

begin();
