alter table accounts add column limit_ends integer not null default 0;
alter table accounts add column env text not null default '{}';
alter table accounts add column secrets text not null default '{}';
alter table accounts add column event_number integer not null default 0;
alter table attempts add column agent_end text;
alter table steps add column account_id text;
create index steps_of_account on steps (account_id, id) where status = 'waiting' and account_id is not null;
create index runs_of_account on runs (account_wish, id) where finished_at is null and account_wish is not null;

create table prompts (digest text primary key, content text not null, bytes integer not null, created_at integer not null);

create table worktrees (
  run_id text primary key, host_id text not null, cwd text not null, path text not null,
  repository text, branch text, base text, base_note text,
  state text not null check (state in ('making', 'made', 'kept', 'removed')),
  kept_because text, commits integer, diff_stat text, finished_at integer, created_at integer not null
);
create index worktrees_there on worktrees (created_at, run_id) where state <> 'removed';
create index worktrees_untidied on worktrees (host_id, run_id) where state in ('making', 'made');
