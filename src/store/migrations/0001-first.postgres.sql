create table hosts (
  id text collate "C" primary key, name text collate "C" not null, machine_id text collate "C" not null, boot_id text collate "C" not null, incarnation bigint not null,
  version text collate "C" not null, labels text collate "C" not null default '[]',
  status text collate "C" not null check (status in ('up', 'draining', 'disk', 'down')),
  back_by bigint, lease_until bigint not null, last_seen_at bigint not null,
  event_number bigint not null default 0, created_at bigint not null
);

create table loops (
  id text collate "C" primary key, name text collate "C" not null, managed_by text collate "C", schedule text collate "C" not null, zone text collate "C", target text collate "C" not null,
  policy text collate "C" not null, host_pin text collate "C", definition_digest text collate "C" not null, revision bigint not null,
  status text collate "C" not null check (status in ('active', 'paused', 'expired', 'finished')),
  next_at bigint, wake_at bigint, planned_until bigint not null, anchored_at bigint not null,
  success_streak bigint not null default 0, failure_streak bigint not null default 0, failure_class text collate "C",
  breaker_at bigint, paused_reason text collate "C", paused_at bigint, expires_at bigint, archived_at bigint,
  event_number bigint not null default 0, created_at bigint not null, updated_at bigint not null
);
create unique index loops_name on loops (name) where archived_at is null;
create index loops_listed on loops (name, id);
create index loops_next on loops (next_at, id) where status = 'active' and archived_at is null and next_at is not null;
create index loops_due on loops (wake_at, id) where wake_at is not null;

create table slots (
  loop_id text collate "C" not null, at bigint not null, until_at bigint not null, count bigint not null,
  outcome text collate "C" check (outcome in ('succeeded', 'failed', 'timed_out', 'cancelled', 'skipped', 'missed', 'coalesced')),
  reason text collate "C", coalesced_into bigint, run_id text collate "C", late_ms bigint not null, schedule text collate "C", created_at bigint not null,
  primary key (loop_id, at)
);

create table runs (
  id text collate "C" primary key, kind text collate "C" not null check (kind in ('command', 'agent', 'workflow', 'lane', 'code')),
  origin_kind text collate "C" not null check (origin_kind in ('slot', 'ad_hoc', 'person', 'api', 'run', 'work_item', 'retry')),
  origin_id text collate "C", idempotency_key text collate "C" unique, loop_id text collate "C", loop_name text collate "C", slot_at bigint, work_item_id text collate "C",
  parent_run_id text collate "C", root_run_id text collate "C" not null, depth bigint not null default 0, retry_of text collate "C",
  target text collate "C" not null, policy text collate "C" not null, definition_digest text collate "C" not null, input_ref text collate "C",
  status text collate "C" not null check (status in ('queued', 'running', 'waiting', 'succeeded', 'failed', 'timed_out', 'cancelled', 'skipped')),
  reason text collate "C", wake_at bigint, priority bigint not null default 0, queued_at bigint not null, not_before bigint,
  chained bigint not null default 0 check (chained in (0, 1)), waits_turn bigint not null default 0 check (waits_turn in (0, 1)),
  suffix_key text collate "C" not null,
  host_pin text collate "C", project text collate "C", project_group text collate "C", scope text collate "C", account_wish text collate "C", pool text collate "C",
  cancel_requested_at bigint, cancel_by text collate "C", cancel_reason text collate "C",
  cancel_superseded bigint not null default 0 check (cancel_superseded in (0, 1)), deadline_at bigint,
  exit_status bigint, output_ref text collate "C", output text collate "C", error text collate "C", hooks_due text collate "C",
  started_at bigint, finished_at bigint, revision bigint not null default 1,
  event_number bigint not null default 0, created_at bigint not null
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
  label text collate "C" not null, queued_at bigint not null, run_id text collate "C" not null,
  primary key (label, queued_at, run_id)
);

create table steps (
  id text collate "C" primary key, run_id text collate "C" not null, key text collate "C" not null, definition_step text collate "C", item text collate "C", parent_step_id text collate "C",
  kind text collate "C" not null,
  status text collate "C" not null check (status in ('pending', 'ready', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'timed_out', 'cancelled', 'skipped')),
  reason text collate "C", needs_left bigint not null default 0, wake_at bigint, token bigint not null default 0,
  cap_key text collate "C" not null, turn_at bigint not null, not_before bigint, tries_counted bigint not null default 0,
  max_attempts bigint not null, idle_ends bigint not null default 0, attempts_made bigint not null default 0,
  input_digest text collate "C", output_ref text collate "C", output text collate "C", reused_from text collate "C", session_ref text collate "C", child_run_id text collate "C",
  started_at bigint, finished_at bigint, created_at bigint not null,
  unique (run_id, key)
);
create index steps_ready on steps (cap_key, turn_at, id) where status = 'ready';
create index steps_waking on steps (wake_at, id) where status = 'waiting' and wake_at is not null;

create table step_needs (step_id text collate "C" not null, needs_step_id text collate "C" not null, created_at bigint not null, primary key (step_id, needs_step_id));

create table cap_sets (key text collate "C" primary key, resources text collate "C" not null, host_pin text collate "C", created_at bigint not null);

create table attempts (
  id text collate "C" primary key, step_id text collate "C" not null, run_id text collate "C" not null, number bigint not null,
  counted bigint check (counted in (0, 1)),
  purpose text collate "C" not null check (purpose in ('try', 'turn', 'repair', 'resume')), turn bigint, token bigint not null, input_ref text collate "C",
  status text collate "C" not null check (status in ('reserved', 'starting', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'fenced')),
  class text collate "C", host_id text collate "C" not null, incarnation bigint not null, account_id text collate "C", session_ref text collate "C",
  lease_until bigint not null, pid bigint, pid_started text collate "C", boot_id text collate "C", folder text collate "C", ticket_at bigint, awake_at bigint,
  exit_status bigint, signal bigint, message text collate "C", tail text collate "C", stdout_bytes bigint not null default 0, stderr_bytes bigint not null default 0,
  ended_by text collate "C" check (ended_by in ('self', 'timeout', 'idle', 'cancel', 'stop', 'fence')),
  ending_since bigint, adopted bigint not null default 0, reaped bigint not null default 0, proof text collate "C",
  usage_total text collate "C", started_at bigint, finished_at bigint, created_at bigint not null,
  unique (step_id, number)
);
create unique index attempts_one_live on attempts (step_id) where finished_at is null;
create index attempts_live on attempts (host_id, id) where finished_at is null;
create index attempts_of_run on attempts (run_id, id);

create table sessions (
  provider text collate "C" not null, account_id text collate "C" not null, session_id text collate "C" not null, owner_step_id text collate "C" not null, live_attempt_id text collate "C",
  created_at bigint not null, primary key (provider, account_id, session_id)
);

create table events (
  id bigint generated by default as identity primary key, txid bigint not null default (pg_current_xact_id()::text::bigint),
  subject_kind text collate "C" not null, subject_id text collate "C" not null, number bigint not null, type text collate "C" not null, token bigint,
  data text collate "C" not null, created_at bigint not null,
  unique (subject_kind, subject_id, number)
);

create table receipts (
  step_id text collate "C" not null, token bigint not null, operation text collate "C" not null, digest text collate "C" not null, answer text collate "C" not null,
  created_at bigint not null, primary key (step_id, token, operation)
);

create table accounts (
  id text collate "C" primary key, provider text collate "C" not null, name text collate "C" not null, home text collate "C", enabled bigint not null check (enabled in (0, 1)),
  status text collate "C" not null check (status in ('ok', 'throttled', 'quota', 'auth', 'unknown')), window_state text collate "C",
  last_used_at bigint, created_at bigint not null, unique (provider, name)
);

create table holds (
  subject_kind text collate "C" not null, subject_id text collate "C" not null, until_at bigint, reason text collate "C" not null, source text collate "C" not null,
  evidence_ref text collate "C", cleared_at bigint, created_at bigint not null, primary key (subject_kind, subject_id, source)
);

create table resources (key text collate "C" primary key, limit_value bigint not null, reported_use bigint, created_at bigint not null);

create table claims (
  attempt_id text collate "C" not null, resource_key text collate "C" not null, amount bigint not null default 1, state text collate "C" not null default 'held',
  created_at bigint not null, primary key (attempt_id, resource_key)
);
create index claims_of_resource on claims (resource_key);

create table settings (key text collate "C" primary key, value text collate "C" not null, created_at bigint not null);
create index events_feed on events (txid, id);
alter table attempts set (fillfactor = 70);
alter table steps set (fillfactor = 70);
alter table claims set (fillfactor = 70);
