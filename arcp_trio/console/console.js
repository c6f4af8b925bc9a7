/** The console: signs in, keeps one session with the runtime, and shows the place of the address. */

import { ArcpError, Client } from './arcp.js';
import { ask, clipped, duration, h, put, VENDOR } from './dom.js';
import { showJob } from './job.js';
import { showJobs } from './jobs.js';
import { showForm } from './new.js';

const TOKEN = 'arcp-token';
/** As whom the tab is signed in, in words. */
const WHO = 'arcp-who';
const PATIENCE_MS = 3000;
const RETRY_MS = 4000;
const DAMAGED = 'The link is damaged: what follows its = cannot be read. Copy all of it, or type the token';
const [main, state, facts, who, signOut] = ['main', 'state', 'facts', 'who', 'sign-out'].map(
	(id) => /** @type {HTMLElement} */ (document.getElementById(id)),
);
const socketUrl = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/arcp`;

/** @type {Client | null} */
let client = null;
/** With what it is signed in: a token, or a code that is good once. @type {string | null} */
let token = null;
/** All open sessions. @type {Set<Client>} */
const sessions = new Set();
/** @type {Place | null} */
let place = null;

/** @param {string} secret @param {Partial<import('./arcp-types.d.ts').Options>} [options] */
function session(secret, options) {
	const made = new Client(socketUrl, { token: secret, name: 'console', ...options });
	sessions.add(made);
	made.closed.then(() => sessions.delete(made));
	return made;
}

/** Take a token or a code out of the address, where it must not stay. It is empty if it cannot be read. */
function takeLink(before = '#/') {
	const found = /^#(?:token|code)=(.*)$/s.exec(location.hash);
	if (!found) return null;
	history.replaceState(null, '', `${location.pathname}${before}`);
	try {
		return decodeURIComponent(found[1]);
	} catch {
		return '';
	}
}

/** Sign in as a link says. If somebody else is signed in, ask first: a link never changes that by itself. */
async function follow(link) {
	const before = sessionStorage.getItem(WHO);
	if (!before) {
		forget();
		return link ? begin(link) : showSignIn(`${DAMAGED}.`);
	}
	try {
		const { secret, name } = await introduce(link);
		if (name !== before) {
			const words = `This tab is signed in as ${before}. The link is for ${name}.`;
			if (!(await ask('Sign in as somebody else?', words, `Sign in as ${name}`, `Stay ${before}`))) return;
			forget();
			history.replaceState(null, '', `${location.pathname}#/`);
		}
		client?.close();
		begin(secret);
	} catch (error) {
		ask('The link signs nobody in', `${error.message}. This tab stays signed in as ${before}.`, 'Close');
	}
}

/** Find out for whom a token or a code is, and the token that the code stands for. */
async function introduce(secret) {
	if (!secret) throw new Error(DAMAGED);
	const other = session(secret);
	try {
		await other.opened;
		return { secret: exchanged(other) ?? secret, name: nameOf(other) };
	} finally {
		other.close();
	}
}

function exchanged({ welcome }) {
	return welcome[`${VENDOR}.token`];
}

/** As whom a session is known, in words. */
function nameOf({ welcome, features }, most = Infinity) {
	const name = clipped(welcome[`${VENDOR}.principal`], most);
	return features.includes(`${VENDOR}.tokens`) ? name : `${name}, for looking only`;
}

function showSignIn(reason = null) {
	leavePlace();
	signOut.hidden = true;
	put(who);
	state.textContent = 'Signed out';
	put(facts);
	document.title = 'Sign in · arcp-trio';
	const field = h('input', { id: 'token', autocomplete: 'off', required: true });
	const onsubmit = (event) => {
		event.preventDefault();
		begin(field.value.trim());
	};
	const form = h(
		'form',
		{ 'aria-label': 'Sign in', class: 'panel', onsubmit },
		h('h1', 'Sign in'),
		reason && h('p', { role: 'alert' }, reason),
		h('p', 'The runtime prints a token when it starts; arcp-trio console opens this page signed in.'),
		h('label', { for: 'token' }, 'Token'),
		field,
		h('button', { type: 'submit' }, 'Sign in'),
	);
	put(main, form);
	field.focus();
}

/** End all sessions, and empty the tab's storage: nothing that the modules keep outlasts who was signed in. */
function forget() {
	client = token = null;
	for (const each of sessions) each.close();
	sessionStorage.clear();
}

/** Open a session with a token, or with a code. */
async function begin(secret = sessionStorage.getItem(TOKEN)) {
	if (!secret) return showSignIn();
	token = secret;
	leavePlace();
	put(main, h('p', 'Connecting…'));
	const mine = session(secret, {
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
	if (client !== mine) return;
	const instead = exchanged(mine);
	if (instead) {
		client = null;
		mine.close();
		return begin(instead); // the code is good no longer: the session could not be resumed with it
	}
	sessionStorage.setItem(TOKEN, secret);
	sessionStorage.setItem(WHO, nameOf(mine));
	put(who, nameOf(mine, 60));
	signOut.hidden = false;
	showPlace();
}

function over(why) {
	client = null;
	if (why instanceof ArcpError && why.code === 'UNAUTHENTICATED') {
		const what = token?.startsWith('arcp-code.') ? 'link' : 'token';
		forget();
		return showSignIn(`The ${what} is not accepted: ${why.message}.`);
	}
	// The session is gone, or there was no connection: another session shows the same again.
	state.textContent = 'Reconnecting';
	put(facts, 'Lost the runtime, trying again in 4 s; nothing is missed.');
	const secret = token;
	setTimeout(() => client === null && secret && token === secret && begin(secret), RETRY_MS);
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
	document.querySelector('dialog')?.close();
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

/** What this page's session submits, it could not unsubscribe from. @type {Place['elsewhere']} */
async function elsewhere(act, onevent) {
	const other = session(token ?? '', { onevent });
	try {
		await other.opened;
		return await act(other);
	} finally {
		other.close();
	}
}

window.addEventListener('hashchange', ({ oldURL }) => {
	const link = takeLink(new URL(oldURL).hash);
	if (link === null) showPlace();
	else follow(link);
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

const link = takeLink();
if (link === null || sessionStorage.getItem(WHO)) await begin();
if (link !== null) follow(link);
