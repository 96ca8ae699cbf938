/** The results of a study: the figure, the charts and the table of policies. */
import { traces as t } from '../strings/traces.js';
import { h, replace } from '../ui/dom.js';
import { count, fill } from '../ui/format.js';
import { rowOf, tableParts } from '../ui/table.js';
import { Charts } from './charts.js';
import { cacheOf, leading, nameOf, rate, span } from './text.js';
/** @import { Job } from './api.js' */
/** @import { Asked } from './state.js' */
/** The names of the trace and the cache, and the cache's size. @typedef {{title: string, cache: string, holding: string}} Names */

export class Found {
  /** @param {HTMLElement} root @param {(blocks: number) => void} choose a capacity */
  constructor(root, choose) {
    this.figure = h('div', { class: 'cluster traces-figure' });
    this.note = h('p', { class: 'note traces-note' });
    this.faults = h('div', { class: 'note traces-faults', hidden: true });
    this.title = h('h1', { class: 'strong traces-title' });
    this.ofTrace = h('p', { class: 'hint traces-of' });
    const roots = { curve: chart('traces-curve'), course: chart('traces-course'), reuse: chart('traces-reuse') };
    this.courseLead = h('p', { class: 'hint' });
    this.first = h('p', { class: 'hint' });
    this.table = h('div', { class: 'traces-table', tabindex: '0', role: 'region', 'aria-label': t.policies });
    this.root = root;
    root.classList.add('traces-none');
    root.append(
      h('div', { class: 'traces-trace' }, this.title, this.ofTrace),
      this.figure,
      h('a', { class: 'secondary traces-change', href: '#asked' }, t.change),
      this.faults,
      this.note,
      part(t.curve, h('p', { class: 'hint' }, t.curveLead), roots.curve, 'traces-wide'),
      this.table,
      h(
        'div',
        { class: 'traces-pair' },
        part(t.course, this.courseLead, roots.course),
        part(t.reuse, h('div', {}, h('p', { class: 'hint' }, t.reuseLead), this.first), roots.reuse),
      ),
    );
    this.charts = new Charts(roots, choose);
  }

  /** @param {Job} job @param {Asked} asked @param {Names} names */
  show(job, asked, names) {
    const { summary, capacity } = job;
    if (!summary || capacity === null) return;
    this.root.classList.remove('traces-none');
    this.title.textContent = names.title;
    this.#figure(job, asked, names);
    this.#faults(summary.bad_lines, summary.faults);
    this.note.hidden = !summary.block_size_note;
    this.note.textContent = summary.block_size_note;
    const n = (/** @type {number} */ value) => count(value);
    this.ofTrace.textContent = fill(t.ofTrace, {
      requests: n(summary.requests),
      tokens: n(summary.total_tokens),
      references: n(summary.references),
      blocks: n(summary.distinct_blocks),
      size: n(summary.block_size),
    });
    const point = job.points[leading(asked.policies) ?? ''];
    const bins = point?.course.length ?? 0;
    this.courseLead.textContent = bins
      ? fill(t.courseLead, { n: n(2 ** Math.ceil(Math.log2(summary.requests / bins))) })
      : '';
    this.first.textContent = fill(t.reuseFirst, { n: n(summary.reuse[summary.reuse.length - 1]) });
    this.#table(job, asked, capacity);
    this.charts.draw(job, asked.policies, capacity);
  }

  /** A capacity that is being chosen. @param {Job} job @param {Asked} asked @param {number} blocks */
  preview(job, asked, blocks) {
    this.charts.draw(job, asked.policies, blocks);
  }

  /** @param {Job} job @param {Asked} asked @param {Names} names */
  #figure(job, asked, names) {
    const lead = leading(asked.policies);
    const point = lead === null ? undefined : job.points[lead];
    if (!lead || !point) {
      replace(this.figure, lead ? h('p', { class: 'traces-rate' }, t.pending) : h('p', {}, t.nothing));
      return;
    }
    const optimum = job.points.optimum;
    const total = point.total_tokens;
    const facts = [
      h(
        'p',
        {},
        h('strong', {}, fill(t.saved, { time: span(point.hit_tokens / asked.prefill) })),
        h(
          'span',
          { class: 'hint' },
          fill(t.savedHint, { hits: count(point.hit_tokens), tokens: count(total), speed: count(asked.prefill) }),
        ),
      ),
      names.holding && h('p', {}, names.holding),
      optimum && lead !== 'optimum' && h('p', {}, fill(t.bound, { rate: rate(optimum.hit_rate) })),
      h('p', {}, fill(t.ceiling, { rate: rate(total && job.summary ? job.summary.most_hit_tokens / total : 0) })),
    ];
    replace(
      this.figure,
      h(
        'p',
        { class: 'cluster traces-lead' },
        h('span', { class: 'traces-rate' }, rate(point.hit_rate)),
        h('span', { class: 'traces-what' }, fill(t.found, { policy: nameOf(lead), blocks: names.cache })),
      ),
      h('div', { class: 'column traces-facts' }, facts),
    );
  }

  /** @param {number} n @param {string[]} faults */
  #faults(n, faults) {
    this.faults.hidden = n === 0;
    if (n)
      replace(
        this.faults,
        h('p', {}, n === 1 ? t.badLine : fill(t.badLines, { n: count(n) })),
        h(
          'ul',
          {},
          faults.map((text) => h('li', {}, text)),
        ),
      );
  }

  /** @param {Job} job @param {Asked} asked @param {number} capacity */
  #table(job, asked, capacity) {
    const row = (/** @type {string} */ policy) => {
      const point = job.points[policy];
      const cells = point
        ? [
            rate(point.hit_rate),
            span(point.hit_tokens / asked.prefill),
            count(point.hit_tokens),
            count(point.hit_blocks),
            count(point.evictions),
          ]
        : Array(5).fill(t.pending);
      return rowOf(
        [h('span', { class: 'traces-mark', data: { policy }, 'aria-hidden': 'true' }), nameOf(policy)],
        ...cells,
      );
    };
    replace(
      this.table,
      h(
        'table',
        { class: 'figures-table' },
        tableParts(fill(t.table, { blocks: cacheOf(capacity) }), Object.values(t.columns), asked.policies.map(row)),
      ),
    );
  }
}

/** @param {string} name */
function chart(name) {
  return h('div', { class: name });
}

/** @param {string} title @param {HTMLElement} lead @param {HTMLElement} content @param {string} [name] */
function part(title, lead, content, name = '') {
  return h('section', { class: `column traces-part ${name}` }, h('h2', {}, title), lead, content);
}
