-- What ended longest ago, and the sessions of a step: for the retention of history.
create index runs_finished on runs (finished_at, id) where finished_at is not null;
create index sessions_of_step on sessions (owner_step_id);
