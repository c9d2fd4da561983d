-- Loops by their labels and by the end of their ids, and those that are not archived: each found without a look at all others.
create index loops_kept on loops (name, id) where archived_at is null;
create table loop_labels (
  label text collate "C" not null, name text collate "C" not null, loop_id text collate "C" not null,
  primary key (label, name, loop_id)
);
insert into loop_labels (label, name, loop_id) select distinct j.value, l.name, l.id from loops l, json_array_elements_text(l.policy::json -> 'labels') as j(value);
alter table loops add column suffix_key text collate "C" not null default '';
update loops set suffix_key = reverse(right(id, 26));
create index loops_suffix on loops (suffix_key);
