-- What a provider counted in a session up to its last attempt's end (null: not known), and whether one since stated nothing.
alter table sessions add column usage_total text;
alter table sessions add column unstated integer not null default 0;

-- Who refers to a prompt, and when it is worth a look whether anybody does. Apart from the prompts, whose rows are large.
alter table loops add column prompt_digest text;
alter table runs add column prompt_digest text;
update loops set prompt_digest = json_extract(target, '$.prompt.digest') where target like '%"prompt"%';
update runs set prompt_digest = json_extract(target, '$.prompt.digest') where target like '%"prompt"%';
create index loops_of_prompt on loops (prompt_digest) where prompt_digest is not null;
create index runs_of_prompt on runs (prompt_digest, finished_at) where prompt_digest is not null;
create table prompt_looks (digest text primary key, look_at integer not null, created_at integer not null);
create index prompt_looks_due on prompt_looks (look_at, digest);
insert into prompt_looks (digest, look_at, created_at) select digest, created_at, created_at from prompts;
