/** Shared by the cases of the fold: checks that record the first contradiction and then continue as well as possible. */

/** @import { World } from './state.js' */
/** @import { Event } from './events.d.ts' */
/** @import { Request } from './types.d.ts' */
/** One case per event type. @typedef {{[T in Event['type']]: (world: World, event: Extract<Event, {type: T}>) => void}} Cases */

/** @param {World} world @param {string} what */
export function contradiction(world, what) {
  if (world.broken === null) world.broken = `step ${world.currentStep}, record ${world.seq}: ${what}`;
}

/** @param {World} world @param {boolean} condition @param {() => string} what is wrong when it does not hold */
export function expect(world, condition, what) {
  if (!condition) contradiction(world, what());
}

/** @param {World} world @param {number} id @returns {Request|null} */
export function requestOf(world, id) {
  const request = world.mutable(id);
  if (request) return request;
  contradiction(world, `request ${id} is unknown`);
  return null;
}

/** @param {World} world @param {number} block @returns {boolean} */
export function isBlock(world, block) {
  if (Number.isInteger(block) && block >= 0 && block < world.numBlocks) return true;
  contradiction(world, `block ${block} is outside the pool of ${world.numBlocks} blocks`);
  return false;
}

/** @param {World} world @param {number} block @param {string} doing */
export function checkHead(world, block, doing) {
  expect(
    world,
    world.free[0] === block,
    () =>
      `block ${block} was ${doing} but ${world.free.length ? `block ${world.free[0]} is at the head of the free queue` : 'the free queue is empty'}`,
  );
}

/** @param {World} world @param {number} block */
export function leaveQueue(world, block) {
  const at = world.free[0] === block ? 0 : world.free.indexOf(block);
  if (at < 0) contradiction(world, `block ${block} should be in the free queue`);
  else if (at === 0) world.free.shift();
  else world.free.splice(at, 1);
}

/** The head of the free queue gets its first user and is blank. @param {World} world @param {number} block @param {string} doing */
export function popHead(world, block, doing) {
  checkHead(world, block, doing);
  leaveQueue(world, block);
  expect(world, world.refCount[block] === 0, () => `block ${block} was ${doing} with count ${world.refCount[block]}`);
  expect(world, world.hash[block] === null, () => `block ${block} was ${doing} while it holds a cached prefix`);
  world.refCount[block] = 1;
  world.freeSince[block] = -1;
  world.blankBlock(block);
}

/** Adds a block to a table: at its end, or in a gap, because hits in the pool come before those in the host tier.
 * @param {World} world @param {Request} request @param {number} index @param {number} block */
export function putInTable(world, request, index, block) {
  if (!Number.isInteger(index) || index < 0 || index > world.numBlocks * world.blockSize) {
    return contradiction(world, `block ${block} can’t be logical block ${index} of request ${request.letter}`);
  }
  while (request.table.length <= index) request.table.push(-1);
  expect(
    world,
    request.table[index] < 0,
    () =>
      `block ${block} can’t be logical block ${index} of request ${request.letter}: that is block ${request.table[index]}`,
  );
  request.table[index] = block;
  return undefined;
}

/** @param {World} world @param {Request} request @param {number} index @param {number} block @param {string} doing */
export function checkTable(world, request, index, block, doing) {
  expect(
    world,
    request.table[index] === block,
    () =>
      `block ${block} was ${doing} as logical block ${index} of request ${request.letter}, whose block table has ${request.table[index] ?? 'nothing'} there`,
  );
}
