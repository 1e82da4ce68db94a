package org.flinkskills.bridge;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.taskmanager.TaskManagerRuntimeInfo;

/**
 * The pools of this TaskManager. A pool lives from the first operator that acquires it to the last
 * that releases it.
 *
 * <p>They are kept by job id: this class may be loaded from the job's jar (then there is one entry)
 * or from Flink's {@code lib/} (then it serves all jobs).
 */
final class WorkerPools {
  private static final Map<JobID, Entry> POOLS = new HashMap<>();

  private WorkerPools() {}

  /**
   * A pool and how many hold it. Its lock serialises creation, so that other jobs go on meanwhile.
   */
  private static final class Entry {
    int holders;
    WorkerPool pool;
  }

  /** An operator's hold of a pool. */
  static final class Lease {
    private final JobID jobId;
    private final Entry entry;
    private boolean released;

    private Lease(JobID jobId, Entry entry) {
      this.jobId = jobId;
      this.entry = entry;
    }

    WorkerPool pool() {
      return entry.pool;
    }

    /** Gives the pool back, once; the last one closes it, which takes up to nine seconds. */
    void release() {
      if (!released) {
        released = true;
        WorkerPools.release(jobId, entry);
      }
    }
  }

  /**
   * The job's pool; made when there is none.
   *
   * @param environment the one of an operator's task
   */
  static Lease acquire(
      Environment environment, AgentSettings settings, WorkerPool.LauncherFactory launchers)
      throws Exception {
    JobID jobId = environment.getJobID();
    Entry entry;
    synchronized (POOLS) {
      entry = POOLS.computeIfAbsent(jobId, id -> new Entry());
      entry.holders++;
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
      if (--entry.holders > 0) {
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
