"""Commands as models run them: the shell, the policy of a job, variables of skills, results in words."""
