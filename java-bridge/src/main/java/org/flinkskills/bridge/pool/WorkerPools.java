package org.flinkskills.bridge.pool;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.taskmanager.TaskManagerRuntimeInfo;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.processes.WorkerMemory;

/**
 * Pools of this TaskManager, by job. The first operator that acquires a pool creates it, and the
 * last operator that releases a pool closes it.
 *
 * <p>If this class is loaded from the job's jar, there is one entry. If it is loaded from Flink's
 * {@code lib/}, there are the entries of all jobs.
 */
public final class WorkerPools {
  private static final Map<JobID, Entry> POOLS = new HashMap<>();

  private WorkerPools() {}

  /** A pool and the number of its operators. The lock serializes the creation of one pool only. */
  private static final class Entry {
    int leases;
    WorkerPool pool;
  }

  /** Lease of a pool by an operator. */
  public static final class Lease {
    private final JobID jobId;
    private final Entry entry;
    private boolean released;

    private Lease(JobID jobId, Entry entry) {
      this.jobId = jobId;
      this.entry = entry;
    }

    public WorkerPool pool() {
      return entry.pool;
    }

    /** Release the pool. The last release closes the pool, which takes up to nine seconds. */
    public void release() {
      if (!released) {
        released = true;
        WorkerPools.release(jobId, entry);
      }
    }
  }

  /**
   * Return a lease of the job's pool. Create the pool if there is none.
   *
   * @param environment the environment of the operator's task
   */
  public static Lease acquire(
      Environment environment, AgentSettings settings, WorkerPool.LauncherFactory launchers)
      throws Exception {
    JobID jobId = environment.getJobID();
    Entry entry;
    synchronized (POOLS) {
      entry = POOLS.computeIfAbsent(jobId, id -> new Entry());
      entry.leases++;
    }
    try {
      synchronized (entry) {
        if (entry.pool == null) {
          entry.pool = WorkerPool.create(jobId, blueprint(environment, settings, launchers));
        }
      }
      return new Lease(jobId, entry);
    } catch (Throwable t) {
      release(jobId, entry);
      throw t;
    }
  }

  private static WorkerPool.Blueprint blueprint(
      Environment environment, AgentSettings settings, WorkerPool.LauncherFactory launchers) {
    TaskManagerRuntimeInfo info = environment.getTaskManagerInfo();
    return new WorkerPool.Blueprint(
        settings.workerCount(),
        WorkerMemory.of(info.getConfiguration(), settings.workerCount()),
        settings.openTimeoutMs(),
        info.getTmpDirectories(),
        info.getTaskManagerExternalAddress(),
        launchers);
  }

  private static void release(JobID jobId, Entry entry) {
    synchronized (POOLS) {
      if (--entry.leases > 0) {
        return;
      }
      POOLS.remove(jobId, entry);
    }
    synchronized (entry) {
      if (entry.pool != null) {
        entry.pool.close();
      }
    }
  }
}
