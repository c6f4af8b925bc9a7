// Several handles and iterations of one job, in one session; prints what each of them sees as one object.
import { connect } from '../../../arcp_trio/console/arcp.js';

const [url, token] = process.argv.slice(2);

const told = {};
const client = await connect(['ws://127.0.0.1:1/arcp', url], { token });
const input = { n: 4, delay: 0.1 };
const options = { idempotencyKey: 'monday' };

async function read(job, most = Infinity) {
	const seen = [];
	for await (const event of job) {
		seen.push(event.body.current);
		if (seen.length === most) break;
	}
	return seen;
}

async function reason(promise) {
	try {
		await promise;
		return 'no error';
	} catch (error) {
		return error.message;
	}
}

const job = await client.submit('countdown', input, options);
const first = job[Symbol.asyncIterator]();
await first.next();
const handles = [
	job,
	await client.submit('countdown', input, options),
	await client.subscribe(job.id, { history: true }),
	await client.subscribe(job.id, { history: true }),
];
const late = await client.subscribe(job.id);
told.partly = read(job, 2);
told.late = read(late);
told.each = Promise.all(handles.map((each) => read(each)));
told.first = read(first);
for (const name of ['partly', 'late', 'each', 'first']) told[name] = await told[name];
told.again = [await read(job), await read(handles[3])];
told.ended = await read(await client.subscribe(job.id, { history: true }));
told.results = await Promise.all(handles.map((each) => each.result));

const other = await connect(url, { token });
told.sameKey = await read(await other.submit('countdown', input, options));
const observed = await other.subscribe((await client.submit('sleeper', { seconds: 60 })).id, { history: true });
const reading = read(observed);
other.unsubscribe(observed.id);
told.left = await reading;
told.leftResult = await reason(observed.result);
await client.stop(observed.id);
const report = { size: 100_000 };
const streamed = await client.submit('report', report, { idempotencyKey: 'report' });
const twice = await client.subscribe(streamed.id, { history: true });
told.streamed = [(await streamed.result).length, (await twice.result).length];
const ended = await other.submit('report', report, { idempotencyKey: 'report' });
told.streamed.push((await ended.result).length);

const many = await client.submit('chatty', { n: 25_000, size: 1 });
told.many = [];
for (let time = 0; time < 2; time += 1) {
	const events = [];
	for await (const event of many) events.push(event);
	told.many.push(events.filter((event) => event.kind === 'log').length);
}
client.close();

const tells = [];
const teller = await connect(url, { token, onevent: (event) => tells.push(event.kind) });
const shown = await teller.subscribe(job.id, { history: true });
told.withHandler = await reason(read(shown));
await shown.result;
told.told = tells;
teller.close();
other.close();

const { WebSocket } = globalThis;
delete globalThis.WebSocket;
told.without = await reason(connect(url, { token }));
const given = await connect(url, { token, WebSocket });
told.given = given.state;
given.close();
told.nowhere = await reason(connect(['ws://127.0.0.1:1/arcp', 'ws://127.0.0.1:2/arcp'], { token, WebSocket }));
console.log(JSON.stringify(told));
