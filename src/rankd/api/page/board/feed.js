// Reads of one server, and live updates: a stream where that works, otherwise a poll every few seconds.

const POLL_MS = 3_000;
const STREAM_AGAIN_MS = 30_000; // while polling
const FIRST_BYTES_MS = 8_000; // the server sends some at once; a proxy that buffers them makes streams useless
const SILENCE_MS = 40_000; // the server sends a heartbeat every 15 s
const WAIT_MS_MIN = 1_000;
const WAIT_MS_MAX = 15_000;
const FAILURES_BEFORE_POLLING = 2;

class Refused extends Error {
  constructor(status, problem = {}) {
    super(problem.detail ?? `the server answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "";
  }
  // A retry would not help.
  get isFinal() {
    return this.status >= 400 && this.status < 500 && this.status !== 408 && this.status !== 429;
  }
}

class Source {
  constructor(origin, token = null) {
    this.origin = origin;
    this.token = token;
  }
  address(path, query = {}) {
    const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const pairs = new URLSearchParams(given.flatMap(([name, value]) => [value].flat().map((one) => [name, one])));
    return `${this.origin}${path}${given.length ? `?${pairs}` : ""}`;
  }
  headers(more = {}) {
    return this.token ? { ...more, Authorization: `Bearer ${this.token}` } : more;
  }
  // Cached answers are revalidated: they may be seconds old.
  async get(path, query, signal) {
    const options = { headers: this.headers(), cache: "no-cache", credentials: "omit", signal };
    return answered(await fetch(this.address(path, query), options));
  }
  async post(path, query, body, signal) {
    const headers = this.headers({ "Content-Type": "application/json" });
    const options = { method: "POST", headers, body: JSON.stringify(body), credentials: "omit", signal };
    return answered(await fetch(this.address(path, query), options));
  }
}
const answered = async (response) => {
  const text = await response.text();
  let body;
  try {
    body = parsed(text);
  } catch {
    throw new Refused(response.ok ? 502 : response.status);
  }
  if (!response.ok) throw new Refused(response.status, body);
  return body;
};
const boardPath = (board, rest = "") => `/v1/boards/${encodeURIComponent(board)}${rest}`;

// A wait that can be cut short. Until there is a feed, it stands in for one.
class Pause {
  constructor(ms) {
    this.at = Date.now() + ms;
    this.over = new Promise((done) => {
      const timer = setTimeout(done, ms);
      this.retry = this.stop = () => {
        clearTimeout(timer);
        done();
      };
    });
  }
  pause() {}
  resume() {}
}
// Exponential backoff with jitter, so that a restarted server is not overloaded.
const waitMs = (failures) =>
  Math.min(WAIT_MS_MAX, WAIT_MS_MIN * 2 ** Math.min(failures - 1, 6)) * (0.8 + 0.4 * Math.random());

// Retries until there is an answer or a final refusal. `hold` gets each pause.
const insist = async (ask, { tell, hold, signal }) => {
  for (let failures = 1; ; failures += 1) {
    try {
      return await ask();
    } catch (problem) {
      if (signal?.aborted || problem.isFinal) throw problem;
      const pause = new Pause(waitMs(failures));
      hold(pause);
      tell({ state: "lost", at: pause.at });
      await pause.over;
    }
  }
};

// Tells what its topics show, take(type, data), and how the connection is, tell({state, at?, problem?}):
//   connecting → live ⇄ lost, the next try is at `at`; polling, where streams do not work; refused, which is final
class Feed {
  #source;
  #topics;
  #poll;
  #take;
  #tell;
  #stopping = new AbortController();
  #stream = null;
  #lastId = null;
  #paused = null;
  #resting = null;

  constructor(source, topics, { poll, take, tell }) {
    this.#source = source;
    this.#topics = topics;
    this.#poll = poll; // reads what the topics show and takes it
    this.#take = take;
    this.#tell = tell;
  }

  async start() {
    let failures = 0;
    let blocked = 0; // streams that failed while reads went well
    this.#tell({ state: "connecting" });
    while (!this.#isStopped) {
      const { opened, problem } = await this.#streamOnce();
      await this.#paused?.promise;
      if (this.#isStopped) return;
      const read = problem?.isFinal ? problem : await this.#pollOnce();
      if (this.#isStopped) return;
      if (read?.isFinal) return void this.#tell({ state: "refused", problem: read });
      failures = opened ? 1 : failures + 1;
      blocked = opened || read !== true ? 0 : blocked + 1;
      if (blocked >= FAILURES_BEFORE_POLLING) await this.#pollFor(STREAM_AGAIN_MS);
      else if (read === true) await this.#rest(WAIT_MS_MIN / 4);
      else await this.#wait(failures);
    }
  }

  async #wait(failures) {
    const wait = waitMs(failures);
    this.#tell({ state: "lost", at: Date.now() + wait });
    await this.#rest(wait);
    if (!this.#isStopped) this.#tell({ state: "lost", at: Date.now() });
  }

  stop() {
    this.#stopping.abort();
    this.#stream?.abort();
    this.#resting?.retry();
    this.resume();
  }

  // A browser opens six connections to a server, so a hidden page closes its own.
  pause() {
    if (this.#paused || this.#isStopped) return;
    let resume;
    const promise = new Promise((done) => (resume = done));
    this.#paused = { promise, resume };
    this.#stream?.abort();
    this.#resting?.retry();
  }

  resume() {
    const paused = this.#paused;
    this.#paused = null;
    paused?.resume();
  }

  // Retries at once.
  retry() {
    this.#resting?.retry();
  }

  get #isStopped() {
    return this.#stopping.signal.aborted;
  }

  #rest(ms) {
    this.#resting = new Pause(ms);
    return this.#resting.over;
  }

  async #pollOnce() {
    try {
      await this.#poll();
      return true;
    } catch (problem) {
      return problem;
    }
  }

  async #pollFor(ms) {
    const until = Date.now() + ms;
    this.#tell({ state: "polling" });
    while (!this.#isStopped && !this.#paused && Date.now() < until) {
      await this.#rest(POLL_MS);
      if (this.#isStopped || this.#paused || (await this.#pollOnce()) !== true) return;
    }
  }

  async #streamOnce() {
    const stream = (this.#stream = new AbortController());
    let opened = false;
    let watch = setTimeout(() => stream.abort(), FIRST_BYTES_MS);
    try {
      const headers = this.#source.headers(this.#lastId ? { "Last-Event-ID": this.#lastId } : {});
      const address = this.#source.address("/v1/stream", { topic: this.#topics });
      const options = { headers, cache: "no-store", credentials: "omit", signal: stream.signal };
      const response = await fetch(address, options);
      if (!response.ok) await answered(response);
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return { opened };
        clearTimeout(watch);
        watch = setTimeout(() => stream.abort(), SILENCE_MS);
        if (!opened) this.#tell({ state: "live" });
        opened = true;
        const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
        rest = events.pop();
        for (const event of events) this.#read(event);
      }
    } catch (problem) {
      return { opened, problem };
    } finally {
      clearTimeout(watch);
      stream.abort();
    }
  }

  #read(event) {
    const fields = {};
    for (const line of event.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
    }
    if (fields.id) this.#lastId = fields.id;
    if (fields.data && fields.event !== "end") this.#take(fields.event, parsed(fields.data));
  }
}
