/** What a job has spent over time: a line for each currency, below its ceiling. */

import { amount, h, put } from './dom.js';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 300;
const HEIGHT = 60;
const MOST_POINTS = 1000;
/** Decimal places of sums. */
const PLACES = 18;

/** An amount in units of 10^-18: sums of these are exact, those of binary fractions are not. */
function units(value) {
	const [digits, exponent = '0'] = String(value).split('e');
	const [whole, fraction = ''] = digits.split('.');
	const shift = PLACES + Number(exponent) - fraction.length;
	const all = BigInt(whole + fraction);
	return shift < 0 ? all / 10n ** BigInt(-shift) : all * 10n ** BigInt(shift);
}

export class Money {
	/** By currency. */
	#points = new Map();
	#sums = new Map();
	#drawn = '';

	constructor() {
		this.element = h('div', { class: 'purse', hidden: true });
	}

	/** @param {any} event a metric @param {number} count how many events the job has with it */
	add({ body: { name, value, unit }, ts }, count) {
		const cost = String(name).startsWith('cost.') && name !== 'cost.budget.remaining';
		if (!cost || typeof value !== 'number' || value < 0 || !unit) return;
		const points = this.#points.get(unit) ?? [];
		const exact = (this.#sums.get(unit) ?? 0n) + units(value);
		this.#sums.set(unit, exact);
		const text = String(exact).padStart(PLACES + 1, '0');
		points.push({ count, at: Date.parse(ts), sum: Number(`${text.slice(0, -PLACES)}.${text.slice(-PLACES)}`) });
		// Every second point goes, so that a long life needs no more room.
		this.#points.set(unit, points.length > MOST_POINTS ? points.filter((_, place) => place % 2 === 0) : points);
	}

	/** What this number of events has spent. */
	#until(count) {
		const known = Array.from(this.#points, ([unit, points]) => [unit, points.filter((each) => each.count <= count)]);
		return known.filter(([, points]) => points.length > 0);
	}

	spent(count) {
		return Object.fromEntries(this.#until(count).map(([unit, points]) => [unit, points[points.length - 1].sum]));
	}

	show(budget, count) {
		const known = this.#until(count).slice(0, 4);
		const key = JSON.stringify([budget, known.map(([, points]) => points.at(-1))]);
		if (key === this.#drawn) return;
		this.#drawn = key;
		this.element.hidden = known.length === 0;
		put(this.element, ...known.map(([unit, points]) => chart(unit, points, Number(budget[unit] ?? NaN))));
	}
}

function chart(unit, points, ceiling) {
	const { at: to, sum } = points[points.length - 1];
	const from = points[0].at;
	const top = Math.max(sum, ceiling || 0) || 1;
	const y = (value) => (HEIGHT - (value / top) * (HEIGHT - 4) - 2).toFixed(1);
	const steps = points.map((each) => {
		const x = to === from ? WIDTH : ((each.at - from) / (to - from)) * WIDTH;
		return `${x.toFixed(1)},${y(each.sum)}`;
	});
	const line = shape('polyline', { points: `0,${HEIGHT} ${steps.join(' ')}`, class: 'cost' });
	const limit = ceiling ? [shape('line', { x1: 0, x2: WIDTH, y1: y(ceiling), y2: y(ceiling), class: 'ceiling' })] : [];
	const words = `${amount(sum)}${ceiling ? ` of ${amount(ceiling)}` : ''} ${unit}`;
	const name = `Cost over time: ${words}`;
	const svg = shape('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': name });
	svg.append(line, ...limit);
	return h('figure', svg, h('figcaption', words));
}

function shape(name, attributes) {
	const made = document.createElementNS(SVG, name);
	for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
	return made;
}
