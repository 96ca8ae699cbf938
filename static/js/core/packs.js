/** Packs: JSON and arrays in one binary message (docs/wire.md, "Frames"). */

/** @import { Pack, FrameMeta } from './types.d.ts' */

/** @type {Float32Array|null} */
let halves = null;

/** All 65,536 half-precision values. */
function halfTable() {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const value =
      exponent === 31
        ? fraction
          ? NaN
          : Infinity
        : exponent === 0
          ? fraction * 2 ** -24
          : (1 + fraction / 1024) * 2 ** (exponent - 15);
    halves[bits] = sign * value;
  }
  return halves;
}

const BYTES = { u8: 1, f16: 2, f32: 4 };

/** @param {ArrayBuffer} buffer @returns {Pack} @throws {RangeError} when the pack is cut short */
export function decodePack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  /** @type {FrameMeta} */
  const meta = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = 4 + length;
  /** @type {Record<string, Uint8Array|Float32Array>} */
  const arrays = {};
  for (const { name, dtype, shape, offset } of meta.arrays ?? []) {
    const size = shape.reduce((product, n) => product * n, 1);
    const from = start + offset;
    if (from + size * BYTES[dtype] > buffer.byteLength) throw new RangeError(`Array ${name} is incomplete.`);
    if (dtype === 'u8') arrays[name] = new Uint8Array(buffer, from, size);
    else if (dtype === 'f32')
      arrays[name] =
        from % 4 === 0 ? new Float32Array(buffer, from, size) : new Float32Array(buffer.slice(from, from + size * 4));
    else {
      const table = halfTable();
      const bits = new Uint16Array(
        from % 2 === 0 ? buffer : buffer.slice(from, from + size * 2),
        from % 2 === 0 ? from : 0,
        size,
      );
      const values = new Float32Array(size);
      for (let i = 0; i < size; i++) values[i] = table[bits[i]];
      arrays[name] = values;
    }
  }
  return { meta, arrays, bytes: buffer.byteLength };
}
