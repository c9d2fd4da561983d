-- What people look for: the ends of one loop, what waits and why, loops that fail or were stopped, instants that were missed.
create index runs_ended_of_loop on runs (loop_id, status, queued_at, id) where finished_at is not null and loop_id is not null;
create index runs_done_by_hand on runs (definition_digest, queued_at, id) where status = 'succeeded' and loop_id is null and finished_at is not null;
create index runs_waiting on runs (reason, queued_at, id) where finished_at is null and reason is not null;
create index loops_failing on loops (name, id) where failure_streak > 0 and archived_at is null;
create index loops_tripped on loops (name, id) where breaker_at is not null and archived_at is null;
create index slots_missed on slots (until_at, loop_id) where outcome = 'missed';
