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
	visible,
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
	if (kind === 'end') return 'no longer asked: the job has ended';
	const { by, decision, reason } = body.result ?? body.error?.details ?? {};
	const whose = by && !['timeout', 'end', 'agent'].includes(by) ? ` by ${by}` : '';
	const at = ts ? `, ${new Date(ts).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })}` : '';
	const why = typeof reason === 'string' ? `: ${reason}` : '';
	if (whose) return clipped(`${VERDICTS[decision] ?? 'answered'}${whose}${at}${why}`, 500);
	return clipped(body.error ? `no longer asked: ${body.error.message}` : `answered${at}`, 500);
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
	const approves = body.kind === 'approval';
	const facts = approves ? [approval(body)] : [];
	const box = h('div', { class: 'question open' }, h('p', clipped(body.prompt, 4000)), ...facts, controls);
	if (answered) {
		close(box, answered);
		return box;
	}
	const answer = async (value, options) => {
		try {
			await place.client.answer(id, body.question_id, value, options);
			if (box.matches('.open')) close(box, 'answered');
		} catch (error) {
			put(note, error.message);
		}
	};
	const field = h('input', { 'aria-label': approves ? 'Reason' : 'Answer', placeholder: approves && 'Reason' });
	if (approves) {
		const decide = (value, scope) => answer(value, { scope, reason: field.value || undefined });
		controls.append(
			button('Allow once', () => decide('allow', 'once')),
			button('Allow for this job', () => decide('allow', 'job')),
			button('Deny', () => decide('deny')),
			field,
		);
	} else if (body.options) {
		for (const each of body.options) controls.append(button(clipped(each), () => answer(each)));
	} else {
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

/** All that there is to know before one allows something: nothing of it is cut off. @param {any} body */
function approval({ tool, capability, targets = [], args, shown, for_job, truncated }) {
	const { cwd, command, changes = [] } = shown ?? {};
	const block = (text) => h('pre', { tabindex: '0' }, text);
	const cut = 'These arguments are longer than can be shown: this is their beginning.';
	const facts = [
		['Tool', tool && [inLine(tool)]],
		['Targets', targets.length > 0 && [h('ul', { tabindex: '0' }, ...targets.map((each) => h('li', inLine(each))))]],
		['Folder', cwd && [inLine(cwd)]],
		['Command', command && [block(command)]],
		['Arguments', (args ?? null) !== null && [block(shownJson(args, Infinity)), truncated && h('strong', cut)]],
		...changes.map(({ path, diff, note }) => [
			'Change',
			[inLine(path), note && ` (${inLine(note)})`, diff && block(diff)],
		]),
		['For this job', [inLine(for_job ?? `${capability} of ${targets.join(', ')}`)]],
	];
	return h('dl', ...facts.flatMap(([name, value]) => (value ? [h('div', h('dt', name), h('dd', ...value))] : [])));
}

/** A text that is one line, and shows where it would begin another. */
function inLine(text) {
	return visible(text).replaceAll('\n', '⟨000a⟩').replaceAll('\t', '⟨0009⟩');
}
