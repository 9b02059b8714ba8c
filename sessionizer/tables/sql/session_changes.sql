-- Update mode: each row that a commit wrote or removed, as far back as Delta keeps the change feed.
-- change: insert, update or delete; a deleted row is the row as it was last. A session has a row for each commit
-- that changed it: what a run has taken out and put back as it was, with the run that wrote it before, is left out.
-- `sessionizer changes --mode update` gives the sum of them.
SELECT
  CASE WHEN _change_type = 'update_postimage' OR __rows = 2 THEN 'update' ELSE _change_type END AS change,
  _commit_version AS sessions_version,
  _commit_timestamp AS changed_at,
  * EXCEPT (_change_type, _commit_version, _commit_timestamp, _state, __rows, __same)
FROM (
  SELECT *, count(*) OVER one AS __rows, min(run_id) OVER one = max(run_id) OVER one AS __same
  FROM {feed}
  WHERE _change_type <> 'update_preimage'
  WINDOW one AS (PARTITION BY _commit_version, session_id)
)
WHERE __rows = 1 OR (_change_type = 'insert' AND NOT __same)
