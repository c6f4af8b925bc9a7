/** The form for a new job: the agents of the runtime, input as JSON or in fields, lease and budget. */

import { clipped, h, jsonOrText, option, put, say } from './dom.js';
import { command } from './job.js';

/** Characters of an input that the tab keeps, to run the job again. */
const MOST_KEPT = 100_000;

/** @param {Place} place */
export function showForm(place) {
	const { client, main } = place;
	const kept = JSON.parse(sessionStorage.getItem('arcp-again') ?? 'null');
	sessionStorage.removeItem('arcp-again');
	const agents = client.agents.flatMap(({ name, versions }) =>
		versions.map((version) => option(`${name}@${version}`, versions.length === 1 ? name : undefined)),
	);
	const agent = h('select', { id: 'agent', required: true, onchange: choose }, ...agents);
	const input = h('textarea', { id: 'input', rows: '5', spellcheck: 'false' }, 'null');
	const fields = h('fieldset', { hidden: true, oninput: fill });
	const lease = h('textarea', { id: 'lease', rows: '2', spellcheck: 'false', placeholder: 'tool.call=search.*' });
	const budget = h('input', { id: 'budget', placeholder: 'USD:5.00' });
	const minutes = h('input', { id: 'minutes', type: 'number', min: '1' });
	const problem = h('p', { role: 'alert', hidden: true });
	const shell = h('code');
	const form = h(
		'form',
		{ 'aria-label': 'New job', class: 'panel', oninput: tell, onsubmit: submit },
		h('h1', 'New job'),
		...labelled('Agent', agent),
		fields,
		...labelled('Input', input),
		...labelled('Lease', lease),
		...labelled('Budget', budget),
		...labelled('Minutes until the lease ends', minutes),
		problem,
		h('button', { type: 'submit' }, 'Submit'),
		h('p', 'The same on the command line: ', shell),
	);
	document.title = 'New job · arcp-trio';
	put(main, agents.length ? form : h('p', 'The runtime has no agents.'));
	if (kept) agent.value = kept.agent;
	choose();
	if (kept) refill();

	function refill() {
		const { 'cost.budget': amounts = [], ...given } = kept.lease ?? {};
		const lines = Object.entries(given).map(([name, patterns]) => patterns.map((each) => `${name}=${each}`));
		lease.value = lines.flat().join('\n');
		budget.value = amounts.join(' ');
		if (agent.value !== kept.agent) say(problem, `The runtime has no agent ${kept.agent} any longer.`);
		else if (kept.input === null) say(problem, `The runtime does not tell the input of ${kept.id}: write it here.`);
		else input.value = kept.input;
		tell();
	}

	/** Show fields for the input, if the agent has told what it is. */
	function choose() {
		const schema = client.inputSchemas[agent.value];
		const properties = schema?.properties ?? {};
		const names = Object.keys(properties);
		fields.hidden = names.length === 0;
		put(
			fields,
			schema && h('legend', clipped(schema.description ?? schema.title ?? 'Fields of the input', 300)),
			...names.flatMap((name) => {
				const required = (schema.required ?? []).includes(name);
				return labelled(clipped(name, 60) + (required ? '' : ' (optional)'), field(name, properties[name], required));
			}),
		);
		if (names.length) fill();
		else if (input.value === '{}') input.value = 'null';
		tell();
	}

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
		const input = (kind, more) =>
			h('input', { ...common, value: kind === 'json' ? usual : schema.default, 'data-kind': kind, ...more });
		if (type === 'boolean') return input('boolean', { required: false, type: 'checkbox', checked: schema.default });
		if (type === 'string') return input('text', { maxlength: schema.maxLength });
		if (!['integer', 'number'].includes(type)) return input('json', { placeholder: 'JSON' });
		const step = type === 'number' && 'any';
		return input('json', { type: 'number', step, min: schema.minimum, max: schema.maximum });
	}

	/** Write what the fields say into the input. */
	function fill() {
		const value = {};
		for (const each of fields.querySelectorAll('[data-name]')) {
			const { name, kind } = each.dataset;
			if (kind === 'boolean') value[name] = each.checked;
			else if (each.value !== '') value[name] = kind === 'json' ? jsonOrText(each.value) : each.value;
		}
		input.value = JSON.stringify(value, null, 2);
	}

	/** What is asked for, by capability. @returns {any} */
	function asked() {
		const lines = lease.value.split('\n').map((each) => each.trim().split('='));
		const amounts = budget.value.split(/[\s,]+/).map((each) => [each && 'cost.budget', each]);
		const found = {};
		for (const [capability, ...pattern] of [...lines, ...amounts]) {
			if (capability) found[capability] = [...(found[capability] ?? []), pattern.join('=')];
		}
		return found;
	}

	function tell() {
		const given = input.value.trim() === 'null' ? null : compact();
		const more = minutes.value ? ['--expires-in', `${minutes.value}m`] : [];
		put(shell, command(agent.value, given, asked(), ...more));
	}

	function compact() {
		try {
			return JSON.stringify(JSON.parse(input.value));
		} catch {
			return input.value;
		}
	}

	async function submit(event) {
		event.preventDefault();
		say(problem, '');
		try {
			const given = read();
			const ends = Date.now() + 60_000 * minutes.value;
			const expiresAt = minutes.value ? new Date(ends).toISOString() : undefined;
			const job = await place.elsewhere((other) => other.submit(agent.value, given, { lease: asked(), expiresAt }));
			if (compact().length < MOST_KEPT) sessionStorage.setItem(`arcp-input-${job.id}`, compact());
			location.hash = `#/jobs/${job.id}`;
		} catch (error) {
			say(problem, error.message);
		}
	}

	function read() {
		try {
			return JSON.parse(input.value);
		} catch (error) {
			const at = Number(/position (\d+)/.exec(error)?.[1]);
			if (at >= 0) input.setSelectionRange(at, at + 1);
			input.focus();
			throw new Error(`The input is not JSON: ${error.message}`);
		}
	}
}

function labelled(words, field) {
	return [h('label', { for: field.id }, words), field];
}
