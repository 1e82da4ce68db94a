"""Counts the commands of each version of a skill, from the event stream of the job."""

from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.execute_sql(f"""
    CREATE TABLE audit (kind STRING, skill STRING, skill_digest STRING, status STRING, duration_ms DOUBLE)
    WITH ('connector' = 'filesystem', 'path' = '{Path("audit").resolve().as_uri()}', 'format' = 'json')""")
t_env.execute_sql("""
    SELECT skill, SUBSTRING(skill_digest, 1, 8) AS version, status, COUNT(*) AS commands,
      CAST(AVG(duration_ms) AS INT) AS ms
    FROM audit WHERE kind = 'command' GROUP BY skill, skill_digest, status""").print()
