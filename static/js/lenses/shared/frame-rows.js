/** Reads attention from frame packs. Every attention value on the page comes from here, and so from frames. */

/** @import { Frames } from '../../core/frames.js' */
/** @import { Pack } from '../../core/types.d.ts' */

/** One row of weights over the columns of a frame. Each column sums `bin` tokens.
 * @typedef {object} WeightRow
 * @property {Float32Array} weights
 * @property {number} bin
 * @property {number} numTokens */

/** The pack of a request in a step if it is loaded already; it isn't fetched.
 * @param {Frames} frames @param {number} step @param {number} request
 * @returns {Pack|null} */
export function heldPack(frames, step, request) {
  return frames.packs.get(frames.anyLayer.get(`${step}:${request}`) ?? '') ?? null;
}

/** @param {Pack} pack @param {string} name @param {number} row @param {number} numTokens @returns {WeightRow|null} */
function rowOf(pack, name, row, numTokens) {
  const values = pack.arrays[name];
  const scales = pack.arrays[`${name}_scale`];
  const shape = pack.meta.arrays.find((array) => array.name === name)?.shape;
  if (!values || !scales || !shape || row < 0 || row >= shape[0]) return null;
  const width = shape[1];
  const weights = new Float32Array(width);
  for (let i = 0; i < width; i += 1) weights[i] = values[row * width + i] * scales[row];
  return { weights, bin: pack.meta.bin ?? 1, numTokens };
}

/** Attention of the step's last query in one layer, mean over heads. @param {Pack} pack @param {number} layer */
export function meanRow(pack, layer) {
  return rowOf(pack, 'mean', layer, pack.meta.num_tokens ?? 0);
}

/** @param {Pack} pack of kind `step` or `heads` @param {number} head @returns {WeightRow|null} */
export function headRow(pack, head) {
  const shape = pack.meta.arrays.find((array) => array.name === 'heads')?.shape;
  const row = rowOf(pack, 'heads', head, pack.meta.num_tokens ?? shape?.[1] ?? 0);
  if (row && pack.meta.kind === 'heads') row.bin = 1;
  return row;
}

/** @param {Pack} pack @returns {number} */
export function numHeads(pack) {
  return pack.meta.arrays.find((array) => array.name === 'heads')?.shape[0] ?? 0;
}

/** Mean over the head rows of a pack. @param {Pack} pack @returns {WeightRow|null} */
export function headMean(pack) {
  const count = numHeads(pack);
  const first = headRow(pack, 0);
  if (!first) return null;
  const sum = first.weights;
  for (let head = 1; head < count; head += 1) {
    const row = headRow(pack, head);
    if (row) for (let i = 0; i < sum.length; i += 1) sum[i] += row.weights[i];
  }
  for (let i = 0; i < sum.length; i += 1) sum[i] /= count;
  return first;
}

/**
 * The same row without its first column, rescaled to the same sum. The first column is token 0 or, in a binned long
 * context, the first tokens.
 * @param {WeightRow} row @returns {WeightRow}
 */
export function withoutSink(row) {
  const total = row.weights.reduce((sum, weight) => sum + weight, 0);
  const rest = total - (row.weights[0] ?? 0);
  if (rest <= 1e-6) return row;
  const weights = row.weights.map((weight) => (weight * total) / rest);
  weights[0] = 0;
  return { ...row, weights };
}

/** Weight of tokens from … to - 1; a bin that is cut counts in proportion.
 * @param {WeightRow} row @param {number} from @param {number} to */
export function weightOf(row, from, to) {
  if (row.bin === 1) {
    let sum = 0;
    for (let i = from; i < Math.min(to, row.weights.length); i += 1) sum += row.weights[i];
    return sum;
  }
  let sum = 0;
  for (let c = Math.floor(from / row.bin); c * row.bin < to && c < row.weights.length; c += 1) {
    const start = c * row.bin;
    const end = Math.min(start + row.bin, row.numTokens);
    const shared = Math.min(to, end) - Math.max(from, start);
    if (shared > 0) sum += (row.weights[c] * shared) / (end - start);
  }
  return sum;
}

/**
 * The largest weights, largest first.
 * @param {WeightRow} row @param {number} count
 * @returns {{from: number, to: number, weight: number}[]}
 */
export function largest(row, count) {
  const order = Array.from(row.weights.keys()).sort((a, b) => row.weights[b] - row.weights[a]);
  return order
    .slice(0, count)
    .filter((c) => row.weights[c] > 0)
    .map((c) => ({
      from: c * row.bin,
      to: Math.min((c + 1) * row.bin, row.numTokens),
      weight: row.weights[c],
    }));
}
