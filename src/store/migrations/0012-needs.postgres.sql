-- Steps by what they need: when one has ended, those that wait for it are found without a look at all others.
create index step_needs_by_need on step_needs (needs_step_id);
