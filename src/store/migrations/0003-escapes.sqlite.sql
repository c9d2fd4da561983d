alter table worktrees add column escaped text;
alter table steps add column lost_ends integer not null default 0;
