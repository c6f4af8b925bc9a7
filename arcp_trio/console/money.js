/** What a job has spent over time: a line for each currency, below its ceiling. */

import { h, put } from './dom.js';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 300;
const HEIGHT = 60;
const MOST_POINTS = 300;

export class Money {
	constructor() {
		this.element = h('div', { class: 'purse', hidden: true });
		/** The costs that were told: when, how much, in what. @type {{ at: number, seq: number, value: number, unit: string }[]} */
		this.costs = [];
		this.drawn = '';
	}

	/** @param {any} event a metric */
	add({ body, ts, seq }) {
		const cost = String(body.name).startsWith('cost.') && body.name !== 'cost.budget.remaining';
		if (!cost || !(body.value >= 0) || !body.unit) return;
		this.costs.push({ at: Date.parse(ts), seq, value: Number(body.value), unit: String(body.unit) });
	}

	/** What was spent up to the last of these events, by currency. @param {any[]} seen */
	spent(seen) {
		const last = seen[seen.length - 1]?.seq ?? 0;
		/** @type {{ [unit: string]: number }} */
		const sums = {};
		for (const each of this.costs) if (each.seq <= last) sums[each.unit] = (sums[each.unit] ?? 0) + each.value;
		return sums;
	}

	/** @param {{ [currency: string]: string }} budget @param {any[]} seen */
	show(budget, seen) {
		const last = seen[seen.length - 1]?.seq ?? 0;
		const costs = this.costs.filter((each) => each.seq <= last);
		const key = `${costs.length} ${JSON.stringify(budget)}`;
		if (key === this.drawn) return;
		this.drawn = key;
		const units = [...new Set(costs.map((each) => each.unit))].slice(0, 4);
		this.element.hidden = units.length === 0;
		put(
			this.element,
			...units.map((unit) =>
				chart(
					unit,
					costs.filter((each) => each.unit === unit),
					Number(budget[unit] ?? NaN),
				),
			),
		);
	}
}

/** @param {string} unit @param {{ at: number, value: number }[]} costs @param {number} ceiling */
function chart(unit, costs, ceiling) {
	let sum = 0;
	const points = costs.map(({ at, value }) => {
		sum += value;
		return [at, sum];
	});
	const top = Math.max(sum, ceiling || 0) || 1;
	const [from, to] = [points[0][0], points[points.length - 1][0]];
	const step = Math.max(1, Math.ceil(points.length / MOST_POINTS));
	const x = (/** @type {number} */ at) => (to === from ? WIDTH : ((at - from) / (to - from)) * WIDTH);
	const y = (/** @type {number} */ value) => HEIGHT - (value / top) * (HEIGHT - 4) - 2;
	const kept = points.filter((_, index) => index % step === 0 || index === points.length - 1);
	const line = shape('polyline', {
		points: `0,${HEIGHT} ${kept.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(' ')}`,
		class: 'cost',
	});
	const limit = ceiling ? [shape('line', { x1: 0, x2: WIDTH, y1: y(ceiling), y2: y(ceiling), class: 'ceiling' })] : [];
	const words = `${sum.toFixed(2)}${ceiling ? ` of ${ceiling.toFixed(2)}` : ''} ${unit}`;
	const svg = shape('svg', {
		viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
		role: 'img',
		'aria-label': `Cost over time: ${words}`,
	});
	svg.append(line, ...limit);
	return h('figure', {}, svg, h('figcaption', {}, words));
}

/** @param {string} name @param {{ [name: string]: string | number }} attributes */
function shape(name, attributes) {
	const made = document.createElementNS(SVG, name);
	for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
	return made;
}
