-- Append mode: each session once, with the run that made it final. New ones since a run: WHERE run_seq > …
SELECT * EXCEPT (_state), TRY_CAST(split_part(run_id, '-', 2) AS BIGINT) AS run_seq
FROM {sessions}
WHERE is_final
