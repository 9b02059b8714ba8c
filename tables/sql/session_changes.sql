-- Update mode: each row that a commit wrote or removed, as far back as Delta keeps the change feed.
-- change: insert, update or delete; a deleted row is the row as it was last. A session has a row for each commit
-- that touched it; where `sessions.commit` is replace, a delete and an insert for each live session, changed or not.
-- `sessionizer changes --mode update` gives the sum of them, which is the same either way.
SELECT
  CASE _change_type WHEN 'update_postimage' THEN 'update' ELSE _change_type END AS change,
  _commit_version AS sessions_version,
  _commit_timestamp AS changed_at,
  * EXCEPT (_change_type, _commit_version, _commit_timestamp, _state)
FROM {feed}
WHERE _change_type <> 'update_preimage'
