-- Small indexes over what should not be there for long, so that looking for it costs nothing however long the history is.
create index loops_asleep on loops (id) where status = 'active' and archived_at is null and wake_at is null;
create index slots_open on slots (loop_id, at) where outcome is null;
