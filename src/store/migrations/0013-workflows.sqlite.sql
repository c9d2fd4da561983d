-- Steps of a definition: their place in it, what their if reads, what was decided and rendered for them, what they left.
alter table steps add column position integer not null default 0;
alter table steps add column condition text check (condition in ('none', 'plain', 'asks'));
alter table steps add column continue_on_failure integer not null default 0 check (continue_on_failure in (0, 1));
alter table steps add column spec text;
alter table steps add column result text;
alter table steps add column prompt_digest text;
create index steps_to_judge on steps (id) where status = 'pending' and reason = 'judge';
create index steps_prompts on steps (prompt_digest) where prompt_digest is not null and finished_at is null;

-- What a definition has as steps, once for each text: a run copies its rows.
create table definition_steps (
  digest text not null, position integer not null, key text not null, kind text not null,
  condition text not null check (condition in ('none', 'plain', 'asks')),
  continue_on_failure integer not null check (continue_on_failure in (0, 1)), needs_left integer not null,
  created_at integer not null, primary key (digest, position)
);
create table definition_needs (
  digest text not null, position integer not null, needs_position integer not null, created_at integer not null,
  primary key (digest, position, needs_position)
);
