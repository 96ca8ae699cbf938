/** Requests JSON from the server. Failures are errors with a sentence: the server's own, or that the server can't be reached. */

/** @param {string} path @param {string} unreachable said when there is no answer @param {RequestInit} [options] @returns {Promise<any>} */
export async function ask(path, unreachable, options) {
  const response = await fetch(path, options).catch(() => null);
  const answer = await response?.json().catch(() => null);
  if (!response?.ok || answer === null) throw new Error(answer?.message ?? unreachable);
  return answer;
}

/** @param {unknown} error @returns {string} */
export function reasonOf(error) {
  return error instanceof Error ? error.message : String(error);
}
