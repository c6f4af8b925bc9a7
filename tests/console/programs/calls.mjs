// Each call of the browser client once; prints what came of it as one object.
import { ArcpError, connect } from '../../../arcp_trio/console/arcp.js';

const [url, token] = process.argv.slice(2);

const code = async (promise) => {
	try {
		await promise;
		return 'no error';
	} catch (error) {
		return error instanceof ArcpError ? error.code : String(error);
	}
};

const told = {};
told.wrongToken = await code(connect(url, { token: 'wrong' }));
told.nobody = await code(connect('ws://127.0.0.1:1/arcp', { token }));

const states = [];
const client = await connect(url, { token, onstate: (state) => states.push(state) });
told.agents = client.agents.map((agent) => agent.name).includes('countdown');
told.schemas = Object.keys(client.inputSchemas);

const job = await client.submit('countdown', { n: 2, delay: 0 });
told.kinds = [];
for await (const event of job) told.kinds.push(event.kind);
told.result = await job.result;

told.streamed = (await (await client.submit('report', { size: 200_000 })).result).length;
told.bytes = Array.from(await (await client.submit('binary')).result).slice(0, 3);
told.failed = await code((await client.submit('failing')).result);
told.refused = await code(client.submit('nobody'));
told.badInput = await code(client.submit('picky', {}));

const lease = { 'tool.call': ['human.ask'] };
const cook = await client.submit('cook', null, { lease });
for await (const event of cook) {
	if (event.kind !== 'x-vendor.arcp-trio.question') continue;
	const { question_id: id, options } = event.body;
	told.wrongAnswer = await code(client.answer(cook.id, id, true));
	await client.answer(cook.id, id, options ? 'stew' : 4);
}
told.cooked = await cook.result;

const shopper = await client.submit('shopper', null, {
	lease: { 'tool.call': ['shop.*'] },
	budget: { USD: '1.00' },
});
told.shopped = await shopper.result;

const [first, second] = [1, 2].map(() => client.submit('waiting', null, { idempotencyKey: 'k' }));
told.sameKey = (await first).id === (await second).id;
const waiting = await first;
const running = await client.page({ status: ['running'] });
told.running = running.jobs.map((each) => each.job_id).includes(waiting.id);

const other = await connect(url, { token: await client.tokenFor(60, waiting.id) });
told.lookers = (await other.page()).jobs.length;
told.onlyLooking = await code(other.stop(waiting.id));
const watched = await other.subscribe(waiting.id, { history: true });
await client.stop(waiting.id, 'enough');
told.stopped = await code(waiting.result);
told.seenByOther = [];
try {
	for await (const event of watched) told.seenByOther.push(event.kind);
} catch (error) {
	told.seenByOther.push(String(error));
}
told.otherResult = await code(watched.result);

told.pages = 0;
let cursor = null;
do {
	const page = await client.page({}, { limit: 2, cursor });
	told.pages += page.jobs.length;
	cursor = page.cursor;
} while (cursor);
told.all = 0;
for await (const _ of client.jobs()) told.all += 1;

client.close();
other.close();
told.closed = await client.closed;
told.afterwards = await code(client.submit('echo'));
told.states = states;
console.log(JSON.stringify(told));
