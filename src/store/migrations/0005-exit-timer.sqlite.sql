-- One more word: an agent that had said its result and was ended because it did not exit.
alter table attempts add column ended_how text check (ended_how in ('self', 'timeout', 'idle', 'exit_timer', 'cancel', 'stop', 'fence'));
update attempts set ended_how = ended_by;
alter table attempts drop column ended_by;
alter table attempts rename column ended_how to ended_by;
