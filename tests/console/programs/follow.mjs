// Submits a job, and prints each of its events as it is handed on, and then the end.
import { connect } from '../../../arcp_trio/console/arcp.js';

const [url, token, agent, input] = process.argv.slice(2);

const client = await connect(url, {
	token,
	onstate: (state) => console.log(JSON.stringify({ state })),
	onevent: (event) => {
		console.log(JSON.stringify({ ...event, lastSeq: client.lastSeq }));
		if (event.kind === 'end') client.close();
	},
});
const job = await client.submit(agent, JSON.parse(input));
console.log(JSON.stringify({ submitted: job.id }));
const why = await client.closed;
if (why) {
	console.log(JSON.stringify({ lost: String(why) }));
	process.exit(1);
}
