/** The articles of a timeline: each event as a sentence, with what it carries folded below. */

import { button, clipped, duration, h, jsonOrText, link, put, shownJson, stateWord, time } from './dom.js';

const QUESTION = 'x-vendor.arcp-trio.question';
/** Below this, a value is shown in the line. */
const SHORT = 200;

/** @typedef {{ calls: Map<string, any>, id: string, place: import('./console.js').Place }} Around */

/** @param {any} event @param {Around} around @returns {HTMLElement} */
export function article(event, around) {
	const made = h('article', { 'data-seq': event.seq, 'data-kind': event.kind });
	const words = h('div', { class: 'words' });
	put(words, ...said(event, around));
	put(
		made,
		h('span', { class: 'at' }, time(event.ts)),
		h('span', { class: 'kind' }, clipped(event.kind.replace('x-vendor.arcp-trio.', ''), 60)),
		words,
	);
	return made;
}

/** @param {any} event @param {Around} around @returns {import('./dom.js').Child[]} */
function said(event, { calls, id, place }) {
	const body = event.body ?? {};
	switch (event.kind) {
		case 'log':
			return [
				h('span', { class: `level ${['warn', 'error'].includes(body.level) ? body.level : ''}` }, body.level ?? 'info'),
				' ',
				folded(body.message),
			];
		case 'thought':
			return [folded(body.text)];
		case 'status':
			return [h('strong', {}, clipped(body.phase ?? '', SHORT)), ' ', folded(body.message ?? '')];
		case 'progress':
			return [
				`${body.current}${body.total ? ` of ${body.total}` : ''} ${clipped(body.units ?? '', 60)} `,
				folded(body.message ?? ''),
			];
		case 'metric':
			return [`${clipped(body.name, SHORT)} ${body.value} ${clipped(body.unit ?? '', 60)}`];
		case 'artifact_ref':
			return [link(body.uri), ' ', clipped(body.content_type ?? '', 100)];
		case 'tool_call':
			return [h('strong', {}, clipped(body.tool ?? '', SHORT)), ' ', folded(body.args)];
		case 'tool_result':
			return outcome(event, calls.get(body.call_id));
		case 'delegate':
			return ['to ', h('strong', {}, clipped(body.agent ?? '', SHORT)), ' ', folded(body.input)];
		case 'result_chunk':
			return [h('span', { class: 'chunk' }, body.encoding === 'base64' ? 'bytes' : clipped(body.data, 20_000))];
		case QUESTION:
			return [question(body, id, place)];
		case 'end':
			return [
				stateWord(event.status),
				' ',
				event.error ? `${event.error.code}: ${event.error.message}` : folded(event.result),
			];
		default:
			return [folded(event.body)];
	}
}

/** A value in the line if it is short, else folded. @param {unknown} value */
function folded(value) {
	if (value === undefined || value === null || value === '') return null;
	const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
	if (text.length <= SHORT && !text.includes('\n')) return text;
	const pre = h('pre', {});
	const details = h('details', {}, h('summary', {}, clipped(text.replaceAll('\n', ' '), SHORT)), pre);
	details.addEventListener('toggle', () => {
		if (details.open && !pre.textContent) put(pre, shownJson(value));
	});
	return details;
}

/** @param {any} event @param {any} call */
function outcome(event, call) {
	const { error, result } = event.body;
	const took = call ? Date.parse(event.ts) - Date.parse(call.ts) : NaN;
	const bar = h('meter', { min: '0', max: '10000', 'aria-label': 'Duration of the call' });
	bar.value = Math.min(10_000, took || 0);
	const head = call ? [h('strong', {}, clipped(call.body.tool ?? '', SHORT)), ` ${duration(took)} `, bar] : [];
	return [
		...head,
		' ',
		error
			? h('span', { class: 'level error' }, `${clipped(error.code ?? '', 60)}: ${clipped(error.message ?? '', SHORT)}`)
			: folded(result),
	];
}

/** A question, answered in place. @param {any} body @param {string} id @param {import('./console.js').Place} place */
function question(body, id, place) {
	const note = h('p', { role: 'status' });
	const box = h('div', { class: 'question' }, h('p', {}, clipped(body.prompt, 4000)));
	const answer = async (/** @type {any} */ value) => {
		try {
			await place.client.answer(id, body.question_id, value);
			put(note, 'answered');
		} catch (error) {
			put(note, /** @type {Error} */ (error).message);
		}
	};
	const options = body.kind === 'approval' ? ['allow', 'deny'] : body.options;
	if (options) {
		for (const each of options) box.append(button(clipped(each, SHORT), () => answer(each)));
	} else {
		const field = h('input', { 'aria-label': 'Answer' });
		const value = () => (body.schema?.type === 'string' ? field.value : jsonOrText(field.value));
		box.append(
			field,
			button('Answer', () => answer(value())),
		);
	}
	box.append(note);
	return box;
}
