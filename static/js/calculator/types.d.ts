/** Requests and responses of the calculator (docs/memory.md), as far as the page uses them. */

export type Asked = { model: string } | OwnModel;
export type OwnModel = { name?: string; num_parameters?: number } & ({ config: string } | { geometry: Record<string, number> });

export type Settings = {
  context: number; batch: number; dtype: string; group_size: number; block_size: number; prefix: number;
  gpu: string | null; gpus: number; utilisation: number; weights_dtype: string; overhead_bytes: number;
  memory_bytes: number | null; bandwidth: number | null; price_per_hour: number | null; host_bytes: number;
};

export type Listed = {
  model_id: string; name: string; kind: string; bytes_per_token: number | null; max_context: number | null;
  num_parameters: number | null; source: string; checked: string; refused: string | null;
};
export type Card = {
  card_id: string; name: string; memory_bytes: number; bandwidth: number; source: string; checked: string;
  price_per_hour: number | null; price_source: string | null;
};
export type Choices = {
  models: Listed[]; cards: Card[]; dtypes: { name: string; bits: number; about: string }[]; defaults: Settings; max_models: number; max_batch: number;
};

export type Machine = {
  name: string; memory_bytes: number; bandwidth: number | null; price_per_hour: number | null; card_id: string | null; source: string | null;
  checked: string | null; price_source: string | null; usable_bytes: number;
};
export type Term = { name: string; value: number; unit: string; text: string; parts: Term[] };
export type Formula = { terms: Term[]; value: number; unit: string; text: string };
export type Group = {
  layers: number; type: 'full' | 'sliding' | 'chunked' | 'mla_latent'; kv_heads: number; query_heads: number; k_dim: number; v_dim: number; window: number | null;
  kept_tokens: number; bytes_per_token: number; marginal_bytes_per_token: number; total_bytes: number; total_bytes_blocks: number;
  total_bytes_window_ignored: number; formula: Formula; total_formula: Formula;
};
export type FixedState = { layers: number; type: string; recurrent_bytes: number; conv_bytes: number; bytes_per_sequence: number; total_bytes: number };
export type Capacity = {
  usable_bytes: number; weight_bytes: number; overhead_bytes: number; kv_budget_bytes: number; bytes_per_sequence: number; bytes_per_further_sequence: number;
  shared_prefix_bytes: number; fixed_state_bytes: number; batch_bytes: number; kv_heads_per_gpu: number; copies: number; max_sequences: number;
  max_sequences_without_prefix: number; tokens: number; longest_context: number | null; fits: boolean; weights_fit: boolean;
  step_us: number | null; tokens_per_s: number | null; cost_per_million_tokens: number | null;
};
export type Remedy = {
  name: 'gqa' | 'fp8_cache' | 'window' | 'offload' | 'fp8_weights' | 'another_card' | 'more_cards'; value: string | number; needs_training: boolean; total_bytes: number;
  max_sequences: number; longest_context: number | null; fits: boolean; tokens_per_s: number | null; cost_per_million_tokens: number | null; parked: number; return_s: number | null;
};
export type Point = { context?: number; batch?: number; total_bytes: number; total_bytes_blocks: number; stored_bytes: number };
export type Model = {
  model_id: string | null; name: string; model_type: string | null; source: string | null; checked: string | null; num_parameters: number | null; max_context: number | null;
  is_mixture: boolean; kind: string; num_layers: number; cached_layers: number; bytes_per_token: number; marginal_bytes_per_token: number; total_bytes: number;
  total_bytes_blocks: number; total_bytes_window_ignored: number; uncompressed_bytes_per_token: number | null; indexer_bytes_per_token: number; fixed_state: FixedState | null;
  layer_groups: Group[]; warnings: string[]; capacity: Capacity | null; remedies: Remedy[]; series: { weight_bytes: number | null; over_context: Point[]; over_batch: Point[] };
};
export type Answer = { settings: Settings; machine: Machine | null; models: [Model] };
export type Fault = { code: string; message: string; details: Record<string, any> };

/** The last response for one model; an error is kept with the previous answer. */
export type Reply = { answer: Answer | null; fault: Fault | null };
