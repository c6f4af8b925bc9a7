/**
 * Sessions of the vendor's TypeScript SDK client, as a program that prints what it saw as JSON.
 *
 * Its arguments are the module that has the client, the runtime's URL, and a token.
 */

const [module, url, token] = process.argv.slice(2);
const { ARCPClient, WebSocketTransport } = await import(module);

const STEPS = 5;
const PAUSE_MS = 20;

/** Open a client that keeps what it is sent of jobs. */
function newClient() {
	const client = new ARCPClient({
		client: { name: "vendor", version: "2.0.0" },
		capabilities: { encodings: ["json"] },
		authScheme: "bearer",
		token,
	});
	const seen = [];
	for (const type of ["job.event", "job.result", "job.error"]) {
		client.on(type, (frame) => seen.push(frame));
	}
	return { client, seen };
}

/** Wait until something holds. */
async function until(holds) {
	while (!holds()) {
		await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
	}
}

const isOver = (frames) => frames.some((frame) => frame.type !== "job.event");

/** Submit a job, drop the connection within it, and resume, while another client watches the job. */
async function dropAndResume() {
	const owner = newClient();
	const transport = await WebSocketTransport.connect(url);
	const welcome = await owner.client.connect(transport);
	const job = await owner.client.submit({ agent: "countdown", input: { n: STEPS } });

	const watcher = newClient();
	await watcher.client.connect(await WebSocketTransport.connect(url));
	const listing = await watcher.client.listJobs({});
	await watcher.client.subscribe(job.jobId, { history: true });

	await until(() => owner.seen.length >= 2);
	await transport.close("dropped");
	const again = newClient();
	const welcomeBack = await again.client.resume(await WebSocketTransport.connect(url), {
		session_id: owner.client.state.id,
		resume_token: welcome.resume_token,
		last_event_seq: owner.seen.at(-1).event_seq,
	});
	await until(() => isOver(again.seen) && isOver(watcher.seen));

	const doomed = await again.client.submit({ agent: "countdown", input: { n: 10_000 } });
	await again.client.cancelJob(doomed.jobId, { reason: "enough" });
	const cancelled = await doomed.done.then(
		() => "done",
		(error) => error.code,
	);
	await again.client.close();
	await watcher.client.close();
	return {
		listed: listing.jobs.some((each) => each.job_id === job.jobId),
		token_rotated: welcomeBack.resume_token !== welcome.resume_token,
		numbers: [...owner.seen, ...again.seen]
			.filter((frame) => frame.job_id === job.jobId)
			.map((frame) => frame.event_seq),
		end: again.seen.find((frame) => frame.type === "job.result")?.payload.result,
		watched: watcher.seen.length,
		watched_end: watcher.seen.at(-1).payload.result,
		cancelled,
	};
}

console.log(JSON.stringify(await dropAndResume()));
process.exit(0);
