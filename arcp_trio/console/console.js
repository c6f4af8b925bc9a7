/** The console: signs in, keeps one session with the runtime, and shows the place of the address. */

import { ArcpError, Client } from './arcp.js';
import { duration, h, put, VENDOR } from './dom.js';
import { showJob } from './job.js';
import { showJobs } from './jobs.js';
import { showForm } from './new.js';

const TOKEN = 'arcp-token';
const PATIENCE_MS = 3000;
const [main, state, facts, signOut] = ['main', 'state', 'facts', 'sign-out'].map(
	(id) => /** @type {HTMLElement} */ (document.getElementById(id)),
);
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

function showSignIn(reason = null) {
	leavePlace();
	signOut.hidden = true;
	state.textContent = 'Signed out';
	put(facts);
	document.title = 'Sign in · arcp-trio';
	const field = h('input', { id: 'token', autocomplete: 'off', required: true });
	const onsubmit = (event) => {
		event.preventDefault();
		sessionStorage.setItem(TOKEN, field.value.trim());
		begin();
	};
	const form = h(
		'form',
		{ 'aria-label': 'Sign in', class: 'panel', onsubmit },
		h('h1', 'Sign in'),
		reason && h('p', { role: 'alert' }, reason),
		h('p', 'The runtime prints a token when it starts; arcp-trio console opens this page with it.'),
		h('label', { for: 'token' }, 'Token'),
		field,
		h('button', { type: 'submit' }, 'Sign in'),
	);
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
	put(main, h('p', 'Connecting…'));
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
		const { name = 'runtime', version = '' } = client.welcome.runtime ?? {};
		const { store, nodes = [] } = client.welcome[VENDOR] ?? {};
		const behind = place?.backlog?.() ?? 0;
		const { lag, waited } = client;
		const words = [
			behind ? `${behind} events to show` : 'caught up',
			`event ${client.lastSeq}`,
			waited > PATIENCE_MS ? `no answer for ${duration(waited)}` : lag !== null && `lag ${Math.ceil(lag)} ms`,
			`${name} ${version}`,
			store && `store ${store}`,
			nodes.length > 1 && `nodes ${nodes.join(', ')}`,
		];
		put(facts, words.filter(Boolean).join(' · '));
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
		each.ariaCurrent = each.getAttribute('href') === `#${path || '/'}` ? 'page' : null;
	}
}

/** What this page's session submits, it could not subscribe to. @type {Place['elsewhere']} */
async function elsewhere(act, onevent) {
	const other = new Client(socketUrl, { token: sessionStorage.getItem(TOKEN) ?? '', name: 'console', onevent });
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
	const writes = target.matches('input, textarea, select');
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	if (event.key === 'Escape' && !document.querySelector('dialog[open]')) {
		if (writes) target.blur();
		else if (location.hash.length > 2) location.hash = '#/';
	}
	if (writes) return;
	if (event.key === '/') {
		event.preventDefault();
		/** @type {any} */ (document.querySelector('input[type=search]'))?.focus();
	} else place?.onkey?.(event);
});

begin();
