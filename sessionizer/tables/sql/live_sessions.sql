-- The sessions that may still change.
SELECT * EXCEPT (_state)
FROM {sessions}
WHERE NOT is_final
