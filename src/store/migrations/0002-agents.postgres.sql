alter table accounts add column limit_ends bigint not null default 0;
alter table accounts add column env text collate "C" not null default '{}';
alter table accounts add column secrets text collate "C" not null default '{}';
alter table accounts add column event_number bigint not null default 0;
alter table attempts add column agent_end text collate "C";
alter table steps add column account_id text collate "C";
create index steps_of_account on steps (account_id, id) where status = 'waiting' and account_id is not null;
create index runs_of_account on runs (account_wish, id) where finished_at is null and account_wish is not null;

create table prompts (digest text collate "C" primary key, content text collate "C" not null, bytes bigint not null, created_at bigint not null);

create table worktrees (
  run_id text collate "C" primary key, host_id text collate "C" not null, cwd text collate "C" not null, path text collate "C" not null,
  repository text collate "C", branch text collate "C", base text collate "C", base_note text collate "C",
  state text collate "C" not null check (state in ('making', 'made', 'kept', 'removed')),
  kept_because text collate "C", commits bigint, diff_stat text collate "C", finished_at bigint, created_at bigint not null
);
create index worktrees_there on worktrees (created_at, run_id) where state <> 'removed';
create index worktrees_untidied on worktrees (host_id, run_id) where state in ('making', 'made');
