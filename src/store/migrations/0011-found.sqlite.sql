-- Loops by their labels and by the end of their ids, and those that are not archived: each found without a look at all others.
create index loops_kept on loops (name, id) where archived_at is null;
create table loop_labels (
  label text not null, name text not null, loop_id text not null,
  primary key (label, name, loop_id)
);
insert or ignore into loop_labels (label, name, loop_id) select j.value, l.name, l.id from loops l, json_each(l.policy, '$.labels') j;
alter table loops add column suffix_key text not null default '';
update loops set suffix_key = substr(id, 31, 1) || substr(id, 30, 1) || substr(id, 29, 1) || substr(id, 28, 1) || substr(id, 27, 1) || substr(id, 26, 1) || substr(id, 25, 1) || substr(id, 24, 1) || substr(id, 23, 1) || substr(id, 22, 1) || substr(id, 21, 1) || substr(id, 20, 1) || substr(id, 19, 1) || substr(id, 18, 1) || substr(id, 17, 1) || substr(id, 16, 1) || substr(id, 15, 1) || substr(id, 14, 1) || substr(id, 13, 1) || substr(id, 12, 1) || substr(id, 11, 1) || substr(id, 10, 1) || substr(id, 9, 1) || substr(id, 8, 1) || substr(id, 7, 1) || substr(id, 6, 1);
create index loops_suffix on loops (suffix_key);
