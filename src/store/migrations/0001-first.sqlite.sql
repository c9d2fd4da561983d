create table hosts (
  id text primary key, name text not null, machine_id text not null, boot_id text not null, incarnation integer not null,
  version text not null, labels text not null default '[]',
  status text not null check (status in ('up', 'draining', 'disk', 'down')),
  back_by integer, lease_until integer not null, last_seen_at integer not null,
  event_number integer not null default 0, created_at integer not null
);

create table loops (
  id text primary key, name text not null, managed_by text, schedule text not null, zone text, target text not null,
  policy text not null, host_pin text, definition_digest text not null, revision integer not null,
  status text not null check (status in ('active', 'paused', 'expired', 'finished')),
  next_at integer, wake_at integer, planned_until integer not null, anchored_at integer not null,
  success_streak integer not null default 0, failure_streak integer not null default 0, failure_class text,
  breaker_at integer, paused_reason text, paused_at integer, expires_at integer, archived_at integer,
  event_number integer not null default 0, created_at integer not null, updated_at integer not null
);
create unique index loops_name on loops (name) where archived_at is null;
create index loops_listed on loops (name, id);
create index loops_next on loops (next_at, id) where status = 'active' and archived_at is null and next_at is not null;
create index loops_due on loops (wake_at, id) where wake_at is not null;

create table slots (
  loop_id text not null, at integer not null, until_at integer not null, count integer not null,
  outcome text check (outcome in ('succeeded', 'failed', 'timed_out', 'cancelled', 'skipped', 'missed', 'coalesced')),
  reason text, coalesced_into integer, run_id text, late_ms integer not null, schedule text, created_at integer not null,
  primary key (loop_id, at)
);

create table runs (
  id text primary key, kind text not null check (kind in ('command', 'agent', 'workflow', 'lane', 'code')),
  origin_kind text not null check (origin_kind in ('slot', 'ad_hoc', 'person', 'api', 'run', 'work_item', 'retry')),
  origin_id text, idempotency_key text unique, loop_id text, loop_name text, slot_at integer, work_item_id text,
  parent_run_id text, root_run_id text not null, depth integer not null default 0, retry_of text,
  target text not null, policy text not null, definition_digest text not null, input_ref text,
  status text not null check (status in ('queued', 'running', 'waiting', 'succeeded', 'failed', 'timed_out', 'cancelled', 'skipped')),
  reason text, wake_at integer, priority integer not null default 0, queued_at integer not null, not_before integer,
  chained integer not null default 0 check (chained in (0, 1)), waits_turn integer not null default 0 check (waits_turn in (0, 1)),
  suffix_key text not null,
  host_pin text, project text, project_group text, scope text, account_wish text, pool text,
  cancel_requested_at integer, cancel_by text, cancel_reason text,
  cancel_superseded integer not null default 0 check (cancel_superseded in (0, 1)), deadline_at integer,
  exit_status integer, output_ref text, output text, error text, hooks_due text,
  started_at integer, finished_at integer, revision integer not null default 1,
  event_number integer not null default 0, created_at integer not null
);
create index runs_recent on runs (queued_at, id);
create index runs_of_loop on runs (loop_id, queued_at, id) where loop_id is not null;
create index runs_live on runs (queued_at, id) where finished_at is null;
create index runs_in_turn on runs (loop_id, slot_at, id) where finished_at is null and waits_turn = 1;
create index runs_released on runs (loop_id, id) where finished_at is null and waits_turn = 0;
create index runs_suffix on runs (suffix_key);
create index runs_ended on runs (status, queued_at, id) where finished_at is not null;
create index runs_hooks on runs (host_pin, id) where hooks_due is not null;
create index runs_of_parent on runs (parent_run_id) where parent_run_id is not null;
create index runs_of_root on runs (root_run_id, id) where parent_run_id is not null;
create index runs_cancelled on runs (host_pin, id) where cancel_requested_at is not null and finished_at is null;

create table run_labels (
  label text not null, queued_at integer not null, run_id text not null,
  primary key (label, queued_at, run_id)
);

create table steps (
  id text primary key, run_id text not null, key text not null, definition_step text, item text, parent_step_id text,
  kind text not null,
  status text not null check (status in ('pending', 'ready', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'timed_out', 'cancelled', 'skipped')),
  reason text, needs_left integer not null default 0, wake_at integer, token integer not null default 0,
  cap_key text not null, turn_at integer not null, not_before integer, tries_counted integer not null default 0,
  max_attempts integer not null, idle_ends integer not null default 0, attempts_made integer not null default 0,
  input_digest text, output_ref text, output text, reused_from text, session_ref text, child_run_id text,
  started_at integer, finished_at integer, created_at integer not null,
  unique (run_id, key)
);
create index steps_ready on steps (cap_key, turn_at, id) where status = 'ready';
create index steps_waking on steps (wake_at, id) where status = 'waiting' and wake_at is not null;

create table step_needs (step_id text not null, needs_step_id text not null, created_at integer not null, primary key (step_id, needs_step_id));

create table cap_sets (key text primary key, resources text not null, host_pin text, created_at integer not null);

create table attempts (
  id text primary key, step_id text not null, run_id text not null, number integer not null,
  counted integer check (counted in (0, 1)),
  purpose text not null check (purpose in ('try', 'turn', 'repair', 'resume')), turn integer, token integer not null, input_ref text,
  status text not null check (status in ('reserved', 'starting', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'fenced')),
  class text, host_id text not null, incarnation integer not null, account_id text, session_ref text,
  lease_until integer not null, pid integer, pid_started text, boot_id text, folder text, ticket_at integer, awake_at integer,
  exit_status integer, signal integer, message text, tail text, stdout_bytes integer not null default 0, stderr_bytes integer not null default 0,
  ended_by text check (ended_by in ('self', 'timeout', 'idle', 'cancel', 'stop', 'fence')),
  ending_since integer, adopted integer not null default 0, reaped integer not null default 0, proof text,
  usage_total text, started_at integer, finished_at integer, created_at integer not null,
  unique (step_id, number)
);
create unique index attempts_one_live on attempts (step_id) where finished_at is null;
create index attempts_live on attempts (host_id, id) where finished_at is null;
create index attempts_of_run on attempts (run_id, id);

create table sessions (
  provider text not null, account_id text not null, session_id text not null, owner_step_id text not null, live_attempt_id text,
  created_at integer not null, primary key (provider, account_id, session_id)
);

create table events (
  id integer primary key autoincrement,
  subject_kind text not null, subject_id text not null, number integer not null, type text not null, token integer,
  data text not null, created_at integer not null,
  unique (subject_kind, subject_id, number)
);

create table receipts (
  step_id text not null, token integer not null, operation text not null, digest text not null, answer text not null,
  created_at integer not null, primary key (step_id, token, operation)
);

create table accounts (
  id text primary key, provider text not null, name text not null, home text, enabled integer not null check (enabled in (0, 1)),
  status text not null check (status in ('ok', 'throttled', 'quota', 'auth', 'unknown')), window_state text,
  last_used_at integer, created_at integer not null, unique (provider, name)
);

create table holds (
  subject_kind text not null, subject_id text not null, until_at integer, reason text not null, source text not null,
  evidence_ref text, cleared_at integer, created_at integer not null, primary key (subject_kind, subject_id, source)
);

create table resources (key text primary key, limit_value integer not null, reported_use integer, created_at integer not null);

create table claims (
  attempt_id text not null, resource_key text not null, amount integer not null default 1, state text not null default 'held',
  created_at integer not null, primary key (attempt_id, resource_key)
);
create index claims_of_resource on claims (resource_key);

create table settings (key text primary key, value text not null, created_at integer not null);
