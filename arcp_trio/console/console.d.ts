/** Types that the modules of the console share; no browser loads this file. */

import type { Client } from './arcp.js';

declare global {
	/** What an element may contain. */
	type Child = Node | string | number | null | undefined | false;

	/** What a place of the console is given: the session, its address, and where its events go. */
	interface Place {
		client: Client;
		main: HTMLElement;
		/** What the address says after the question mark. */
		query: URLSearchParams;
		setQuery(changes: { [name: string]: string | null }): void;
		/** Do something in a session of its own. */
		elsewhere(act: (other: Client) => Promise<any>, onevent?: (event: any) => void): Promise<any>;
		/** What the place does with events, with keys, and when it is left. */
		onevent?: (event: any) => void;
		onkey?: (event: KeyboardEvent) => void;
		leave?: () => void;
		/** How many events have come and are not in the page yet. */
		backlog?: () => number;
	}

	/** When a tool ran, in seconds after the job's start. */
	interface Ran {
		tool: string;
		from: number;
		to: number;
	}

	/** What events tell of a job as a whole. */
	interface Story {
		progress?: any;
		end?: any;
		ts?: string;
	}
}
