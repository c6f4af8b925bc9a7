/** The form for a new job: the agents of the runtime, input as JSON or in fields, lease and budget. */

import { clipped, h, jsonOrText, option, put } from './dom.js';
import { quoted } from './job.js';

/** @param {import('./console.js').Place} place */
export function showForm(place) {
	const { client, main } = place;
	const kept = JSON.parse(sessionStorage.getItem('arcp-again') ?? 'null');
	sessionStorage.removeItem('arcp-again');
	const agents = client.agents.flatMap((each) =>
		(each.versions ?? ['']).map((/** @type {string} */ version) => ({
			name: each.name ?? String(each),
			version,
			isOnly: each.versions?.length === 1,
		})),
	);
	const agent = h(
		'select',
		{ id: 'agent', required: true },
		...agents.map(({ name, version, isOnly }) => {
			const ref = version ? `${name}@${version}` : name;
			return option(ref, isOnly ? name : ref);
		}),
	);
	const input = h('textarea', { id: 'input', rows: '5', spellcheck: 'false' }, 'null');
	const fields = h('fieldset', { hidden: true });
	const lease = h('textarea', { id: 'lease', rows: '2', spellcheck: 'false', placeholder: 'tool.call=search.*' });
	const budget = h('input', { id: 'budget', placeholder: 'USD:5.00' });
	const minutes = h('input', { id: 'minutes', type: 'number', min: '1' });
	const problem = h('p', { role: 'alert', hidden: true });
	const command = h('code', {});
	const form = h(
		'form',
		{ 'aria-label': 'New job', class: 'panel' },
		h('h1', {}, 'New job'),
		...labelled('Agent', agent),
		fields,
		...labelled('Input', input),
		...labelled('Lease', lease),
		...labelled('Budget', budget),
		...labelled('Minutes until the lease ends', minutes),
		problem,
		h('button', { type: 'submit' }, 'Submit'),
		h('p', {}, 'The same on the command line: ', command),
	);
	document.title = 'New job · arcp-trio';
	put(main, agents.length ? form : h('p', {}, 'The runtime has no agents.'));
	if (kept) agent.value = kept.agent;
	choose();
	if (kept) refill();
	agent.addEventListener('change', choose);
	form.addEventListener('input', tell);
	form.addEventListener('submit', (/** @type {Event} */ event) => {
		event.preventDefault();
		submit();
	});

	function refill() {
		input.value = kept.input ?? input.value;
		const given = Object.entries(kept.lease ?? {}).filter(([name]) => name !== 'cost.budget');
		lease.value = given
			.flatMap(([name, patterns]) => patterns.map((/** @type {string} */ each) => `${name}=${each}`))
			.join('\n');
		budget.value = Object.entries(kept.budget ?? {})
			.map(([name, most]) => `${name}:${most}`)
			.join(' ');
		tell();
	}

	/** Show fields for the input, if the agent has told what it is. */
	function choose() {
		const schema = client.inputSchemas[agent.value];
		const properties = schema?.type === 'object' ? (schema.properties ?? {}) : {};
		const names = Object.keys(properties);
		fields.hidden = names.length === 0;
		put(
			fields,
			schema && h('legend', {}, clipped(schema.description ?? schema.title ?? 'Fields of the input', 300)),
			...names.flatMap((name) => {
				const required = (schema.required ?? []).includes(name);
				const made = field(name, properties[name], required);
				return made
					? [h('label', { for: `field-${name}` }, clipped(name, 60) + (required ? '' : ' (optional)')), made]
					: [];
			}),
		);
		if (names.length) fill();
		else if (input.value === '{}') input.value = 'null';
		tell();
	}

	/** @param {string} name @param {any} schema @param {boolean} required */
	function field(name, schema, required) {
		const common = { id: `field-${name}`, 'data-name': name, required, title: schema.description };
		const type = String(schema.type).replace(/,?null,?/, '');
		const usual = JSON.stringify(schema.default);
		if (schema.enum) {
			const made = h('select', { ...common, 'data-kind': 'json' }, !required && option(''));
			for (const each of schema.enum) made.append(option(JSON.stringify(each)));
			made.value = usual ?? made.value;
			return made;
		}
		const input = (/** @type {string} */ kind, /** @type {any} */ more) =>
			h('input', { ...common, value: kind === 'json' ? usual : schema.default, 'data-kind': kind, ...more });
		if (type === 'boolean') return input('boolean', { required: false, type: 'checkbox', checked: schema.default });
		if (type === 'string') return input('text', { maxlength: schema.maxLength });
		if (!['integer', 'number'].includes(type)) return input('json', { placeholder: 'JSON' });
		const step = type === 'number' && 'any';
		return input('json', { type: 'number', step, min: schema.minimum, max: schema.maximum });
	}

	/** Write what the fields say into the input. */
	function fill() {
		/** @type {{ [name: string]: any }} */
		const value = {};
		for (const each of fields.querySelectorAll('[data-name]')) {
			const { name, kind } = each.dataset;
			if (kind === 'boolean') value[name] = each.checked;
			else if (each.value !== '') value[name] = kind === 'json' ? jsonOrText(each.value) : each.value;
		}
		input.value = JSON.stringify(value, null, 2);
	}
	fields.addEventListener('input', fill);

	/** @returns {any} */
	function options() {
		/** @type {{ [capability: string]: string[] }} */
		const asked = {};
		for (const line of lease.value.split('\n')) {
			const [capability, ...pattern] = line.trim().split('=');
			if (capability) asked[capability] = [...(asked[capability] ?? []), pattern.join('=')];
		}
		const amounts = budget.value
			.split(/[\s,]+/)
			.filter(Boolean)
			.map((/** @type {string} */ each) => each.split(':'));
		return {
			lease: asked,
			budget: Object.fromEntries(amounts),
			...(minutes.value ? { expiresAt: new Date(Date.now() + 60_000 * Number(minutes.value)).toISOString() } : {}),
		};
	}

	function tell() {
		const { lease: asked, budget: amounts } = options();
		const words = ['arcp-trio submit', quoted(agent.value)];
		if (input.value.trim() !== 'null') words.push('--input', quoted(compact()));
		for (const [name, patterns] of Object.entries(asked))
			for (const each of /** @type {string[]} */ (patterns)) words.push('--lease', quoted(`${name}=${each}`));
		for (const [name, most] of Object.entries(amounts)) words.push('--budget', quoted(`${name}:${most}`));
		if (minutes.value) words.push('--expires-in', `${minutes.value}m`);
		put(command, words.join(' '));
	}

	function compact() {
		try {
			return JSON.stringify(JSON.parse(input.value));
		} catch {
			return input.value;
		}
	}

	async function submit() {
		problem.hidden = true;
		try {
			const given = read(input.value);
			const job = await place.elsewhere((other) => other.submit(agent.value, given, options()));
			sessionStorage.setItem(`arcp-input-${job.id}`, compact().slice(0, 10_000));
			location.hash = `#/jobs/${job.id}`;
		} catch (error) {
			problem.hidden = false;
			put(problem, /** @type {Error} */ (error).message);
		}
	}

	/** @param {string} text */
	function read(text) {
		try {
			return JSON.parse(text);
		} catch (error) {
			const place_ = /position (\d+)/.exec(String(error));
			if (place_) input.setSelectionRange(Number(place_[1]), Number(place_[1]) + 1);
			input.focus();
			throw new Error(`The input is not JSON: ${/** @type {Error} */ (error).message}`);
		}
	}
}

/** @param {string} words @param {HTMLElement} field */
function labelled(words, field) {
	return [h('label', { for: field.id }, words), field];
}
