-- Append mode: each session once, with the run that made it final. New ones since a run: WHERE run_seq > …
SELECT s.* EXCEPT (_state), r.run_seq
FROM {sessions} AS s
LEFT JOIN {runs} AS r ON s.run_id = r.run_id
WHERE s.is_final
