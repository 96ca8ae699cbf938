/** Saving, opening and listing recordings. */
import { reasonOf } from '../ui/ask.js';
import { h, replace } from '../ui/dom.js';
import { bytes, fill } from '../ui/format.js';
/** @import { Ctx } from '../core/types.d.ts' */

/** @param {Ctx} ctx @param {(session: string|null) => void} openSession */
export function recordingsPart(ctx, openSession) {
  const text = ctx.strings.drawer;
  const list = h('ul', { class: 'recordings' });
  const message = h('p', { class: 'form-message', role: 'status' });
  const file = h('input', {
    type: 'file',
    accept: '.kvviz',
    id: 'recording-file',
    class: 'visually-hidden',
    on: { change: () => void upload() },
  });
  const download = h('a', { class: 'secondary', download: '', href: '#' }, text.download);
  const root = h(
    'section',
    { class: 'recordings-part' },
    h('h3', {}, text.recordings),
    list,
    message,
    h(
      'div',
      { class: 'cluster buttons' },
      download,
      file,
      h('label', { class: 'secondary', for: 'recording-file' }, text.upload),
    ),
  );

  async function load() {
    download.setAttribute('href', `api/sessions/${encodeURIComponent(ctx.log.sessionId)}/recording`);
    try {
      const response = await fetch('api/recordings');
      if (!response.ok) return;
      const items = await response.json();
      replace(list, items.length === 0 ? h('li', { class: 'hint' }, text.noRecordings) : items.map(item));
    } catch {
      replace(list);
    }
  }

  /** @param {{id: string, title: string, num_steps: number, bytes: number, session_id: string}} recording */
  function item(recording) {
    const current = recording.session_id === ctx.log.sessionId;
    return h(
      'li',
      {},
      h(
        'button',
        {
          type: 'button',
          class: 'column recording',
          'aria-current': current ? 'true' : null,
          on: { click: () => openSession(recording.session_id) },
        },
        h('strong', {}, recording.title),
        h(
          'span',
          { class: 'hint' },
          fill(text.recordingSteps, { n: recording.num_steps, bytes: bytes(recording.bytes) }),
        ),
      ),
    );
  }

  async function upload() {
    const chosen = file.files?.[0];
    if (!chosen) return;
    replace(message);
    try {
      const response = await fetch('api/recordings', { method: 'POST', body: chosen });
      const body = await response.json();
      if (!response.ok) throw new Error(body.message ?? String(response.status));
      openSession(body.session_id);
    } catch (error) {
      replace(message, fill(text.uploadFailed, { message: reasonOf(error) }));
    }
    file.value = '';
  }

  return { root, load };
}
