/** Each event of a timeline as an article: a sentence, with what it carries folded below. */

import { button, clipped, duration, h, jsonOrText, link, put, shownJson, stateWord, time, VENDOR } from './dom.js';

/** Below this, a value is shown in the line. */
const SHORT = 200;

/** @param {Place} place @param {Ran} [ran] when the call ran that ends with the event */
export function article(event, place, id, ran) {
	const words = event.kind === `${VENDOR}.question` ? [question(event.body, id, place)] : said(event, ran);
	return h(
		'article',
		{ 'data-seq': event.seq, 'data-kind': event.kind },
		h('span', { class: 'at' }, time(event.ts)),
		h('span', { class: 'kind' }, clipped(event.kind.replace(`${VENDOR}.`, ''), 60)),
		h('div', { class: 'words' }, ...words),
	);
}

function said(event, ran) {
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
			return [h('strong', clipped(body.phase)), ' ', folded(body.message)];
		case 'progress':
			return [
				`${body.current}${body.total ? ` of ${body.total}` : ''} ${clipped(body.units, 60)} `,
				folded(body.message),
			];
		case 'metric':
			return [`${clipped(body.name)} ${body.value} ${clipped(body.unit, 60)}`];
		case 'artifact_ref':
			return [link(body.uri), ' ', clipped(body.content_type, 100)];
		case 'tool_call':
			return [h('strong', clipped(body.tool)), ' ', folded(body.args)];
		case 'tool_result':
			return outcome(body, ran);
		case 'delegate':
			return ['to ', h('strong', clipped(body.agent)), ' ', folded(body.input)];
		case 'result_chunk':
			return [h('span', { class: 'chunk' }, body.encoding === 'base64' ? 'bytes' : clipped(body.data, 20_000))];
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

/** A value in the line if it is short, else folded. */
function folded(value) {
	if (value === undefined || value === null || value === '') return null;
	const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
	if (text.length <= SHORT && !text.includes('\n')) return text;
	const pre = h('pre');
	const details = h('details', h('summary', clipped(text.replaceAll('\n', ' '))), pre);
	details.addEventListener('toggle', () => {
		if (details.open && !pre.textContent) put(pre, shownJson(value));
	});
	return details;
}

function outcome({ error, result }, ran) {
	const words = error
		? h('span', { class: 'level error' }, `${clipped(error.code, 60)}: ${clipped(error.message)}`)
		: folded(result);
	if (!ran) return [words];
	const { tool, from, to } = ran;
	const when = `From ${duration(1000 * from)} to ${duration(1000 * to)} after the start`;
	const bar = h('span', { class: 'bar', role: 'img', 'aria-label': when, title: when });
	bar.style.setProperty('--from', from);
	bar.style.setProperty('--to', to);
	return [h('strong', clipped(tool)), ` ${duration(1000 * (to - from))} `, bar, ' ', words];
}

/** A question, answered in place. */
function question(body, id, place) {
	const note = h('p', { role: 'status' });
	const box = h('div', { class: 'question' }, h('p', clipped(body.prompt, 4000)));
	const answer = async (value) => {
		try {
			await place.client.answer(id, body.question_id, value);
			put(note, 'answered');
		} catch (error) {
			put(note, error.message);
		}
	};
	const options = body.kind === 'approval' ? ['allow', 'deny'] : body.options;
	if (options) {
		for (const each of options) box.append(button(clipped(each), () => answer(each)));
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
