alter table worktrees add column escaped text collate "C";
alter table steps add column lost_ends bigint not null default 0;
