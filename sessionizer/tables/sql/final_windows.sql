-- Final results only: each sliding window once, with the run that made it final.
SELECT * EXCEPT (_state)
FROM {windows}
WHERE is_final
