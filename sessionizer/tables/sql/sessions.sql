-- Complete mode: all sessions, as they are now. `_state` is not for reading.
SELECT * EXCEPT (_state)
FROM {sessions}
