/** @type {import('../types.d.ts').CreateLens} */
export function create(root) {
  root.textContent = '';
  return { update() {}, draw() {}, destroy() {} };
}
