package org.flinkskills.bridge.pool;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.util.ShutdownHookUtil;
import org.flinkskills.bridge.AgentWorkerException;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.plan.JobResources;
import org.flinkskills.bridge.processes.ScratchDirectory;
import org.flinkskills.bridge.processes.WorkerLauncher;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Worker processes of one job on one TaskManager. All slots and all agents of the job share them.
 * {@link WorkerPools} determines the lifetime of a pool.
 */
public final class WorkerPool {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerPool.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long CLOSE_GRACE_MS = 5000;

  /** Properties of a pool. The first operator that acquires the pool provides them. */
  record Blueprint(
      int workers,
      long workerMemory,
      long openTimeoutMs,
      String[] tmpDirectories,
      String taskManager,
      LauncherFactory launchers) {}

  /** Factory of the launcher, which prepares the environment of the workers. */
  public interface LauncherFactory {
    WorkerLauncher open(Path scratch) throws Exception;
  }

  private final JobID jobId;
  private final ScratchDirectory scratch;
  private final WorkerLauncher launcher;
  private final WorkerProcess[] workers;
  private final WorkerLane[] lanes;

  /** Checks the time limits of the workers until the pool closes. */
  private final Thread monitor;

  private final CountDownLatch closed = new CountDownLatch(1);
  private final PoolOperators operators = new PoolOperators();
  private final OpenPlans plans;
  private final JobResources resources;
  private final ReportQueue.Memory reportMemory = new ReportQueue.Memory();
  private Thread shutdownHook;

  /** Prepare the launcher, and start the workers. */
  static WorkerPool create(JobID jobId, Blueprint blueprint) throws Exception {
    ScratchDirectory scratch = ScratchDirectory.create(blueprint.tmpDirectories(), jobId);
    WorkerLauncher launcher;
    try {
      launcher = blueprint.launchers().open(scratch.path());
    } catch (Throwable t) {
      scratch.delete();
      throw t;
    }
    WorkerPool pool = new WorkerPool(jobId, blueprint, scratch, launcher);
    pool.start();
    return pool;
  }

  private WorkerPool(
      JobID jobId, Blueprint blueprint, ScratchDirectory scratch, WorkerLauncher launcher) {
    this.jobId = jobId;
    this.scratch = scratch;
    this.launcher = launcher;
    this.resources = new JobResources(scratch.path().resolve("resources"));
    this.workers = new WorkerProcess[blueprint.workers()];
    this.lanes = new WorkerLane[blueprint.workers()];
    this.plans = new OpenPlans(jobId, config(blueprint), workers, lanes, operators);
    String name = "agent-worker-" + jobId.toString().substring(0, 8) + "-";
    this.monitor = WorkerProcess.daemon(this::monitor, name + "monitor");
    WorkerFrames frames = new WorkerFrames(plans, operators, lanes);
    for (int i = 0; i < workers.length; i++) {
      lanes[i] = new WorkerLane(i, operators);
      WorkerProcess.Config config =
          new WorkerProcess.Config(name + i, jobId, i, launcher, blueprint.openTimeoutMs());
      workers[i] = new WorkerProcess(config, plans, frames);
    }
  }

  /** Return the part of OPEN that is the same for all plans and workers. */
  private ObjectNode config(Blueprint blueprint) {
    return JSON.createObjectNode()
        .put("scratch_dir", scratch.path().toString())
        .put("job_id", jobId.toString())
        .put("workers", blueprint.workers())
        .put("memory", blueprint.workerMemory())
        .put("task_manager", blueprint.taskManager())
        // Workers share the sources that one of them has fetched since the job opened here.
        .put("opened", System.currentTimeMillis() / 1000.0);
  }

  private void start() {
    // A TaskManager that receives a stop signal does not close the operators of its tasks.
    shutdownHook = ShutdownHookUtil.addShutdownHook(this::closeNow, "agent worker pool", LOG);
    for (WorkerProcess worker : workers) {
      worker.start();
    }
    monitor.start();
  }

  private void monitor() {
    try {
      while (!closed.await(WorkerProcess.TICK_MS, TimeUnit.MILLISECONDS)) {
        for (WorkerProcess worker : workers) {
          worker.tick();
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (RuntimeException | Error e) {
      plans.fail(new AgentWorkerException("The monitor of the agent workers failed: " + e, e));
    }
  }

  /** Return a queue for the reports to one operator. The queues of a pool share their memory. */
  public ReportQueue reports() {
    return new ReportQueue(reportMemory, scratch.path());
  }

  /**
   * Open a plan in every worker, and wait until all workers have opened it.
   *
   * @throws AgentOpenException with the message of the worker that could not open it, or after the
   *     timeout
   */
  public PoolConnection connect(AgentPlan plan, AgentSettings settings, ClassLoader classLoader)
      throws Exception {
    Map<String, List<String>> paths =
        resources.copy(settings.resources(), settings.resourceLimits(), classLoader);
    List.of(workers).forEach(worker -> worker.allowSilence(settings.maxSilenceMs()));
    int planId = plans.open(plan, paths, settings.openTimeoutMs());
    return new PoolConnection(plans, workers, lanes, plan, planId);
  }

  /** Terminate the workers, and remove their files. Takes up to nine seconds. */
  void close() {
    ShutdownHookUtil.removeShutdownHook(shutdownHook, "agent worker pool", LOG);
    closeNow();
  }

  private void closeNow() {
    if (!plans.close()) {
      return;
    }
    closed.countDown();
    for (WorkerProcess worker : workers) {
      worker.beginClose(CLOSE_GRACE_MS);
    }
    for (WorkerProcess worker : workers) {
      worker.awaitClosed();
    }
    WorkerProcess.join(monitor, CLOSE_GRACE_MS);
    try {
      launcher.close();
    } catch (IOException e) {
      LOG.warn("The Python environment of job {} could not be removed completely.", jobId, e);
    }
    scratch.delete();
  }
}
