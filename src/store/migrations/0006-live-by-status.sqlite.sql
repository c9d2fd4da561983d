-- What lives is counted, and asked for, by its status: from the index alone, and never through all that is queued.
drop index runs_live;
create index runs_live on runs (status, queued_at, id) where finished_at is null;
