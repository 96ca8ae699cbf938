/** The one catalogue of texts. A translation is another file of the same shape. */
export const strings = {};
/** @typedef {any} Strings */
