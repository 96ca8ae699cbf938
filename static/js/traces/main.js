/** The page `traces`: the inputs, the study on the server, and its results; the URL has all inputs. */
import { traces as t } from '../strings/traces.js';
import { reasonOf } from '../ui/ask.js';
import { byId } from '../ui/dom.js';
import { bytes, fill } from '../ui/format.js';
import { pageLooks } from '../ui/page-looks.js';
import * as api from './api.js';
import { Form } from './form.js';
import { Found } from './found.js';
import { askedOf, jobQuery, saveAsked } from './state.js';
import { cacheOf, leading, nameOf, rate } from './text.js';

const POLL_MS = 200;
const UPLOAD_SHARE = 0.999;

class Page {
  /** @param {api.Overview} overview */
  constructor(overview) {
    this.asked = askedOf(new URLSearchParams(location.search));
    this.client = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) =>
      byte.toString(16).padStart(2, '0'),
    ).join('');
    /** @type {api.Job|null} */
    this.job = null;
    /** Of the results on screen. */
    this.shown = '';
    /** Of the newest run; older ones stop at their next check. */
    this.turn = 0;
    this.found = new Found(byId('found'), (blocks) => this.form.choose(blocks));
    this.form = new Form(/** @type {HTMLFormElement} */ (byId('asked')), this.asked, overview, {
      changed: () => void this.run(),
      file: (file) => void this.send(file),
      cancel: () => void this.cancel(),
      preview: (blocks) => this.job && this.found.preview(this.job, this.asked, blocks),
    });
    byId('found').prepend(this.form.status);
    this.looks = pageLooks();
    this.looks.changes.on(() => this.save());
  }

  save() {
    const query = new URLSearchParams(location.search);
    saveAsked(this.asked, query);
    this.looks.save(query);
    history.replaceState(null, '', `?${query}`.replace(/^\?$/, location.pathname));
  }

  /** Starts a study on the server and shows its results until it is done. */
  async run() {
    const turn = ++this.turn;
    this.save();
    if (!this.asked.policies.length) {
      this.form.run(null);
      if (this.job) this.#draw(this.job);
      return;
    }
    this.form.run(0);
    try {
      let job = await api.begin(jobQuery(this.asked, this.client));
      while (turn === this.turn) {
        this.#show(job);
        if (job.state !== 'waiting' && job.state !== 'running') break;
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
        if (turn === this.turn) job = await api.state(job.job_id, AbortSignal.timeout(10000));
      }
    } catch (error) {
      if (turn !== this.turn) return;
      this.form.run(null);
      this.form.tell(reasonOf(error), true);
    }
  }

  /** @param {api.Job} job */
  #show(job) {
    this.job = job;
    const runs = job.state === 'waiting' || job.state === 'running';
    byId('found').classList.toggle('traces-stale', runs && !job.summary);
    const { policies, prefill } = this.asked;
    const shows = JSON.stringify([
      job.job_id,
      job.capacity,
      policies,
      prefill,
      Object.keys(job.curves),
      Object.keys(job.points),
    ]);
    if (job.summary && job.capacity !== null && shows !== this.shown) {
      this.shown = shows;
      this.form.known(job.summary.distinct_blocks, job.capacity);
      this.#draw(job);
    }
    this.form.run(runs ? job.progress : null);
    const work =
      job.message === 'reading' || job.message === '' ? t.reading : fill(t.working, { policy: nameOf(job.message) });
    const told = { waiting: t.waiting, running: work, failed: job.message, cancelled: t.cancelled, done: '' }[
      job.state
    ];
    this.form.tell(told, job.state === 'failed');
    const lead = leading(this.asked.policies);
    if (job.state !== 'done' || !lead || !job.points[lead] || job.capacity === null) return;
    byId('live').textContent = fill(t.done, {
      policy: nameOf(lead),
      rate: rate(job.points[lead].hit_rate),
      blocks: cacheOf(job.capacity),
    });
  }

  /** @param {api.Job} job whose summary and capacity are known */
  #draw(job) {
    const { summary, capacity, trace } = job;
    if (!summary || capacity === null) return;
    this.found.show(job, this.asked, {
      title: this.form.titleOf(trace),
      cache: this.form.cacheTitle(capacity),
      holding: this.form.holding(capacity, summary.block_size),
    });
  }

  async cancel() {
    if (this.job) await api.cancel(this.job.job_id).catch(() => null);
  }

  /** @param {File} file */
  async send(file) {
    this.turn++;
    const name = fill(t.sent, { name: file.name, bytes: bytes(file.size) });
    this.form.tell(fill(t.sending, { name }));
    this.form.run(0);
    try {
      const { trace } = await api.send(file, (share) => this.form.run(share * UPLOAD_SHARE));
      this.form.setFile(trace, name);
      await this.run();
    } catch (error) {
      this.form.run(null);
      this.form.tell(reasonOf(error), true);
    }
  }
}

async function start() {
  const overview = await api.overview();
  const page = new Page(overview);
  byId('traces').hidden = false;
  byId('boot').hidden = true;
  document.documentElement.dataset.ready = 'yes';
  await page.run();
}

void start();
