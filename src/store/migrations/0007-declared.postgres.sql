-- Accounts and limits too are declared in files, and each file takes away only what it declared.
alter table accounts add column managed_by text collate "C";
alter table resources add column managed_by text collate "C";
create index loops_managed on loops (managed_by, name) where managed_by is not null;
