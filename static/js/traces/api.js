/** `api/traces`: choices, files, and studies with their progress. Errors are sentences. */
import { traces as t } from '../strings/traces.js';
import { ask } from '../ui/ask.js';

/** Columns of one policy by capacity.
 * @typedef {{blocks: number[], hit_rate: number[], hit_tokens: number[], hit_blocks: number[], evictions: number[]}} Curve
 * @typedef {{policy: string, blocks: number, hit_rate: number, hit_tokens: number, total_tokens: number, hit_blocks: number, references: number, evictions: number, course: [number, number, number][]}} Point
 * @typedef {{requests: number, total_tokens: number, references: number, distinct_blocks: number, block_size: number, most_hit_tokens: number, reuse: number[], first_timestamp: number, last_timestamp: number, bad_lines: number, faults: string[], block_size_note: string|null}} Summary
 * @typedef {{job_id: string, trace: string, state: 'waiting'|'running'|'done'|'failed'|'cancelled', progress: number, message: string, capacity: number|null, summary: Summary|null, curves: Record<string, Curve>, points: Record<string, Point>}} Job
 * @typedef {{trace: string, title: string, about: string, seed: number}} Generated
 * @typedef {{generated: Generated[], models: {model_id: string, name: string}[], dtypes: string[], limits: {bytes: number, references: number, capacity: number, seed: number}}} Overview */

/** @returns {Promise<Overview>} */
export function overview() {
  return ask('api/traces', t.unreachable);
}

/** @param {URLSearchParams} query @returns {Promise<Job>} */
export function begin(query) {
  return ask(`api/traces/jobs?${query}`, t.unreachable, { method: 'POST' });
}

/** @param {string} id @param {AbortSignal} signal @returns {Promise<Job>} */
export function state(id, signal) {
  return ask(`api/traces/jobs/${id}`, t.unreachable, { signal });
}

/** @param {string} id @returns {Promise<Job>} */
export function cancel(id) {
  return ask(`api/traces/jobs/${id}`, t.unreachable, { method: 'DELETE' });
}

/** Uploads a file with XMLHttpRequest, because fetch doesn't report progress.
 * @param {File} file @param {(share: number) => void} told @returns {Promise<{trace: string, bytes: number}>} */
export function send(file, told) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', 'api/traces/files');
    request.responseType = 'json';
    request.upload.addEventListener('progress', ({ loaded, total }) => told(total ? loaded / total : 0));
    request.addEventListener('load', () =>
      request.status === 201
        ? resolve(request.response)
        : reject(new Error(request.response?.message ?? t.unreachable)),
    );
    request.addEventListener('error', () => reject(new Error(t.unreachable)));
    request.send(file);
  });
}
