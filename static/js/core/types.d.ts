/** Shapes shared by the modules of the page. Event types come from events.d.ts, which is generated. */
import type {
  BlockAllocated, BlockCached, BlockCopied, Blocked, BlockEvicted, BlockFetched, BlockOffloaded, BlockShared, BlocksReleased,
  BlocksSwappedIn, BlocksSwappedOut, Candidate, Chunk, Event, EventRecord, FinishReason, ForkOrigin, HostEvicted, KvForgotten, KvWritten,
  LaneErrorsMeasured, LaneMeasured, NeedleSought, Piece, PrefixLookedUp, RequestFinished, RequestForked, RequestPreempted, RequestStarted, SamplingParams, StepFinished, TokenSampled,
} from './events.d.ts';
import type { Frames } from './frames.js';
import type { Log } from './log.js';
import type { Palette } from '../ui/palette.js';
import type { World } from './state.js';
import type { Timeline } from './timeline.js';
import type { Ui } from '../ui/store.js';
import type * as Selectors from './selectors.js';
import type { Strings } from '../strings/main.js';

export type { World, Candidate, Chunk, Event, EventRecord, Piece };

/** What has changed since a lens's last update: the folded world, the ui store, a frame that arrived, the stage's size,
 * the colours. */
export type Dirty = 'world' | 'ui' | 'frame' | 'size' | 'theme';

export interface LayerGeometry {
  index: number;
  kind: string;
  window: number | null;
  cache: 'kv' | 'latent' | 'none';
  key_shape: [number, number] | null;
  value_shape: [number, number] | null;
  bytes_per_token: number;
  query_heads: number;
  scaling: number | null;
  softcap: number | null;
  sinks: boolean;
}

export interface ModelHeader {
  name: string;
  architecture: string;
  num_layers: number;
  num_query_heads: number;
  num_kv_heads: number;
  head_dim: number;
  vocab_size: number;
  max_positions: number;
  dtype: string;
  fingerprint: string;
  num_parameters: number;
  weight_bytes: number;
  has_template: boolean;
  layers: LayerGeometry[];
  self_check: { num_tokens: number; max_difference: number; range: number } | null;
}

export type Capability = 'frames' | 'entries' | 'triangle' | 'commands';

export interface Header {
  format: number;
  kvviz: string;
  source: string;
  title: string;
  capabilities: Capability[];
  model: ModelHeader;
  pool: { num_blocks: number; block_size: number; bytes_per_token: number; bytes: number; num_host_blocks?: number };
  policies: { prefix_cache: boolean; eviction: string; offload?: boolean };
  scheduler: { prefill_chunk: number; max_running: number; token_budget?: number | null; chunked_prefill?: boolean; order?: string; preemption?: string };
  seed: number;
  /** The lanes of a comparison, lane 0 the reference; absent in other runs. */
  lanes?: LaneHeader[];
  /** In the session of one lane: the lane, and the session of the comparison. */
  lane?: LaneHeader;
  /** The lanes that a live engine offers. */
  lane_choices?: LaneChoice[];
}

export type LaneFamily = 'heads' | 'latent' | 'bits' | 'forgetting' | 'allocation';

/** One lane of a comparison, from the header. */
export interface LaneHeader {
  index: number;
  name: string;
  spec: string;
  title: string;
  family: LaneFamily;
  about: string;
  /** Whether it computes the same as the reference. */
  exact: boolean;
  options: Record<string, number>;
  bytes_per_token: number;
  kv_heads_note?: string | null;
}

export interface LaneOption {
  name: string;
  title: string;
  default: number;
  low: number;
  high: number;
}

/** An entry of the menu of lanes. `value`: the option that `name=N` sets. */
export interface LaneChoice {
  name: string;
  title: string;
  family: LaneFamily;
  about: string;
  exact: boolean;
  value: string | null;
  options: LaneOption[];
}

/** Measurements of the lanes for one request. Of `measured[lane]`, which all folds of a log share, the first `counts[lane]` belong to
 * this world. */
export interface LaneRun {
  readonly requestId: number;
  readonly measured: LaneMeasured[][];
  readonly counts: readonly number[];
  /** The latest by lane. */
  readonly errors: readonly (LaneErrorsMeasured | null)[];
  readonly needles: readonly (NeedleSought | null)[];
}

/** `preempted`: it lost its blocks and is recomputed later; `swapped`: its entries are in the host tier. */
export type RequestState = 'waiting' | 'running' | 'preempted' | 'swapped' | 'finished';

/** One entry of a host block: offset, request, position, seq of the write, token. */
export type HostEntry = readonly [offset: number, request: number, position: number, seq: number, token: number];

/** A block of the host tier: of a prefix (`hash`) or of a swapped request. */
export interface HostBlock {
  readonly hash: string | null;
  readonly requestId: number | null;
  readonly entries: readonly HostEntry[];
}

/** One request of a world. `table[i]` is the physical block of logical block i, -1 once it is released. */
export interface Request {
  id: number;
  letter: string;
  state: RequestState;
  prompt: string;
  template: boolean;
  salt: string | null;
  continues: number | null;
  tokens: number[];
  pieces: Piece[];
  promptLength: number;
  numComputed: number;
  /** Its K/V computations, including those repeated after a preemption. */
  numWritten: number;
  numHitTokens: number;
  windowStart: number;
  table: number[];
  /** The table when the request finished; null before. */
  lastTable: number[] | null;
  maxNewTokens: number;
  sampling: SamplingParams;
  finish: FinishReason | null;
  tokenHash: number;
  /** Lower numbers go first, with priority order. */
  priority: number;
  fork: ForkOrigin | null;
  numPreemptions: number;
  /** By layer and KV head (one stands for all that are alike): the record since which a position is gone. Shared by all folds of
   * one log: only records up to `seq` belong to this world. Empty while nothing was forgotten. */
  forgotten: Map<number, number>[][];
  /** Positions gone, over those lists. */
  numDropped: number;
  /** By position. Shared by all folds of one log: only positions below `tokens.length` belong to this world. */
  candidates: Map<number, Candidate[]>;
}

export interface Check {
  step: number;
  expected: string;
  computed: string;
  ok: boolean;
}

export type StepKind = 'prefill' | 'decode' | 'mixed' | 'empty';

/** An event with the number and time of its record. */
export type Stamped<T> = T & { readonly seq: number; readonly t_us: number };

/** The events of one step, grouped. */
export interface StepInfo {
  step: number;
  firstSeq: number;
  lastSeq: number;
  kind: StepKind;
  chunks: Chunk[];
  lookups: PrefixLookedUp[];
  shared: BlockShared[];
  evicted: BlockEvicted[];
  /** Requests that were admitted, also after a preemption. */
  started: RequestStarted[];
  preempted: RequestPreempted[];
  forked: RequestForked[];
  copied: BlockCopied[];
  swappedOut: BlocksSwappedOut[];
  swappedIn: BlocksSwappedIn[];
  offloaded: BlockOffloaded[];
  fetched: BlockFetched[];
  hostEvicted: HostEvicted[];
  /** The head of the waiting queue, if it wasn't admitted. */
  blocked: Blocked | null;
  /** Maximum number of tokens in the step. */
  budget: number | null;
  allocated: BlockAllocated[];
  cached: BlockCached[];
  released: BlocksReleased[];
  /** Of those: before the step's chunks were chosen (window, preemption, swap), and at its end. */
  releasedFirst: BlocksReleased[];
  releasedLast: BlocksReleased[];
  /** `write_seq` of an entry is the `seq` of its `kv_written`: `writtenSeq[i]` belongs to `written[i]`. */
  written: KvWritten[];
  writtenSeq: number[];
  sampled: TokenSampled[];
  forgotten: KvForgotten[];
  /** Measurements of the lanes of a comparison in the step. */
  lanes: LaneMeasured[];
  finished: RequestFinished[];
  end: StepFinished | null;
  events: Event[];
}

/** The state on screen: position `position` (at rest if `step` is null), or the transition to the next. */
export interface Scene {
  before: World;
  after: World;
  step: StepInfo | null;
  progress: number;
  position: number;
}

/** The phases of a step's progress 0-1. Each is [from, to]. */
export interface Phases {
  /** Lookup, hits, evictions, allocations. */
  blocks: readonly [number, number];
  /** The sweep through the layers: writes and reads. */
  layers: readonly [number, number];
  /** The sampled token drops onto the tape. */
  sample: readonly [number, number];
  /** Finish and release: blocks reach count 0. */
  release: readonly [number, number];
  /** Milliseconds at 1×. */
  duration: number;
}

/** `index` is the place in the order of writing, `layer` the layer; `within` runs 0-1 inside the layer.
 * In a decode step a layer first writes one entry, then its query reads the row; in prefill both are one wave. */
export interface LayerMoment {
  layer: number;
  index: number;
  within: number;
  stage: 'write' | 'read';
}

/** One thing, everywhere. `request` null: the selected request. */
export type Selection =
  | { kind: 'token'; request: number; position: number }
  | { kind: 'entry'; request: number; position: number; layer: number }
  | { kind: 'block'; block: number }
  | { kind: 'layer'; layer: number }
  | { kind: 'head'; layer: number; head: number }
  | { kind: 'request'; request: number };

export type LensName = 'cache' | 'attention' | 'pages' | 'batch' | 'memory' | 'compare';
export type CacheView = 'state' | 'magnitude' | 'attention' | 'age';
export type ThemeChoice = 'dark' | 'light' | 'system';

export interface FrameMeta {
  kind: 'step' | 'norms' | 'heads' | 'entry' | 'triangle' | 'scores';
  log_id?: string;
  step?: number;
  request_id?: number;
  layer?: number;
  head?: number;
  position?: number;
  num_tokens?: number;
  start?: number;
  num_new?: number;
  bin?: number;
  arrays: { name: string; dtype: 'u8' | 'f16' | 'f32'; shape: number[]; offset: number }[];
}

/** A decoded pack. u8 arrays stay bytes (multiply by their `_scale`); f16 and f32 become Float32Array. */
export interface Pack {
  meta: FrameMeta;
  arrays: Record<string, Uint8Array | Float32Array>;
  bytes: number;
}

export type PackArray = Uint8Array | Float32Array;

/** Why a frame isn't available. */
export interface Problem {
  code: string;
  message: string;
  sinceStep: number | null;
}

export type Command = { command: string } & Record<string, unknown>;

export interface ModelStatus {
  state: 'fetching' | 'converting' | 'loading' | 'ready' | 'failed' | 'none';
  progress: number | null;
  message: string | null;
  live_session_id: string | null;
}

export interface Status {
  play: { playing: boolean; rate: number | null; idle: boolean };
  model: ModelStatus;
  clients: number;
}

/** Everything a lens may read. `send` resolves with the result of an `ack` and rejects with a `CommandError`. */
export interface Ctx {
  timeline: Timeline;
  ui: Ui;
  frames: Frames;
  selectors: typeof Selectors;
  strings: Strings;
  palette: Palette;
  log: Log;
  send(command: Command): Promise<any>;
  /** Runs the engine at the speed of the page's control, which is set to `speed` first if one is given; null means no limit. */
  run(speed?: number|null): Promise<void>;
}

/** A lens draws into `root` (a positioned, empty element that it owns; the stage calls `update` with `size` when it
 * changes). `draw` is a pure function of the last scene and of progress. `describe` says the picture in a sentence. */
export interface Lens {
  update(scene: Scene, dirty: Set<Dirty>): void;
  draw(progress: number): void;
  destroy(): void;
  describe?(scene: Scene): string;
}

export type CreateLens = (root: HTMLElement, ctx: Ctx) => Lens;
