/** Each event of a timeline as an article: a sentence, with what it carries folded below. */

import {
	button,
	clipped,
	duration,
	guard,
	h,
	jsonOrText,
	link,
	put,
	shownJson,
	stateWord,
	time,
	VENDOR,
} from './dom.js';

/** The kind of an event that asks people. */
export const QUESTION = `${VENDOR}.question`;

/** Below this, a value is shown in the line. */
const SHORT = 200;

/**
 * @param {Place} place
 * @param {{ ran?: Ran, answered?: string }} known when the call ran that ends with the event; how a question ended
 */
export function article(event, place, id, known) {
	const asks = event.kind === QUESTION;
	const words = asks ? [question(event.body, id, place, known.answered)] : said(event, known.ran);
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
			return [`${clipped(body.name)} ${Number(Number(body.value).toPrecision(15))} ${clipped(body.unit, 60)}`];
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

/** How a question ended, by the event that ends it, in words. */
export function ending({ kind, body, ts }) {
	if (kind === 'end') return 'not answered: the job has ended';
	const { by, decision, reason } = body.result ?? body.error?.details ?? {};
	const whose = by && !['timeout', 'end', 'agent'].includes(by) ? ` by ${by}` : '';
	const at = ts ? `, ${new Date(ts).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })}` : '';
	const why = typeof reason === 'string' ? `: ${reason}` : '';
	if (whose) return clipped(`${VERDICTS[decision] ?? 'answered'}${whose}${at}${why}`, 500);
	return clipped(body.error ? `not answered: ${body.error.message}` : `answered${at}`, 500);
}

const VERDICTS = { allow: 'allowed', deny: 'denied' };

/** Put how a question ended in the place of its buttons. */
export function close(box, words) {
	box.className = 'question';
	box.lastElementChild.replaceWith(h('p', { role: 'status' }, words));
}

/** A question, answered in place unless it has ended. */
function question(body, id, place, answered) {
	const note = h('p', { role: 'status' });
	const controls = h('div', { class: 'buttons' });
	const box = h('div', { class: 'question open' }, h('p', clipped(body.prompt, 4000)), controls);
	if (answered) {
		close(box, answered);
		return box;
	}
	const answer = async (value) => {
		try {
			await place.client.answer(id, body.question_id, value);
			if (box.matches('.open')) close(box, 'answered');
		} catch (error) {
			put(note, error.message);
		}
	};
	const options = body.kind === 'approval' ? ['allow', 'deny'] : body.options;
	if (options) {
		for (const each of options) controls.append(button(clipped(each), () => answer(each)));
	} else {
		const field = h('input', { 'aria-label': 'Answer' });
		const value = () => (body.schema?.type === 'string' ? field.value : jsonOrText(field.value));
		controls.append(
			field,
			button('Answer', () => answer(value())),
		);
	}
	controls.append(note);
	guard(box);
	return box;
}
